"""Keys of all objects of a store, and folders of page files; specified in `docs/format.md`, "Layout"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from spark_pages.errors import InvalidInputError
from spark_pages.storage.store import ObjectInfo, ObjectStore

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


# Folders in which transactions put their page files: ``pages``, and each location that a namespace ever had.
#
# A file that was written to a location stays there when its namespace gets another one, or its table goes to
# another namespace. So the store remembers locations for ever, each in a property of its own: that is how
# vacuum tells our files from those of others.

LOCATION_PROPERTY = "spark_pages.location/"
"""Properties of the store that begin so name a location each; the value is the namespace that had it last."""

_FILE = re.compile(r"([0-9]{20})-[0-9a-f]{32}-[0-9]+\.pages")


@dataclass(frozen=True, slots=True)
class PageFolders:
    """The folders of one store.

    Attributes
    ----------
    folders
        Keys without a slash at the end.
    """

    folders: frozenset[str] = frozenset({PAGES})

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> PageFolders:
        """Those that the properties of a store name."""
        named = (name for name in properties if name.startswith(LOCATION_PROPERTY))
        return cls(frozenset({PAGES, *(name.removeprefix(LOCATION_PROPERTY) for name in named)}))

    def epoch_of(self, key: str) -> int | None:
        """Return the read version of the writer of a page file, or None for a foreign file name."""
        folder, _, name = key.rpartition("/")
        match = _FILE.fullmatch(name) if folder in self.folders else None
        return int(match[1]) if match else None

    def contains(self, key: str) -> bool:
        """Whether the object lies in one of the folders."""
        return key.rpartition("/")[0] in self.folders

    def files(self, store: ObjectStore) -> Iterator[ObjectInfo]:
        """List the objects in the folders, with one request for each folder that no other contains."""
        inside = tuple(f"{folder}/" for folder in self.folders)
        for folder in sorted(inside):
            if not folder.startswith(tuple(other for other in inside if other != folder)):
                yield from (info for info in store.list(folder) if self.contains(info.key))


def check_free(store: ObjectStore, folder: str) -> None:
    """Nothing, if no object of anybody else lies in the folder, and it is in no other store.

    Raises
    ------
    InvalidInputError
        Names an object.

    Notes
    -----
    One listing, and one for each folder around. Page files that a transaction left there which was never
    committed are ours, so it may try again.
    """
    parts = folder.split("/")
    around = ["/".join(parts[:number]) for number in range(1, len(parts) + 1)]
    inside = (info.key for info in store.list(f"{folder}/"))
    foreign = (key for key in inside if PageFolders(frozenset({folder})).epoch_of(key) is None)
    of_stores = (info.key for each in around for info in store.list(f"{each}/_log/"))
    for key in chain(of_stores, foreign):
        raise InvalidInputError(
            f"Cannot put page files of this store into folder {folder!r}: {key} is of somebody else.",
            hint=f"Set property 'location' to a folder that is empty, such as '{folder}-pages'.",
        )


def is_page_file(name: str) -> bool:
    """Whether a part of a key is a name that transactions give to page files."""
    return _FILE.fullmatch(name) is not None


def refuse_location_properties(properties: Mapping[str, str | None]) -> None:
    """Nothing, unless a user sets a property with which the store remembers a location.

    Raises
    ------
    InvalidInputError
    """
    own = sorted(name for name in properties if name.startswith(LOCATION_PROPERTY))
    if own:
        raise InvalidInputError(
            f"Cannot set property {own[0]!r}: by such properties the store remembers where page files are.",
            hint="Set property 'location' of a namespace instead.",
        )
