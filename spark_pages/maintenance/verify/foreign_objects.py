"""What lies in a local store and is no file: links, pipes, sockets, devices, folders in place of objects."""

from __future__ import annotations

import re
from collections.abc import Iterable

from spark_pages.format.names import HINT_KEY, LOG
from spark_pages.maintenance.verify.faults import FaultKind, Findings
from spark_pages.storage.keys import RESERVED_FOLDER
from spark_pages.storage.local import DurableLocalStore
from spark_pages.storage.store import ObjectStore

_OBJECT = re.compile(rf".*\.(avro|bundle|parquet|pages)|{re.escape(HINT_KEY)}")
"""Names of objects; no folder of a store has one."""

_REMEDY = "Move it away, and put the object back from a copy of the store, if there was one."


def find_foreign_objects(store: ObjectStore) -> dict[str, str]:
    """What each is that is no file and lies where a store has files or folders, by its path.

    Notes
    -----
    Lists a local store once more. An object store has objects alone.
    """
    found = store.foreign_objects() if isinstance(store, DurableLocalStore) else {}
    return {path: what for path, what in found.items() if what != "a folder" or _OBJECT.fullmatch(path)}


def report_foreign_objects(
    strangers: dict[str, str], page_folders: Iterable[str], findings: Findings
) -> None:
    """Report each of them that no fault names yet."""
    told = {fault.key for fault in findings.faults}
    folders = tuple(f"{folder.rstrip('/')}/" for folder in (LOG, RESERVED_FOLDER, *page_folders))
    for path, what in strangers.items():
        if path in told:
            continue
        is_within = f"{path}/".startswith(folders)
        kind = FaultKind.DAMAGED if is_within else FaultKind.ORPHAN
        rule = "expected a file or folder of the store" if is_within else "no call reads or follows it"
        findings.add(kind, path, f"{path} is {what}: {rule}.", _REMEDY)
