"""Compacted ranges: one object with the commits of many slots, and archives of such ranges.

Imports `log.slots`, `format` and `storage`. Start with `writer`, which decides and writes, and `reader`,
which reads a run of versions in few requests.
"""
