"""Measurements that anyone can repeat; each module prints a table, and JSON with ``--json``."""
