"""The tables of namespace ``system``: what table 0 says of one version, as ordinary tables.

Rows are those of table 0 that are true at the version (no `deleted_by`). A column is made when it is read,
from the columns of table 0 that it needs, as pages in memory: so each of these tables is read, scanned,
filtered and aggregated by the same code as any other. ``system.catalog`` is table 0 itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.catalog.namespaces import BUILT_INS
from spark_pages.io import Codec, encode_page, page_stats
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.chain import ChainKey, ColumnChain, LazyRun
from spark_pages.model.ids import TableId
from spark_pages.model.page import PageKind
from spark_pages.model.run import NewPage, PageRun, page_batches
from spark_pages.model.table import BUILT_IN, SYSTEM_NAMESPACE, TableDefinition, with_field_ids
from spark_pages.tables.table import Table

_PAGE_ROWS = 4096
_FIRST_ID = -100
_MAP = pa.map_(pa.string(), pa.string())
_TIME = pa.timestamp("us", tz="UTC")

Make = Callable[["CatalogRows"], pa.Array]
"""Makes a column of the rows."""


class CatalogRows:
    """The rows of table 0 of one kind that are true at a version; each column is read when it is asked for.

    Parameters
    ----------
    zero
        Table 0 as of the version.
    log
        The version.
    kind
        Kind of the rows.
    """

    def __init__(self, zero: Table, log: LogSnapshot, kind: str) -> None:
        self._zero = zero
        self.log = log
        self._kind = kind

    def of(self, kind: str) -> CatalogRows:
        """The rows of another kind at the same version."""
        return CatalogRows(self._zero, self.log, kind)

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """Their row numbers in table 0."""
        found = self._zero.read(["row_id"], filter=[("kind", "==", self._kind), ("deleted_by", "is null")])
        numbers: NDArray[np.int64] = found.column(0).to_numpy()
        return numbers

    def __len__(self) -> int:
        """How many rows that are."""
        return len(self.numbers)

    def column(self, name: str) -> pa.Array:
        """A column of table 0."""
        whole = self._zero.take(self.numbers, [name]).column(0)
        return pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)

    @cached_property
    def told(self) -> tuple[list[dict[str, Any]], NDArray[np.int64]]:
        """The different values of ``metadata``, and which of them each row has."""
        encoded = self.column("metadata").dictionary_encode()
        return [json.loads(text) for text in encoded.dictionary.to_pylist()], encoded.indices.to_numpy()

    def from_told(self, kind: pa.DataType, make: Callable[[dict[str, Any]], Any]) -> pa.Array:
        """A column out of ``metadata``, each different value of which is looked at once."""
        told, indices = self.told
        values = pa.array([make(each) for each in told], kind)
        return values.take(pa.array(indices))

    @cached_property
    def tables(self) -> pa.Table:
        """Id, namespace and name of each table."""
        tables = self.of("table")
        return pa.table([tables.column("table_id"), _namespaces(tables), tables.column("name")], _NAMED)

    def of_table(self, what: str) -> pa.Array:
        """Namespace or name of the table of each row."""
        places = pc.index_in(self.column("table_id"), value_set=self.tables.column("table_id"))
        return _one(self.tables.column(what).take(places))


_NAMED = ["table_id", "namespace", "name"]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _namespaces(rows: CatalogRows) -> pa.Array:
    """Names of the namespaces of tables."""
    names = {number: name for name, number in BUILT_IN.items()}
    numbers = rows.column("namespace_id").dictionary_encode()
    made = rows.of("namespace")
    if len(made):
        names |= dict(zip(made.column("table_id").to_pylist(), made.column("name").to_pylist(), strict=True))
    told = pa.array([names.get(number, "") for number in numbers.dictionary.to_pylist()], pa.string())
    return told.take(numbers.indices)


def _plain(name: str, rows: CatalogRows) -> pa.Array:
    return rows.column(name)


def _text(key: str, rows: CatalogRows) -> pa.Array:
    return rows.from_told(pa.string(), lambda told: told.get(key))


def _properties(rows: CatalogRows) -> pa.Array:
    return rows.from_told(_MAP, lambda told: sorted((told.get("properties") or {}).items()))


def _columns(rows: CatalogRows) -> pa.Array:
    """How many columns each table has."""
    counts = rows.of("column").column("table_id").value_counts()
    places = pc.index_in(rows.column("table_id"), value_set=counts.field("values"))
    return counts.field("counts").take(places).cast(pa.int32())


def _row_counts(rows: CatalogRows) -> pa.Array:
    """Rows of each table, by its chains: the shortest where columns may differ."""
    columns = rows.of("column")
    fields: dict[int, list[int]] = {}
    pairs = zip(columns.column("table_id").to_pylist(), columns.column("field_id").to_pylist(), strict=True)
    for table_id, field_id in pairs:
        fields.setdefault(table_id, []).append(field_id)
    log, told = rows.log, rows.from_told(pa.bool_(), lambda each: each["aligned"]).to_pylist()
    counts = []
    for table_id, aligned in zip(rows.column("table_id").to_pylist(), told, strict=True):
        chosen = fields[table_id][:1] if aligned else fields[table_id]
        counts.append(min(log.chain((table_id, field_id)).num_rows for field_id in chosen))
    return pa.array(counts, pa.int64())


def _positions(rows: CatalogRows) -> pa.Array:
    """Places of columns in their tables: they stand in table 0 in that order."""
    ids = rows.column("table_id").to_numpy()
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])) if len(ids) else np.zeros(0, np.int64)
    lengths = np.diff(np.append(starts, len(ids)))
    return pa.array((np.arange(len(ids)) - np.repeat(starts, lengths)).astype(np.int32))


def _column_types(rows: CatalogRows) -> pa.Array:
    """Types in words; rows of earlier releases hold them in their schema alone."""
    told = rows.from_told(pa.string(), lambda each: each.get("type"))
    if not told.null_count:
        return told
    schemas = rows.column("arrow_schema").to_pylist()
    words = [
        known if known is not None else str(pa.ipc.read_schema(pa.py_buffer(schema)).field(0).type)
        for known, schema in zip(told.to_pylist(), schemas, strict=True)
    ]
    return pa.array(words, pa.string())


def _from_definition(kind: pa.DataType, make: Callable[[pa.Field], Any], rows: CatalogRows) -> pa.Array:
    fields = [
        pa.ipc.read_schema(pa.py_buffer(each)).field(0) for each in rows.column("arrow_schema").to_pylist()
    ]
    return pa.array([make(field) for field in fields], kind)


@dataclass(frozen=True, slots=True)
class _Layout:
    """One of the tables: kind of its rows, and how each column is made."""

    kind: str
    columns: Mapping[str, tuple[pa.DataType, Make]]


def _told_names(key: str, rows: CatalogRows) -> pa.Array:
    """Names of the columns that constraints are about, out of their ids."""
    columns = rows.of("column")
    names = {
        (table_id, field_id): name
        for table_id, field_id, name in zip(
            *(columns.column(each).to_pylist() for each in ("table_id", "field_id", "name")), strict=True
        )
    }
    told, indices = rows.told
    made = []
    for index, table_id in zip(indices.tolist(), rows.column("table_id").to_pylist(), strict=True):
        of = told[index].get("table_id", table_id) if key == "fields_there" else table_id
        ids = told[index].get(key)
        made.append(None if ids is None else [names.get((of, field_id), "") for field_id in ids])
    return pa.array(made, pa.list_(pa.string()))


def _base_types(field: pa.Field) -> str:
    from_type = (field.metadata or {}).get(b"spark_pages.type")
    return from_type.decode() if from_type else str(field.type)


def _checks(field: pa.Field) -> list[str]:
    told = json.loads((field.metadata or {}).get(b"spark_pages.checks", b"[]"))
    return [sql for _, sql in told]


_NAME = (pa.string(), partial(_plain, "name"))
_MADE = {
    "created_by": (pa.int64(), partial(_plain, "created_by")),
    "created_at": (_TIME, partial(_plain, "created_at")),
}
_LAYOUTS: Mapping[str, _Layout] = {
    "tables": _Layout(
        "table",
        {
            "table_id": (pa.int64(), partial(_plain, "table_id")),
            "namespace": (pa.string(), _namespaces),
            "name": _NAME,
            "columns": (pa.int32(), _columns),
            "row_count": (pa.int64(), _row_counts),
            "aligned": (pa.bool_(), lambda rows: rows.from_told(pa.bool_(), lambda told: told["aligned"])),
            "comment": (pa.string(), partial(_text, "comment")),
            "properties": (_MAP, _properties),
            **_MADE,
        },
    ),
    "columns": _Layout(
        "column",
        {
            "table_id": (pa.int64(), partial(_plain, "table_id")),
            "namespace": (pa.string(), lambda rows: rows.of_table("namespace")),
            "table": (pa.string(), lambda rows: rows.of_table("name")),
            "field_id": (pa.int32(), partial(_plain, "field_id")),
            "name": _NAME,
            "position": (pa.int32(), _positions),
            "type": (pa.string(), _column_types),
            "nullable": (pa.bool_(), partial(_plain, "nullable")),
            "alias": (pa.string(), partial(_text, "alias")),
            "comment": (pa.string(), partial(_text, "comment")),
            "properties": (_MAP, _properties),
            "created_by": (pa.int64(), partial(_plain, "created_by")),
        },
    ),
    "types": _Layout(
        "type",
        {
            "type_id": (pa.int64(), partial(_plain, "table_id")),
            "name": _NAME,
            "base": (pa.string(), partial(_from_definition, pa.string(), _base_types)),
            "type": (pa.string(), partial(_from_definition, pa.string(), lambda field: str(field.type))),
            "not_null": (pa.bool_(), partial(_from_definition, pa.bool_(), lambda field: not field.nullable)),
            "checks": (pa.list_(pa.string()), partial(_from_definition, pa.list_(pa.string()), _checks)),
            **_MADE,
        },
    ),
    "constraints": _Layout(
        "constraint",
        {
            "table_id": (pa.int64(), partial(_plain, "table_id")),
            "namespace": (pa.string(), lambda rows: rows.of_table("namespace")),
            "table": (pa.string(), lambda rows: rows.of_table("name")),
            "name": _NAME,
            "kind": (pa.string(), partial(_text, "kind")),
            "columns": (pa.list_(pa.string()), partial(_told_names, "fields")),
            "check": (pa.string(), partial(_text, "sql")),
            "references": (pa.string(), partial(_text, "table")),
            "columns_there": (pa.list_(pa.string()), partial(_told_names, "fields_there")),
            "created_by": (pa.int64(), partial(_plain, "created_by")),
        },
    ),
    "namespaces": _Layout(
        "namespace",
        {
            "namespace_id": (pa.int64(), partial(_plain, "table_id")),
            "name": _NAME,
            "properties": (_MAP, _properties),
            **_MADE,
        },
    ),
}
_BUILT_IN_ROWS: Mapping[str, list[Any]] = {
    "namespace_id": [each.namespace_id for each in BUILT_INS],
    "name": [each.name for each in BUILT_INS],
    "properties": [[] for _ in BUILT_INS],
    "created_by": [None for _ in BUILT_INS],
    "created_at": [None for _ in BUILT_INS],
}

SYSTEM_TABLES = tuple(_LAYOUTS)
"""Names of the tables that show what table 0 says."""


def system_table(name: str, zero: Table, log: LogSnapshot, make: Callable[..., Table]) -> Table:
    """One of the tables as of a version.

    Parameters
    ----------
    zero, log
        Table 0, and the version.
    make
        Makes a table of a definition and the snapshot that has its chains.

    Notes
    -----
    Reads which rows of table 0 are true, and then what the columns asked for need. ``row_count`` asks the
    chain of each table how long it is.
    """
    layout = _LAYOUTS[name]
    rows = CatalogRows(zero, log, layout.kind)
    more = _BUILT_IN_ROWS if name == "namespaces" else {}
    schema = pa.schema([pa.field(column, kind) for column, (kind, _) in layout.columns.items()])
    definition = TableDefinition(
        TableId(_FIRST_ID - SYSTEM_TABLES.index(name)),
        name,
        with_field_ids(schema),
        len(schema) + 1,
        SYSTEM_NAMESPACE,
    )
    count = len(rows) + len(more.get("name", ()))
    chains: dict[ChainKey, ColumnChain] = {}
    for column, field_id in definition.field_ids.items():
        kind, build = layout.columns[column]
        expand = partial(_pages, rows, kind, build, more.get(column, []), field_id)
        pages = -(-count // _PAGE_ROWS)
        chains[definition.table_id, field_id] = ColumnChain([LazyRun(pages, count, expand)] if count else [])
    return make(definition, _Chains(log, chains))


class _Chains(LogSnapshot):
    """A version of the log, in which a table that is not in storage has chains."""

    def __init__(self, log: LogSnapshot, chains: Mapping[ChainKey, ColumnChain]) -> None:
        super().__init__(log.state, log.checkpoint)
        self._made = chains

    def chain(self, key: ChainKey) -> ColumnChain:
        """The chain of a column."""
        return self._made[key]


def _pages(
    rows: CatalogRows, kind: pa.DataType, build: Make, before: Sequence[Any], field_id: int
) -> list[PageRun]:
    """The pages of one column."""
    values = build(rows) if len(rows) else pa.array([], kind)
    if before:
        values = pa.concat_arrays([pa.array(before, kind), values.cast(kind)])
    made = []
    for start in range(0, len(values), _PAGE_ROWS):
        page = values.slice(start, _PAGE_ROWS)
        encoded = encode_page(page, codec=Codec.NONE)
        made.append(
            NewPage(
                len(page), len(page), PageKind.INLINE, None, 0, 0, encoded.actual_len, encoded.checksum,
                bytes(encoded.data), page_stats(page),
            )
        )  # fmt: skip
    pages, stats = page_batches(made)
    ids = pa.array((np.arange(len(made)) + (field_id << 32)).astype(np.int64))
    return [PageRun(pages.set_column(0, pages.schema.field(0), ids), lambda: stats)]
