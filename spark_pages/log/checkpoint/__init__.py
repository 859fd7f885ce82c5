"""Checkpoints: a tree of immutable Parquet objects under a root, named by their digests.

Start at `reader` and `writer`; `policy` says when one is due.
"""
