"""Folders in which transactions put their page files: ``pages``, and each location that a namespace ever had.

A file that was written to a location stays there when its namespace gets another one, or its table goes to
another namespace. So the store remembers locations for ever, each in a property of its own: that is how
vacuum tells our files from those of others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from spark_pages.errors import InvalidInputError
from spark_pages.format.names import PAGES
from spark_pages.storage.store import ObjectInfo, ObjectStore

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
        """The version that the writer of a page file had read; None for a file that is not named by us."""
        folder, _, name = key.rpartition("/")
        match = _FILE.fullmatch(name) if folder in self.folders else None
        return int(match[1]) if match else None

    def contains(self, key: str) -> bool:
        """Whether the object lies in one of the folders."""
        return key.rpartition("/")[0] in self.folders

    def files(self, store: ObjectStore) -> Iterator[ObjectInfo]:
        """The objects that lie in them; one listing for each folder that is in no other."""
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
