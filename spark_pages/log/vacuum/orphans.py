"""Objects that no commit ever named: found by listing the store, kept while their writer may still come.

The name of a page file or page manifest holds the version that its writer had read, and an object of a
checkpoint says which version it was written for. Below `min_epoch` the writer is refused, so the object
stays without a name for ever. What does not say how old it is stays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spark_pages.errors import ObjectNotFoundError
from spark_pages.log.checkpoint.segment import checkpoint_of
from spark_pages.log.names import is_published
from spark_pages.log.page_folders import PageFolders
from spark_pages.storage.store import ObjectStore

_ROOT = re.compile(r"_log/checkpoints/([0-9]{20})-[0-9a-f]{64}\.parquet")
_RANGE = re.compile(r"_log/[0-9]{20}-([0-9]{20})\.compacted\.avro")
_MANIFEST = re.compile(r"_log/manifests/([0-9]{20})-[0-9a-f]{32}-[0-9]+\.parquet")
_OF_TREES = ("_log/parts/", "_log/segments/", "_log/stats/", "_log/catalog/")


@dataclass(frozen=True, slots=True)
class Unnamed:
    """What a listing has found beside what is named.

    Attributes
    ----------
    page_files
        Page files whose writer is refused by now; kept commits and trees may name them all the same.
    others
        Other objects that no one will name.
    """

    page_files: set[str]
    others: set[str]


def find_orphans(
    store: ObjectStore, folders: PageFolders, epoch: int, cleaned: int, named: set[str]
) -> Unnamed:
    """Objects that nothing names, as far as their names and contents tell.

    Parameters
    ----------
    folders
        Where page files are.
    epoch
        Writers that read before this version are refused.
    cleaned
        Slots below this version are cleaned, or about to be.
    named
        Keys under ``_log/`` that commits and checkpoints name.

    Notes
    -----
    Lists the log and the folders of page files, and reads each unnamed object of a checkpoint for its
    version. Memory of the listing.
    """
    files = {
        info.key
        for info in folders.files(store)
        if (read := folders.epoch_of(info.key)) is not None and read < epoch
    }
    found = Unnamed(files, set())
    for info in store.list("_log/"):
        if info.key not in named:
            _judge(store, info.key, epoch, cleaned, found)
    return found


def _judge(store: ObjectStore, key: str, epoch: int, cleaned: int, found: Unnamed) -> None:
    if is_published(key):
        return
    if root := _ROOT.fullmatch(key):
        if int(root[1]) < epoch:
            found.others.add(key)
    elif compacted := _RANGE.fullmatch(key):
        if int(compacted[1]) < cleaned:
            found.others.add(key)
    elif manifest := _MANIFEST.fullmatch(key):
        if int(manifest[1]) < epoch:
            found.others.add(key)
    elif key.startswith(_OF_TREES):
        written_for = _written_for(store, key)
        if written_for is not None and written_for < epoch:
            found.others.add(key)


def _written_for(store: ObjectStore, key: str) -> int | None:
    try:
        return checkpoint_of(store.get(key))
    except ObjectNotFoundError:
        return None
