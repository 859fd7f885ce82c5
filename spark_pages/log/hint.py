"""The hint: where to begin. It may be old, absent or nonsense, and no answer depends on it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from spark_pages.errors import SparkPagesError
from spark_pages.log.commit_codec import location_from_avro, location_to_avro
from spark_pages.log.names import HINT_KEY, root_key
from spark_pages.model.actions import CheckpointRef
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
    """

    checkpoint: CheckpointRef | None = None
    compacted: int = 0


def read_hints(store: ObjectStore) -> Hint:
    """The hint, as far as it is there and makes sense."""
    try:
        data = store.get(HINT_KEY)
        value = json.loads(data) if len(data) <= _MAX_HINT_BYTES else {}
        compacted = max(0, int(value.get("compacted", 0)))
        if "location" not in value:
            return Hint(None, compacted)
        ref = CheckpointRef(Version(int(value["version"])), location_from_avro(value["location"]))
        named = ref.location.key == root_key(ref.version, str(ref.location.digest))
        return Hint(ref if named and isinstance(ref.location.digest, str) else None, compacted)
    except (SparkPagesError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return Hint()


def read_hint(store: ObjectStore) -> CheckpointRef | None:
    """The checkpoint that the hint names; None where the hint is absent or makes no sense."""
    return read_hints(store).checkpoint


def write_hint(store: ObjectStore, ref: CheckpointRef | None, compacted: int = 0) -> None:
    """Leave a hint at the checkpoint and at the ranges. Nothing depends on it being right or there."""
    value: dict[str, object] = {"compacted": compacted}
    if ref is not None:
        value |= {"version": ref.version, "location": location_to_avro(ref.location)}
    store.put(HINT_KEY, json.dumps(value, sort_keys=True).encode())
