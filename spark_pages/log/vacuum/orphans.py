"""Objects that no commit ever named: found by listing the store, kept while their writer may still come.

The name of a page file or page manifest holds the version that its writer had read, and an object of a
checkpoint says which version it was written for. Below `min_epoch` the writer is refused, so the object
stays without a name for ever. What does not say how old it is stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from spark_pages.errors import DamageError, ObjectNotFoundError
from spark_pages.format.digest import digest_of
from spark_pages.format.names import LOG, PageFolders, is_of_tree, is_published
from spark_pages.format.segment import checkpoint_of
from spark_pages.storage.store import ObjectInfo, ObjectStore

_ROOT = re.compile(r"_log/checkpoints/([0-9]{20})-[0-9a-f]{64}\.parquet")
_RANGE = re.compile(r"_log/[0-9]{20}-([0-9]{20})\.(?:compacted\.avro|bundle)")
_MANIFEST = re.compile(r"_log/manifests/([0-9]{20})-[0-9a-f]{32}-[0-9]+\.parquet")


def page_files_below(store: ObjectStore, folders: PageFolders, epoch: int) -> Iterator[ObjectInfo]:
    """Page files whose writer is refused by now; kept commits and trees may name them all the same.

    Parameters
    ----------
    folders
        Where page files are; each is listed.
    epoch
        Writers that read before this version are refused.
    """
    for info in folders.files(store):
        read = folders.epoch_of(info.key)
        if read is not None and read < epoch:
            yield info


def unnamed_in_log(store: ObjectStore, epoch: int, cleaned: int, named: set[str]) -> Iterator[ObjectInfo]:
    """Objects of the log that no one will name, as far as their names and contents tell.

    Parameters
    ----------
    epoch
        Writers that read before this version are refused.
    cleaned
        Slots below this version are cleaned, or about to be.
    named
        Keys under ``_log/`` that commits and checkpoints name.

    Notes
    -----
    Lists the log, and reads each unnamed object of a checkpoint for its version.
    """
    for info in store.list(LOG):
        if info.key not in named and _is_abandoned(store, info.key, epoch, cleaned):
            yield info


def _is_abandoned(store: ObjectStore, key: str, epoch: int, cleaned: int) -> bool:
    if is_published(key):
        return False
    if compacted := _RANGE.fullmatch(key):
        return int(compacted[1]) < cleaned
    if written := _ROOT.fullmatch(key) or _MANIFEST.fullmatch(key):
        return int(written[1]) < epoch
    if is_of_tree(key):
        written_for = _written_for(store, key)
        return written_for is not None and written_for < epoch
    return False


def _written_for(store: ObjectStore, key: str) -> int | None:
    try:
        data = store.get(key)
    except (ObjectNotFoundError, DamageError):
        return None
    # A name that is not the digest of the content tells that the content is not what a checkpoint wrote.
    return checkpoint_of(data) if digest_of(data) in key else None
