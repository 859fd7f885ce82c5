"""The objects of the log as values: what a codec would make of them is kept beside a few bytes.

The simulation runs millions of schedules, and the same commits, segments and states come up in most of
them. So inside `values()` every codec of the log is replaced by one that remembers: an object is a short
`bytes` (made from its content, so that digests, names and damage work as they do) that carries its value.
The pure steps of replay are remembered too. The codecs themselves are tested in ``tests/log``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from spark_pages.errors import DamageError, ObjectNotFoundError, StorageError
from spark_pages.format import commit as commit_codec
from spark_pages.format import segment
from spark_pages.format.digest import digest_of
from spark_pages.log import replay
from spark_pages.log.checkpoint import reader as checkpoint
from spark_pages.log.checkpoint import root
from spark_pages.log.checkpoint import writer as checkpoint_writer
from spark_pages.log.compaction import compacted_range as compaction
from spark_pages.log.state import LogState
from spark_pages.model.actions import Commit, Tombstone, TransactionRecord
from spark_pages.model.run import PageRun

_FORGET_AFTER = 200_000
"""Entries of one memory before it starts anew."""


class Value(bytes):
    """Bytes that name a value, and the value."""

    value: Any
    version: int | None


def made(kind: str, content: object, value: Any, version: int | None = None) -> Value:
    """The object that holds the value; the same content gives the same bytes in every process."""
    data = Value(f"{kind}:{blake2b(repr(content).encode(), digest_size=16).hexdigest()}".encode())
    data.value, data.version = value, version
    return data


def value_of(data: bytes, key: str) -> Any:
    """What the object holds."""
    if not isinstance(data, Value):
        raise DamageError(f"{key} is torn.", key=key)
    return data.value


class Memory(dict[Any, Any]):
    """Results by what they depend on; bounded."""

    def keep(self, key: Any, result: Any) -> Any:
        if len(self) > _FORGET_AFTER:
            self.clear()
        self[key] = result
        return result


_memories: list[Memory] = []


def memory() -> Memory:
    """A memory that `forget` empties."""
    _memories.append(Memory())
    return _memories[-1]


def forget() -> None:
    """Remember nothing: a planted bug must not meet results of the sound code, nor leave its own."""
    for each in _memories:
        each.clear()


_commits, _tombstones, _replays, _added, _checkpoints = (memory() for _ in range(5))


_HEADER = tuple(each.name for each in fields(Commit) if each.name not in ("records", "digest"))
_RECORD = tuple(
    each.name
    for each in fields(TransactionRecord)
    if each.name not in ("own", "intents", "parameters", "properties")
)
"""What is hashed as it is."""


def _key_of(record: TransactionRecord) -> tuple[Any, ...]:
    """What a record says, in a form that can be looked up."""
    return (
        *(getattr(record, name) for name in _RECORD),
        record.own.few,
        tuple((i.kind, i.table_id, i.name, i.old_name) for i in record.intents),
        tuple(record.properties.items()),
    )


@dataclass(frozen=True, eq=False, slots=True)
class Encoded:
    """Takes the place of `commit_codec.EncodedTransaction`."""

    record: TransactionRecord
    num_bytes: int = 0

    @classmethod
    def of(cls, record: TransactionRecord) -> Encoded:
        return cls(record)


def encode_commit(commit: Commit, encoded: Mapping[str, Any] = MappingProxyType({})) -> tuple[bytes, str]:
    """Takes the place of `commit_codec.encode_commit`."""
    if encoded:  # they are what is written
        records = (
            replace(encoded[each.token].record, base_ordinal=each.base_ordinal)
            if each.token in encoded
            else each
            for each in commit.records
        )
        commit = replace(commit, records=tuple(records))
    header = tuple(getattr(commit, name) for name in _HEADER)
    key = (header, tuple(_key_of(record) for record in commit.records))
    known = _commits.get(key)
    if known is None:
        data = made("commit", key, None)
        digest = digest_of(data)
        data.value = commit_codec.with_digest(commit, digest)
        known = _commits.keep(key, (data, digest))
    return known  # type: ignore[no-any-return]


def encode_tombstone(tombstone: Tombstone) -> tuple[bytes, str]:
    """Takes the place of `commit_codec.encode_tombstone`."""
    known = _tombstones.get(tombstone)
    if known is None:
        data = made("tombstone", tombstone, tombstone)
        known = _tombstones.keep(tombstone, (data, digest_of(data)))
    return known  # type: ignore[no-any-return]


def _is_commit(data: bytes, version: int, key: str) -> bool:
    slot = value_of(data, key)
    if slot.version != version:
        raise DamageError(f"{key} holds commit {slot.version}.", key=key)
    return isinstance(slot, Commit)


def _slot_digest(data: bytes, version: int, key: str) -> str:
    slot = value_of(data, key)
    if slot.version != version:
        raise DamageError(f"{key} holds commit {slot.version}.", key=key)
    return str(slot.digest)


def _encode_segment(part: segment.Segment, version: int | None = None) -> bytes:
    content = version, part.table_ids.tolist(), part.field_ids.tolist(), part.pages.to_pydict()
    return made("segment", content, part, version)


def _encode_nodes(nodes: Any, metadata: Any = None) -> bytes:
    return made("nodes", (nodes, metadata), list(nodes), _version_in(metadata))


def _version_in(metadata: dict[bytes, bytes] | None) -> int | None:
    numbers = [int(value) for value in (metadata or {}).values() if value.isdigit()]
    return numbers[0] if numbers else None


_NOT_IN_A_ROOT = {
    *(
        "base",
        "newest_checkpoint",
        "named_checkpoint",
        "edits",
        "tables",
        "names",
        "tokens",
        "changed",
        "tail_bytes",
        "tail_columns",
        "catalog_version",
    )
}
"""What is known of a state only where it was replayed."""


def _encode_root(whole: root.Root) -> bytes:
    state = whole.state
    content = {
        "state": standing(state),
        "small": [sorted(m.items()) for m in (state.apps, state.properties, state.tags, state.leases)],
        "rest": [getattr(whole, each.name) for each in fields(whole) if each.name != "state"],
        "claims": state.claims,
    }
    kept = {each.name: getattr(state, each.name) for each in fields(state) if each.name not in _NOT_IN_A_ROOT}
    return made("root", content, replace(whole, state=LogState(**kept)), state.version)


def _encode_catalog(definitions: Any, version: int | None = None) -> bytes:
    content = [(d.table_id, d.namespace_id, d.name, str(d.schema)) for d in definitions]
    return made("catalog", (version, content), list(definitions), version)


def _encode_stats(stats: pa.RecordBatch, version: int | None = None) -> bytes:
    return made("stats", (version, stats.to_pydict()), stats, version)


def _encode_range(start: int, slots: Sequence[bytes]) -> bytes:
    return made("range", (start, slots), (start, list(slots)))


def _decode_range(data: bytes, wanted: compaction.CompactedRange) -> list[bytes]:
    start, slots = value_of(data, wanted.key)
    if start != wanted.start or len(slots) != wanted.stop - wanted.start:
        raise DamageError(f"{wanted.key} holds other slots.", key=wanted.key)
    return slots  # type: ignore[no-any-return]


def _checkpoint_of(data: bytes) -> int | None:
    return data.version if isinstance(data, Value) else None


_STANDING = tuple(
    each.name for each in fields(LogState) if not str(each.type).startswith(("Mapping", "tuple", "Features"))
)
"""The others follow from the digest of a version, and from the checkpoint that a state stands on."""


def standing(state: LogState) -> tuple[Any, ...]:
    """What determines a state: the history up to it, and the checkpoints that it stands on and knows."""
    return tuple(getattr(state, name) for name in _STANDING)


def _remembering_replay(original: Callable[..., Any]) -> Callable[..., Any]:
    def replayed(state: Any, commits: Any, load_manifest: Any) -> Any:
        commits = list(commits)
        if not commits:
            return state
        key = (*standing(state), tuple(commit.digest for commit in commits))
        known = _replays.get(key)
        return known if known is not None else _replays.keep(key, original(state, commits, load_manifest))

    return replayed


def _remembering_added(original: Callable[..., Any]) -> Callable[..., Any]:
    def added(record: Any, splice: Any, own: Any, version: int, load_manifest: Any) -> PageRun:
        key = (id(record.own), record.base_ordinal, splice, version)
        known = _added.get(key)
        if known is None:  # the pages are kept too, so that their id is not given to others
            known = _added.keep(key, (record.own, original(record, splice, own, version, load_manifest)))
        return known[1]  # type: ignore[no-any-return]

    return added


class _Recorder:
    """Storage that notes what is asked of it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.requests: list[tuple[str, bytes | None]] = []

    def put(self, key: str, data: bytes) -> None:
        self.requests.append((key, data))
        self._store.put(key, data)

    def size(self, key: str) -> int:
        self.requests.append((key, None))
        return self._store.size(key)  # type: ignore[no-any-return]


