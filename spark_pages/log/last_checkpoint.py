"""The hint: where to begin. It may be old, absent or nonsense, and no answer depends on it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from spark_pages.errors import SparkPagesError
from spark_pages.format.commit import (
    location_from_avro,
    location_to_avro,
    upkeep_from_plain,
    upkeep_to_plain,
)
from spark_pages.format.names import HINT_KEY, root_key
from spark_pages.format.validate import is_possible
from spark_pages.model.actions import CHECKPOINT, COMPACTION, DELETION, CheckpointRef, UpkeepNote
from spark_pages.model.ids import Version
from spark_pages.storage.store import ObjectStore

_MAX_HINT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Hint:
    """What the last one to tidy up left for those who come.

    Attributes
    ----------
    checkpoint
        A checkpoint, likely the newest.
    compacted
        Slots below this version are in compacted ranges.
    upkeep
        What was done to the log, and no commit had told then.
    """

    checkpoint: CheckpointRef | None = None
    compacted: int = 0
    upkeep: tuple[UpkeepNote, ...] = ()


def read_hints(store: ObjectStore) -> Hint:
    """Read the valid fields of the hint."""
    try:
        value = json.loads(store.get(HINT_KEY, _MAX_HINT_BYTES))
        compacted = max(0, int(value.get("compacted", 0)))
        upkeep = tuple(map(_note, value.get("upkeep", ())))
        if "location" not in value:
            return Hint(None, compacted, upkeep)
        ref = CheckpointRef(Version(int(value["version"])), location_from_avro(value["location"]))
        named = ref.location.key == root_key(ref.version, str(ref.location.digest))
        return Hint(ref if named and isinstance(ref.location.digest, str) else None, compacted, upkeep)
    except (SparkPagesError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return Hint()


def _note(value: dict[str, Any]) -> UpkeepNote:
    """Decode and validate the maintenance record of a hint, which the next commit repeats."""
    note = upkeep_from_plain(value)
    numbers = note.reached, note.timestamp_us, note.objects, note.size_bytes
    told = isinstance(note.writer, str) and note.operation in (CHECKPOINT, COMPACTION, DELETION)
    if not told or not all(type(each) is int for each in numbers) or not is_possible(note):
        raise ValueError("a hint tells of upkeep that cannot have been")
    return note


def read_hint(store: ObjectStore) -> CheckpointRef | None:
    """Return the checkpoint that the hint names, or None if the hint is absent or invalid."""
    return read_hints(store).checkpoint


def write_hint(
    store: ObjectStore, ref: CheckpointRef | None, compacted: int = 0, upkeep: Iterable[UpkeepNote] = ()
) -> None:
    """Leave a hint at the checkpoint and at the ranges. Nothing depends on it being right or there."""
    value: dict[str, object] = {"compacted": compacted}
    if told := [upkeep_to_plain(note) for note in upkeep]:
        value["upkeep"] = told
    if ref is not None:
        value |= {"version": ref.version, "location": location_to_avro(ref.location)}
    store.put(HINT_KEY, json.dumps(value, sort_keys=True).encode())
