"""What the tables of namespace ``system`` show: how each of their columns is made of columns of table 0."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.arrow.stored_types import schema_from_bytes
from spark_pages.catalog.namespaces import BUILT_INS
from spark_pages.query.catalog_rows import CatalogRows

_MAP = pa.map_(pa.string(), pa.string())
_TIME = pa.timestamp("us", tz="UTC")

Make = Callable[[CatalogRows], pa.Array]
"""Makes a column of the rows."""


def _plain(name: str, rows: CatalogRows) -> pa.Array:
    return rows.column(name)


def _text(key: str, rows: CatalogRows) -> pa.Array:
    return rows.from_metadata(pa.string(), lambda told: told.get(key))


def _properties(rows: CatalogRows) -> pa.Array:
    return rows.from_metadata(_MAP, lambda told: sorted((told.get("properties") or {}).items()))


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
    told = rows.from_metadata(pa.bool_(), lambda each: each["aligned"]).to_pylist()
    counts = []
    for table_id, aligned in zip(rows.column("table_id").to_pylist(), told, strict=True):
        chosen = fields[table_id][:1] if aligned else fields[table_id]
        counts.append(rows.num_rows_of(table_id, chosen))
    return pa.array(counts, pa.int64())


def _positions(rows: CatalogRows) -> pa.Array:
    """Places of columns in their tables: they stand in table 0 in that order."""
    all_of_them = rows.of("column")
    ids = all_of_them.column("table_id").to_numpy()
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])) if len(ids) else np.zeros(0, np.int64)
    lengths = np.diff(np.append(starts, len(ids)))
    places = np.arange(len(ids)) - np.repeat(starts, lengths)
    return pa.array(places[np.searchsorted(all_of_them.numbers, rows.numbers)].astype(np.int32))


def _column_types(rows: CatalogRows) -> pa.Array:
    """Types in words; rows of earlier releases hold them in their schema alone."""
    told = rows.from_metadata(pa.string(), lambda each: each.get("type"))
    if not told.null_count:
        return told
    schemas = rows.column("arrow_schema").to_pylist()
    words = [
        known if known is not None else str(schema_from_bytes(schema).field(0).type)
        for known, schema in zip(told.to_pylist(), schemas, strict=True)
    ]
    return pa.array(words, pa.string())


def _from_definition(kind: pa.DataType, make: Callable[[pa.Field], Any], rows: CatalogRows) -> pa.Array:
    fields = [schema_from_bytes(each).field(0) for each in rows.column("arrow_schema").to_pylist()]
    return pa.array([make(field) for field in fields], kind)


@dataclass(frozen=True, slots=True)
class Layout:
    """One of the tables: kind of its rows, and how each column is made."""

    kind: str
    columns: Mapping[str, tuple[pa.DataType, Make]]


def _column_names(key: str, rows: CatalogRows) -> pa.Array:
    """Names of the columns that constraints are about, out of their ids."""
    columns = rows.of(
        "column", [other for each in rows.metadata[0] if (other := each.get("table_id")) is not None]
    )
    names = {
        (table_id, field_id): name
        for table_id, field_id, name in zip(
            *(columns.column(each).to_pylist() for each in ("table_id", "field_id", "name")), strict=True
        )
    }
    told, indices = rows.metadata
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
LAYOUTS: Mapping[str, Layout] = {
    "tables": Layout(
        "table",
        {
            "table_id": (pa.int64(), partial(_plain, "table_id")),
            "namespace": (pa.string(), CatalogRows.namespaces),
            "name": _NAME,
            "num_columns": (pa.int32(), _columns),
            "num_rows": (pa.int64(), _row_counts),
            "aligned": (
                pa.bool_(),
                lambda rows: rows.from_metadata(pa.bool_(), lambda told: told["aligned"]),
            ),
            "comment": (pa.string(), partial(_text, "comment")),
            "properties": (_MAP, _properties),
            **_MADE,
        },
    ),
    "columns": Layout(
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
    "types": Layout(
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
    "constraints": Layout(
        "constraint",
        {
            "table_id": (pa.int64(), partial(_plain, "table_id")),
            "namespace": (pa.string(), lambda rows: rows.of_table("namespace")),
            "table": (pa.string(), lambda rows: rows.of_table("name")),
            "name": _NAME,
            "kind": (pa.string(), partial(_text, "kind")),
            "columns": (pa.list_(pa.string()), partial(_column_names, "fields")),
            "check": (pa.string(), partial(_text, "sql")),
            "references": (pa.string(), partial(_text, "table")),
            "columns_there": (pa.list_(pa.string()), partial(_column_names, "fields_there")),
            "created_by": (pa.int64(), partial(_plain, "created_by")),
        },
    ),
    "namespaces": Layout(
        "namespace",
        {
            "namespace_id": (pa.int64(), partial(_plain, "table_id")),
            "name": _NAME,
            "properties": (_MAP, _properties),
            **_MADE,
        },
    ),
}
BUILT_IN_ROWS: Mapping[str, list[Any]] = {
    "namespace_id": [each.namespace_id for each in BUILT_INS],
    "name": [each.name for each in BUILT_INS],
    "properties": [[] for _ in BUILT_INS],
    "created_by": [None for _ in BUILT_INS],
    "created_at": [None for _ in BUILT_INS],
}
"""The namespaces that every store has and table 0 does not tell of."""
