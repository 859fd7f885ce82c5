"""A Delta log that we keep ourselves, over any store: commits of file additions and removals. No pyspark, no
Delta library.

A Delta table is a folder of Parquet files and a log, ``_delta_log/``. `DeltaLog.commit` appends one entry to
it, which names files that are there; nothing is copied. What others may do to the table is said by its
protocol: a table that is *guarded* asks writers for a feature that no client has (`GUARD`), so that clients
read it, and refuse to write, optimise or vacuum it. Source: the Delta transaction log protocol, version 3/7.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_pages.errors import CommitConflictError, DamageError, ObjectNotFoundError, StorageError
from spark_pages.runtime import Runtime
from spark_pages.storage.store import Created, ObjectStore

GUARD = "spark_pages-published"
"""A writer feature that only this project has."""

CHECKPOINT_COMMITS = 32
"""A checkpoint of the Delta log after so many of its commits, so that readers need not read them all."""

PlanFiles = Callable[["DeltaState"], tuple[Sequence["DeltaFile"], Sequence[str]]]
"""Gives, on top of a state, the files to add and the paths to remove."""

_CONFIGURATION = {"delta.appendOnly": "true", "delta.enableExpiredLogCleanup": "false"}
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
    """

    version: int = -1
    published: int = -1
    files: Mapping[str, DeltaFile] | None = None


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

    def state(self) -> DeltaState:
        """What the log says now.

        Notes
        -----
        Reads the hint, the newest checkpoint of the Delta log and the commits after it, by name.
        """
        state = self._from_checkpoint()
        files = dict(state.files or {})
        version, published = state.version, state.published
        while (actions := self._read(version + 1)) is not None:
            version += 1
            for action in actions:
                published = self._apply(action, files, published)
        return DeltaState(version, published, files)

    def commit(self, published: int, plan: PlanFiles) -> int:
        """The table shows what a version of the store is, by one commit; gives the bytes written.

        Parameters
        ----------
        published
            That version. Where the log holds it, or a newer one, nothing is done.
        plan
            Gives the files to add and the paths to remove on top of a state; asked again where another
            process was quicker.

        Raises
        ------
        CommitConflictError
            If other processes kept being quicker.
        """
        for _ in range(_TRIES):
            state = self.state()
            if state.published >= published:
                return 0
            adds, removes = plan(state)
            token = self._runtime.token()
            data = self._encode(state, published, adds, removes, token)
            if self._create(state.version + 1, data, token):
                return len(data) + self._after(state.version + 1)
        raise CommitConflictError(
            f"Version {published} could not be published to {self.table.root}: other processes published "
            f"meanwhile, {_TRIES} times.",
            hint="Run it again.",
        )

    # reading

    def _read(self, version: int) -> list[dict[str, Any]] | None:
        key = self._key(version)
        try:
            data = self._objects.get(key)
        except ObjectNotFoundError:
            return None
        try:
            return [json.loads(line) for line in data.splitlines() if line.strip()]
        except ValueError as error:
            raise DamageError(f"{key} is not a commit of a Delta table: {error}", key=key) from error

    def _apply(self, action: Mapping[str, Any], files: dict[str, DeltaFile], published: int) -> int:
        if add := action.get("add"):
            stats = json.loads(add.get("stats") or "{}")
            files[add["path"]] = DeltaFile(
                add["path"], add["size"], stats.get("numRecords", 0), add["modificationTime"]
            )
        if remove := action.get("remove"):
            files.pop(remove["path"], None)
        txn = action.get("txn")
        return int(txn["version"]) if txn and txn["appId"] == self.table.app_id else published

    def _from_checkpoint(self) -> DeltaState:
        """What the newest checkpoint says; nothing where there is none that can be read."""
        try:
            hint = json.loads(self._objects.get(f"{self.table.root}_delta_log/_last_checkpoint"))
            version = int(hint["version"])
            data = self._objects.get(f"{self.table.root}_delta_log/{version:020d}.checkpoint.parquet")
            rows = pq.read_table(pa.BufferReader(data)).to_pylist()
        except (ObjectNotFoundError, pa.ArrowException, KeyError, OSError, TypeError, ValueError):
            return DeltaState(files={})
        files: dict[str, DeltaFile] = {}
        published = -1
        for row in rows:
            published = self._apply(row, files, published)
        return DeltaState(version, published, files)

    # writing

    def _key(self, version: int) -> str:
        return f"{self.table.root}_delta_log/{version:020d}.json"

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
                f"{self._key(version)} could neither be created nor read.", hint="Run it again."
            )
        return any(action.get("commitInfo", {}).get("txnId") == token for action in found)

    def _encode(
        self, state: DeltaState, published: int, adds: Sequence[DeltaFile], removes: Sequence[str], token: str
    ) -> bytes:
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
        if state.version < 0:
            actions += self._opening(now_ms)
        actions.append({"txn": {"appId": self.table.app_id, "version": published, "lastUpdated": now_ms}})
        actions += [
            {"remove": {"path": path, "deletionTimestamp": now_ms, "dataChange": True}} for path in removes
        ]
        actions += [{"add": _add(replace(file, modified_ms=file.modified_ms or now_ms))} for file in adds]
        return b"".join(json.dumps(action, separators=(",", ":")).encode() + b"\n" for action in actions)

    def _opening(self, now_ms: int) -> list[dict[str, Any]]:
        features = ["appendOnly", GUARD] if self.table.guarded else ["appendOnly"]
        fields = [
            {"name": field.name, "type": _TYPES[field.type], "nullable": True, "metadata": {}}
            for field in self.table.schema
        ]
        token = self._runtime.token()
        return [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}},
            {
                "metaData": {
                    "id": "-".join((token[:8], token[8:12], token[12:16], token[16:20], token[20:])),
                    "name": self.table.name,
                    "description": self.table.description,
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps({"type": "struct", "fields": fields}),
                    "partitionColumns": [],
                    "configuration": _CONFIGURATION,
                    "createdTime": now_ms,
                }
            },
        ]

    def _after(self, version: int) -> int:
        """A checkpoint of the Delta log where one is due; gives its bytes. A crash before it costs readers
        time.
        """
        if (version + 1) % CHECKPOINT_COMMITS:
            return 0
        state = self.state()
        opening = [action for action in self._opening_of() if action]
        rows = [
            *opening,
            {"txn": {"appId": self.table.app_id, "version": state.published, "lastUpdated": None}},
            *({"add": _add(file)} for file in (state.files or {}).values()),
        ]
        table = pa.Table.from_pylist([_whole(row) for row in rows], schema=_CHECKPOINT)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="snappy")
        data = sink.getvalue().to_pybytes()
        folder = f"{self.table.root}_delta_log/"
        self._objects.put(f"{folder}{state.version:020d}.checkpoint.parquet", data)
        hint = {"version": state.version, "size": len(rows)}
        self._objects.put(f"{folder}_last_checkpoint", json.dumps(hint).encode())
        return len(data)

    def _opening_of(self) -> Iterator[dict[str, Any]]:
        """Protocol and metadata as the first commit has them; nobody else may change them."""
        for action in self._read(0) or ():
            if "protocol" in action or "metaData" in action:
                yield action


def _add(file: DeltaFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "partitionValues": {},
        "size": file.size_bytes,
        "modificationTime": file.modified_ms,
        "dataChange": True,
        "stats": json.dumps({"numRecords": file.num_rows}),
    }


_TEXTS = pa.map_(pa.string(), pa.string())
_CHECKPOINT = pa.schema(
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
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
    ]
)


def _whole(row: Mapping[str, Any]) -> dict[str, Any]:
    """The action with maps in the form that Arrow takes."""
    made = {name: row.get(name) for name in _CHECKPOINT.names}
    if meta := made["metaData"]:
        form = {**meta["format"], "options": [*meta["format"]["options"].items()]}
        made["metaData"] = {**meta, "format": form, "configuration": [*meta["configuration"].items()]}
    if add := made["add"]:
        made["add"] = {**add, "partitionValues": [*add["partitionValues"].items()]}
    return made
