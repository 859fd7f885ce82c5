"""Conditions on rows, as Arrow expressions, SQL or lists: pages are ruled out, the rest is tested exactly.

Start at `filters`.
"""
