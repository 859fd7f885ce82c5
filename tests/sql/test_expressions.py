"""Functions and operators mean here what they mean to DuckDB, although another parser reads them first."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import duckdb
import pyarrow as pa

EXPRESSIONS = [
    each.strip()
    for each in (Path(__file__).parent / "expressions.txt").read_text(encoding="utf-8").split(" ;")
    if each.strip()
]
ROWS = pa.table(
    {
        "a": pa.array([1, 2, None, 4, -7], pa.int64()),
        "b": [0.5, None, 2.0, -1.25, 3.0],
        "s": ["Ab c", "x_y", None, "", "éa"],
        "d": pa.array([0, 400, None, 20000, -5], pa.date32()),
        "ts": pa.array(
            [dt.datetime(1970, 1, 1), dt.datetime(2001, 9, 9), None, dt.datetime(2024, 2, 29), None]
        ),
        "l": pa.array([[1, 2], [], None, [3], [4, None]], pa.list_(pa.int64())),
        "st": [{"x": 1, "y": "p"}, None, {"x": None, "y": "q"}, {"x": 3, "y": None}, {"x": 5, "y": "r"}],
        "m": pa.array([[("k", 1)], [], None, [("k", 2), ("j", 3)], []], pa.map_(pa.string(), pa.int64())),
    }
)


def values(result: pa.Table) -> list[str]:
    """The values, in an order of their own: DuckDB gives rows of windows in any."""
    return sorted(map(repr, result.column("v").to_pylist()))


def test_an_expression_gives_what_duckdb_gives(store):
    with store.transaction() as txn:
        txn.create_table("t", ROWS.schema)
        txn.append("t", ROWS)
    plain = duckdb.connect()
    plain.execute("SET TimeZone = 'UTC'")
    plain.register("t", ROWS)
    queries = [f"SELECT {each} AS v FROM t" for each in EXPRESSIONS]  # noqa: S608 - made here

    different = [
        query for query in queries if values(store.sql(query)) != values(plain.sql(query).to_arrow_table())
    ]

    assert different == []
    assert len(queries) > 200
    plain.close()
