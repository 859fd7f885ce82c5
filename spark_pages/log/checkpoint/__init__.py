"""Checkpoints: a tree of immutable Parquet objects under a root, named by their digests.

Imports `format`, `model` and `storage`. Start with `writer` and `reader`;
`root` is the object that a commit names, `segment_writer` writes its leaves, `write_plan` describes them.
`log.auto_maintenance` decides when one is due.
"""