def _remembering_checkpoint(original: Callable[..., Any]) -> Callable[..., Any]:
    """A first checkpoint reads nothing: its requests follow from the state, and are made again one by one."""

    def written(store: Any, state: LogState, previous: Any, token: str, *given: Any) -> Any:
        if previous is not None:
            return original(store, state, previous, token, *given)
        key = (*standing(state), token)
        known = _checkpoints.get(key)
        if known is None:
            recorder = _Recorder(store)
            ref = original(recorder, state, previous, token, *given)
            _checkpoints.keep(key, (recorder.requests, ref))
            return ref
        requests, ref = known
        sizes = {}
        for name, data in requests:
            if data is not None:
                sizes[name] = len(data)
                store.put(name, data)
            elif _size(store, name) != sizes[name]:
                raise StorageError(f"Storage does not hold all of {name}.", key=name)
        return ref

    return written


def _size(store: Any, key: str) -> int | None:
    try:
        return store.size(key)  # type: ignore[no-any-return]
    except ObjectNotFoundError:
        return None


class _LightCache:
    """`LruCache` that never forgets: a process of a schedule opens few objects, and shares no budget."""

    held_bytes = 0

    def __init__(self, _: object) -> None:
        self._kept: dict[Any, Any] = {}
        self.get = self._kept.get
        self.clear = self._kept.clear

    def put(self, key: Any, value: Any, _: int) -> None:
        """Cache a value."""
        self._kept[key] = value


