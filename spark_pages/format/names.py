"""Names of the objects of the log; `docs/format.md` ("Layout") is the specification."""

from __future__ import annotations

import re

LOG = "_log/"
HINT_KEY = "_log/_last_checkpoint"
PAGES = "pages"
"""Folder of page files of tables whose namespace says no other."""

DELTA = "_delta/"
"""Folder of the Delta tables that hold history and change feed."""


_TREES = ("_log/parts/", "_log/segments/", "_log/stats/", "_log/catalog/")
_OF_TREE = re.compile(rf"(?:{'|'.join(_TREES)})[0-9a-f]{{64}}\.parquet")


def is_of_tree(key: str) -> bool:
    """Whether the key is one that checkpoints give to an object of their tree: its name is its digest."""
    return _OF_TREE.fullmatch(key) is not None


def is_unnamed_tree_object(key: str) -> bool:
    """Whether the object lies where those of checkpoints lie, under a name that no checkpoint gives.

    Delta clients leave such files where they read what is published.
    """
    return key.startswith(_TREES) and not is_of_tree(key) and not is_published(key)


def is_published(key: str) -> bool:
    """Whether the object belongs to a Delta table beside the log, which nothing in the log names."""
    return "/_delta_log/" in key or key.startswith(DELTA)


LOST = "_lost/"
"""Folder of commits of other stores that a repair has moved out of the log."""


def lost_commit(version: int, digest: str) -> str:
    """Key under which a repair keeps a commit of another store that it found in a slot."""
    return f"{LOST}{version:020d}-{digest}.avro"


def commit_key(version: int) -> str:
    """Key of the slot of a version."""
    return f"_log/{version:020d}.avro"


def compacted_key(start: int, end: int) -> str:
    """Key of the compacted range of slots `start` to `end`, both included."""
    return f"_log/{start:020d}-{end:020d}.compacted.avro"


def bundle_key(start: int, end: int) -> str:
    """Key of the bundle of slots `start` to `end`, both included."""
    return f"_log/{start:020d}-{end:020d}.bundle"


def root_key(version: int, digest: str) -> str:
    """Key of the root of a checkpoint."""
    return f"_log/checkpoints/{version:020d}-{digest}.parquet"


def part_key(digest: str) -> str:
    """Key of a manifest part."""
    return f"_log/parts/{digest}.parquet"


def segment_key(digest: str) -> str:
    """Key of a segment."""
    return f"_log/segments/{digest}.parquet"


def stats_key(digest: str) -> str:
    """Key of the statistics of a segment."""
    return f"_log/stats/{digest}.parquet"


def catalog_key(digest: str) -> str:
    """Key of a catalog file."""
    return f"_log/catalog/{digest}.parquet"


def manifest_key(manifest_id: str) -> str:
    """Key of a page manifest."""
    return f"_log/manifests/{manifest_id}.parquet"


def page_file_key(read_version: int, transaction: str, number: int, folder: str = PAGES) -> str:
    """Key of a page file; the read version tells vacuum which transactions may still name it."""
    return f"{folder}/{max(read_version, 0):020d}-{transaction}-{number}.pages"
