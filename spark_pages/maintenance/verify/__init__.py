"""Verification of a store: reads and compares, writes nothing.

Start with `verify`, then `walk`, which visits slots, commits and checkpoints in the order of their versions;
`checkpoints`, `pages`, `page_values` and `compacted_ranges` check one kind of object each; `faults` is the
result.
"""