def codecs() -> dict[Any, Any]:
    """Shipped codec to the one that takes its place."""
    return {
        commit_codec.encode_commit: encode_commit,
        commit_codec.EncodedTransaction: Encoded,
        commit_codec.encode_tombstone: encode_tombstone,
        commit_codec.decode_slot: value_of,
        commit_codec.is_commit: _is_commit,
        commit_codec.slot_digest: _slot_digest,
        segment.encode_segment: _encode_segment,
        segment.decode_segment: value_of,
        segment.encode_nodes: _encode_nodes,
        segment.decode_nodes: value_of,
        segment.encode_stats: _encode_stats,
        segment.decode_stats: value_of,
        root.encode_root: _encode_root,
        root.decode_root: value_of,
        root.encode_catalog: _encode_catalog,
        root.decode_catalog: _decode_catalog,
        segment.checkpoint_of: _checkpoint_of,
        compaction.encode_range: _encode_range,
        compaction.decode_range: _decode_range,
    }


class _CatalogPage(list[Any]):
    """Definitions as a catalog file gives them out."""

    @property
    def names(self) -> list[tuple[int, str]]:
        return [(each.namespace_id, each.name) for each in self]

    def of_namespace(self, namespace_id: int | None) -> list[Any]:
        return [each for each in self if namespace_id in (None, each.namespace_id)]


def _decode_catalog(data: bytes, key: str) -> _CatalogPage:
    return _CatalogPage(value_of(data, key))


def remembering() -> dict[Any, Any]:
    """Shipped function to one that does the same, and remembers."""
    return {
        replay.replay: _remembering_replay(replay.replay),
        replay._added: _remembering_added(replay._added),
        checkpoint_writer.write_checkpoint: _remembering_checkpoint(checkpoint_writer.write_checkpoint),
    }


def swap(old: Any, new: Any) -> list[tuple[Any, str, Any]]:
    """Put `new` in the place of `old` wherever the package names it; gives what undoes it."""
    undo = []
    for module in list(sys.modules.values()):
        if module is None or not module.__name__.startswith("spark_pages"):
            continue
        for name, value in list(vars(module).items()):
            if value is old:
                undo.append((module, name, value))
                setattr(module, name, new)
    return undo


def put_back(undo: list[tuple[Any, str, Any]]) -> None:
    """Undo `swap`."""
    for module, name, value in reversed(undo):
        setattr(module, name, value)


@contextmanager
def values(remember: bool = True) -> Iterator[None]:
    """Inside, the log holds values; with `remember` False replay is done each time."""
    forget()
    undo: list[tuple[Any, str, Any]] = [(checkpoint, "LruCache", checkpoint.LruCache)]
    checkpoint.LruCache = _LightCache  # type: ignore[assignment,misc]
    for old, new in (codecs() | (remembering() if remember else {})).items():
        undo += swap(old, new)
    try:
        yield
    finally:
        put_back(undo)
        forget()
