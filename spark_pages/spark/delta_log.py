"""Write a Delta log over any store: commits of added and removed files. No pyspark, no Delta library.

A Delta table is a folder of Parquet files and a log, ``_delta_log/``. `DeltaLog.commit` appends one entry to
it, which names files that are there; nothing is copied. What others may do to the table is said by its
protocol: a table that is *guarded* asks writers for a feature that no client has (`GUARD`), so that clients
read it, and refuse to write, optimise or vacuum it. Some clients write checkpoints of the Delta log all the
same, and delete the commits before them; what the table is, its *opening* (protocol and metadata), is carried
on from wherever it is found. Source: the Delta transaction log protocol, version 3/7.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_pages.errors import (
    CommitConflictError,
    DamageError,
    InternalError,
    ObjectNotFoundError,
    StorageError,
)
from spark_pages.runtime import Runtime
from spark_pages.storage.store import Created, ObjectStore

GUARD = "spark_pages-published"
"""A writer feature that only this project has."""

CHECKPOINT_COMMITS = 32
"""A checkpoint of the Delta log after so many of its commits, so that readers need not read them all."""

PlanFiles = Callable[["DeltaState"], tuple[Sequence["DeltaFile"], Sequence[str]]]
"""Gives, on top of a state, the files to add and the paths to remove."""

_CONFIGURATION = {"delta.appendOnly": "true", "delta.enableExpiredLogCleanup": "false"}
_KEPT = dict.fromkeys(
    ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration"), "interval 36500 days"
)
"""Of guarded tables, where vacuum says how long versions stay. Else deltalake deletes Delta commits of 30
days where it is told to clean up, and delta-spark refuses to read versions of more than a week.
"""
_NAME = re.compile(r"(\d{20})\.(json|checkpoint\.parquet)")
_TRIES = 8
_TYPES = {
    pa.int64(): "long",
    pa.int32(): "integer",
    pa.int16(): "short",
    pa.int8(): "byte",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.float64(): "double",
    pa.timestamp("us", tz="UTC"): "timestamp",
}


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """A Parquet file of the table.

    Attributes
    ----------
    path
        Its name in the folder of the table.
    size_bytes, num_rows
        How large it is.
    modified_ms
        When it was written, in milliseconds since the epoch.
    """

    path: str
    size_bytes: int
    num_rows: int
    modified_ms: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class DeltaState:
    """What the log says at its newest version.

    Attributes
    ----------
    version
        The newest version; -1 before there is a log.
    published
        What the newest commit stood for (``txn``): a version of the store; -1 where nothing was published.
    files
        The files of the table by path.
    protocol, metadata
        What the table is, as the newest commit or checkpoint that tells it has it; None where none does.
    """

    version: int = -1
    published: int = -1
    files: Mapping[str, DeltaFile] | None = None
    protocol: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """What a Delta table is, which never changes.

    Attributes
    ----------
    root
        Folder of the table in the store, ending in a slash.
    name, description, schema
        For those who read it.
    app_id
        Under which the commits are counted.
    guarded
        Whether no one but this project may write to it.
    """

    root: str
    name: str
    description: str
    schema: pa.Schema
    app_id: str
    guarded: bool


class DeltaLog:
    """The log of one Delta table in a store.

    Parameters
    ----------
    objects, runtime
        Where it is kept; clock and ids.
    table
        The table.
    """

    def __init__(self, objects: ObjectStore, runtime: Runtime, table: DeltaTable) -> None:
        self._objects = objects
        self._runtime = runtime
        self.table = table
        self._folder = f"{table.root}_delta_log/"

    def state(self) -> DeltaState:
        """Read the current state of the log.

        Notes
        -----
        Reads the hint, the newest checkpoint of the Delta log and the commits after it, by name. Lists the
        folder only where neither a hint nor a first commit is there: the table is new, or its beginning was
        cleaned away.
        """
        state = self._apply_commits(self._from_hint())
        return state if state.version >= 0 else self._apply_commits(self._from_listing())

    def commit(self, published: int, plan: PlanFiles) -> int:
        """Publish a version of the store by one commit, and return the bytes written.

        Parameters
        ----------
        published
            That version. Where the log holds it, or a newer one, nothing is done but for what follows.
        plan
            Gives the files to add and the paths to remove on top of a state; asked again where another
            process was quicker.

        Raises
        ------
        CommitConflictError
            If other processes kept being quicker.

        Notes
        -----
        A log that does not tell any more what the table is, or whose guard is gone, gets both anew, and a
        checkpoint at once: nobody can read the versions before it, and everybody those from it on.
        """
        for _ in range(_TRIES):
            state = self.state()
            whole, behind = self._is_whole(state), state.published < published
            if whole and not behind:
                return 0
            adds, removes = plan(state) if behind else ((), ())
            token = self._runtime.token()
            actions = self._actions(state, max(published, state.published), adds, removes, token)
            data = b"".join(_line(action) for action in actions)
            if self._create(state.version + 1, data, token):
                made = self._replayed(state, state.version + 1, actions)
                renewed = state.version >= 0 and not whole
                due = renewed or not (made.version + 1) % CHECKPOINT_COMMITS
                return len(data) + (self._write_checkpoint(made) if due else 0)
        raise CommitConflictError(
            f"Cannot publish version {published} to {self.table.root}: other processes published "
            f"meanwhile, {_TRIES} times.",
            hint="Run `spark-pages publish-delta` again.",
        )

    # reading

    def _is_whole(self, state: DeltaState) -> bool:
        """Whether readers find what the table is, and writers the guard that it ought to have."""
        if state.protocol is None or state.metadata is None:
            return False
        return not self.table.guarded or GUARD in state.protocol.get("writerFeatures", ())

    def _read(self, version: int) -> list[dict[str, Any]] | None:
        key = self._key(version)
        try:
            data = self._objects.get(key)
        except ObjectNotFoundError:
            return None
        try:
            return [json.loads(line) for line in data.splitlines() if line.strip()]
        except ValueError as error:
            raise DamageError(
                f"Cannot read {key}: it is not a commit of a Delta table: {error}.", key=key
            ) from error

    def _apply_commits(self, state: DeltaState) -> DeltaState:
        """Return the state after all later commits."""
        version, followed = state.version, list[dict[str, Any]]()
        while (actions := self._read(version + 1)) is not None:
            version += 1
            followed += actions
        return self._replayed(state, version, followed)

    def _replayed(self, state: DeltaState, version: int, actions: Iterable[Mapping[str, Any]]) -> DeltaState:
        """Return the state at a later version, after these actions."""
        files, published = dict(state.files or {}), state.published
        protocol, metadata = state.protocol, state.metadata
        for action in actions:
            if add := action.get("add"):
                stats = json.loads(add.get("stats") or "{}")
                files[add["path"]] = DeltaFile(
                    add["path"], add["size"], stats.get("numRecords", 0), add["modificationTime"]
                )
            if remove := action.get("remove"):
                files.pop(remove["path"], None)
            if (txn := action.get("txn")) and txn["appId"] == self.table.app_id:
                published = int(txn["version"])
            protocol = action.get("protocol", protocol)
            metadata = action.get("metaData", metadata)
        return DeltaState(version, published, files, protocol, metadata)

    def _from_hint(self) -> DeltaState:
        """Read the checkpoint that the hint names; an empty state if it cannot be read."""
        try:
            version = int(json.loads(self._objects.get(f"{self._folder}_last_checkpoint"))["version"])
        except (ObjectNotFoundError, KeyError, TypeError, ValueError):
            return DeltaState(files={})
        return self._from_checkpoint(version) or DeltaState(files={})

    def _from_listing(self) -> DeltaState:
        """Read the newest readable checkpoint; if there is none, only the newest version is known."""
        states = (self._from_checkpoint(version) for version in self._checkpoints())
        return next(filter(None, states), None) or DeltaState(max((v for v, _ in self._listed()), default=-1))

    def _from_checkpoint(self, version: int) -> DeltaState | None:
        try:
            data = self._objects.get(f"{self._folder}{version:020d}.checkpoint.parquet")
            return self._replayed(DeltaState(), version, decode_checkpoint(data))
        except (ObjectNotFoundError, pa.ArrowException, KeyError, OSError, TypeError, ValueError):
            return None

    def _checkpoints(self) -> list[int]:
        """Versions that have a checkpoint, newest first."""
        return sorted((version for version, kind in self._listed() if kind != "json"), reverse=True)

    def _listed(self) -> list[tuple[int, str]]:
        """Version and kind of every commit and checkpoint in the folder."""
        names = (info.key.removeprefix(self._folder) for info in self._objects.list(self._folder))
        return [(int(found[1]), found[2]) for name in names if (found := _NAME.fullmatch(name))]

    # writing

    def _key(self, version: int) -> str:
        return f"{self._folder}{version:020d}.json"

    def _create(self, version: int, data: bytes, token: str) -> bool:
        """Whether this commit has the version: storage says so, or what is there bears our token."""
        if isinstance(self._objects.create(self._key(version), data), Created):
            return True
        found = self._read(version)
        if found is None:  # in doubt: putting the same bytes again settles it
            self._objects.create(self._key(version), data)
            found = self._read(version)
        if found is None:
            raise StorageError(
                f"Cannot publish {self._key(version)}: it could neither be created nor read.",
                hint="Run `spark-pages publish-delta` again.",
            )
        return any(action.get("commitInfo", {}).get("txnId") == token for action in found)

    def _actions(
        self, state: DeltaState, published: int, adds: Sequence[DeltaFile], removes: Sequence[str], token: str
    ) -> list[dict[str, Any]]:
        now_ms = self._runtime.now_us() // 1000
        actions: list[dict[str, Any]] = [
            {
                "commitInfo": {
                    "timestamp": now_ms,
                    "operation": "PUBLISH",
                    "operationParameters": {"version": str(published)},
                    "engineInfo": "spark_pages",
                    "txnId": token,
                    "isBlindAppend": not removes,
                }
            }
        ]
        if not self._is_whole(state):
            actions += self._opening(state, now_ms)
        actions.append({"txn": {"appId": self.table.app_id, "version": published, "lastUpdated": now_ms}})
        actions += [
            {"remove": {"path": path, "deletionTimestamp": now_ms, "dataChange": True}} for path in removes
        ]
        actions += [{"add": _add(replace(file, modified_ms=file.modified_ms or now_ms))} for file in adds]
        return actions

    def _opening(self, state: DeltaState, now_ms: int) -> list[dict[str, Any]]:
        """Return the actions that define the table; its id stays if any metadata can be found."""
        metadata = state.metadata
        if metadata is None and state.version >= 0:
            older = (self._from_checkpoint(version) for version in self._checkpoints())
            metadata = next((each.metadata for each in older if each and each.metadata), None)
        features = ["appendOnly", GUARD] if self.table.guarded else ["appendOnly"]
        return [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}},
            {"metaData": metadata or self._metadata(now_ms)},
        ]

    def _metadata(self, now_ms: int) -> dict[str, Any]:
        fields = [
            {"name": field.name, "type": _delta_type(field.type), "nullable": True, "metadata": {}}
            for field in self.table.schema
        ]
        token = self._runtime.token()
        return {
            "id": "-".join((token[:8], token[8:12], token[12:16], token[16:20], token[20:])),
            "name": self.table.name,
            "description": self.table.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [],
            "configuration": {**_CONFIGURATION, **(_KEPT if self.table.guarded else {})},
            "createdTime": now_ms,
        }

    def _write_checkpoint(self, state: DeltaState) -> int:
        """Write a checkpoint of the Delta log at this version, and return its bytes.

        A crash before it costs readers time only.
        """
        if not self._is_whole(state):
            raise InternalError(
                f"Cannot write a checkpoint of {self.table.root}: its Delta log does not say what the "
                "table is."
            )
        actions: list[dict[str, Any]] = [
            {"protocol": state.protocol},
            {"metaData": state.metadata},
            {"txn": {"appId": self.table.app_id, "version": state.published, "lastUpdated": None}},
            *({"add": _add(file)} for file in (state.files or {}).values()),
        ]
        data = encode_checkpoint(actions)
        self._objects.put(f"{self._folder}{state.version:020d}.checkpoint.parquet", data)
        hint = {"version": state.version, "size": len(actions)}
        self._objects.put(f"{self._folder}_last_checkpoint", json.dumps(hint).encode())
        return len(data)


def _delta_type(kind: pa.DataType) -> str | dict[str, Any]:
    """Return a type as a Delta schema writes it."""
    if pa.types.is_map(kind):
        key, value = _delta_type(kind.key_type), _delta_type(kind.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return _TYPES[kind]


def _line(action: Mapping[str, Any]) -> bytes:
    return json.dumps(action, separators=(",", ":")).encode() + b"\n"


def _add(file: DeltaFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "partitionValues": {},
        "size": file.size_bytes,
        "modificationTime": file.modified_ms,
        "dataChange": True,
        "stats": json.dumps({"numRecords": file.num_rows}),
    }


# Checkpoints of a Delta log as bytes: all that holds at a version, one action a row. Pure.
#
# Source: the Delta transaction log protocol, "Checkpoints". What clients write there besides (statistics as
# columns, tombstones, deletion vectors) is read over: no table of ours has any.

_TEXTS = pa.map_(pa.string(), pa.string())
_SCHEMA = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                ]
            ),
        ),
        (
            "remove",
            pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())]),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _TEXTS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.string())),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
    ]
)


def encode_checkpoint(actions: Sequence[Mapping[str, Any]]) -> bytes:
    """Encode the checkpoint as Parquet.

    Parameters
    ----------
    actions
        As JSON has them; what is not in the schema of a checkpoint is left out.
    """
    table = pa.Table.from_pylist([_as_row(action) for action in actions], schema=_SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="snappy")
    return bytes(sink.getvalue())


def decode_checkpoint(data: bytes) -> list[dict[str, Any]]:
    """Its actions as JSON would have them: maps as objects, and nothing that is null.

    Raises
    ------
    ArrowException, KeyError, ValueError
        If this is no checkpoint, or one whose actions are in other files.
    """
    rows = pq.read_table(pa.BufferReader(data)).to_pylist(maps_as_pydicts="strict")
    actions = [_without_nulls(row) for row in rows]
    if any("sidecar" in action for action in actions):
        raise ValueError("A checkpoint with sidecars.")
    return actions


def _without_nulls(row: Mapping[str, Any]) -> dict[str, Any]:
    """Drop null values, which JSON omits."""
    return {
        name: _without_nulls(value) if isinstance(value, Mapping) else value
        for name, value in row.items()
        if value is not None
    }


def _as_row(action: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the maps of an action to Arrow's form."""
    made = {name: action.get(name) for name in _SCHEMA.names}
    if meta := made["metaData"]:
        form = {**meta["format"], "options": [*meta["format"].get("options", {}).items()]}
        made["metaData"] = {**meta, "format": form, "configuration": [*meta.get("configuration", {}).items()]}
    if add := made["add"]:
        made["add"] = {**add, "partitionValues": [*add["partitionValues"].items()]}
    return made
