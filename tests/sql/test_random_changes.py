"""Random UPDATE and DELETE statements against DuckDB: the same rows, and the same counts."""

# ruff: noqa: S608 - statements are what is made here

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa
import pytest

import spark_pages as sp

KINDS: dict[str, tuple[pa.DataType, list[Any], list[str]]] = {
    "i": (pa.int32(), [0, 1, -1, 5, 100, None], ["0", "5", "-1", "i + 1", "NULL", "coalesce(i, 7)"]),
    "big": (pa.int64(), [0, 1 << 40, -(1 << 62), None], ["0", "1099511627776", "i", "NULL"]),
    "u": (pa.uint8(), [0, 1, 255, None], ["0", "255", "NULL"]),
    "x": (
        pa.float64(),
        [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, None],
        ["0.0::DOUBLE", "'nan'::DOUBLE", "x * 2", "-x", "'inf'::DOUBLE", "NULL", "i / 2"],
    ),
    "f": (pa.float32(), [0.5, math.nan, -2.0, None], ["0.5::FLOAT", "'nan'::FLOAT", "f * 2", "NULL"]),
    "s": (pa.string(), ["", "a", "ab", "B", "é", None], ["'a'", "s || 'x'", "upper(s)", "NULL", "'it''s'"]),
    "b": (pa.bool_(), [True, False, None], ["true", "NOT b", "NULL", "i > 0"]),
    "d": (pa.date32(), [dt.date(2024, 1, 2), dt.date(1960, 5, 6), None], ["DATE '2024-01-02'", "NULL"]),
    "t": (
        pa.timestamp("us"),
        [dt.datetime(2024, 1, 2, 3, 4, 5, 6), dt.datetime(1960, 1, 1), None],
        ["TIMESTAMP '2024-01-02 03:04:05.000006'", "NULL"],
    ),
    "m": (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-2.25"), None], ["1.5", "m * 2", "NULL"]),
    "z": (pa.binary(), [b"", b"a", b"\x00\xff", None], ["'a'::BLOB", "NULL"]),
    "h": (pa.time64("us"), [dt.time(1, 2, 3), dt.time(0), None], ["TIME '01:02:03'", "NULL"]),
    "l": (
        pa.list_(pa.int32()),
        [[1, 2], [], [None], None],
        ["[1, 2]::INTEGER[]", "list_append(l, 3)", "NULL"],
    ),
}
SCHEMA = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _, _) in KINDS.items())])
ORDERED = [name for name in KINDS if name not in ("b", "l")]
OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")


def literal(name: str, value: Any) -> str:
    """Return a value as a constant of DuckDB."""
    kind = {"d": "DATE", "t": "TIMESTAMP", "h": "TIME", "x": "DOUBLE", "f": "FLOAT", "m": "DECIMAL(10, 2)"}
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"'{value}'::{kind[name]}" if name in kind else str(value)


def condition(draw: random.Random, depth: int = 2) -> str:
    """Return a random condition."""
    choice = draw.randrange(8 if depth else 5)
    name = draw.choice(ORDERED)
    constants = [literal(name, value) for value in KINDS[name][1] if value is not None]
    match choice:
        case 0:
            return f"{name} IS {draw.choice(('', 'NOT '))}NULL"
        case 1:
            return f"{name} {draw.choice(('', 'NOT '))}IN ({', '.join(draw.sample(constants, 2))})"
        case 2:
            return f"{name} BETWEEN {draw.choice(constants)} AND {draw.choice(constants)}"
        case 3 | 4:
            return f"{name} {draw.choice(OPERATORS)} {draw.choice(constants)}"
        case 5:
            return f"NOT ({condition(draw, depth - 1)})"
        case 6:
            return f"id IN (SELECT id + 1 FROM t WHERE {condition(draw, 0)})"
    joined = f" {draw.choice(('AND', 'OR'))} ".join(condition(draw, depth - 1) for _ in range(2))
    return f"({joined})"


def statement(draw: random.Random) -> str:
    """Return a random statement that changes rows."""
    where = f" WHERE {condition(draw)}" if draw.random() < 0.95 else ""
    if draw.random() < 0.25:
        return f"DELETE FROM t{where} AND id % 3 = 0" if where else "DELETE FROM t WHERE id % 7 = 0"
    names = draw.sample(list(KINDS), draw.randint(1, 3))
    return f"UPDATE t SET {', '.join(f'{n} = {draw.choice(KINDS[n][2])}' for n in names)}{where}"


def rows(draw: random.Random, first: int, count: int) -> pa.Table:
    """Return random rows."""
    columns = {name: [draw.choice(values) for _ in range(count)] for name, (_, values, _) in KINDS.items()}
    return pa.table({"id": range(first, first + count), **columns}, schema=SCHEMA)


def plain(table: pa.Table) -> list[str]:
    """Return rows as text: NaN equals itself, and -0.0 equals 0.0, as one stands for both in DuckDB."""
    return sorted(repr(row).replace("-0.0,", "0.0,") for row in table.cast(SCHEMA).to_pylist())


def count_of(theirs: duckdb.DuckDBPyConnection, text: str) -> int | None:
    """Run a statement in DuckDB, and return how many rows it meets; None if it converts a value in vain."""
    try:
        found = theirs.execute(text).fetchone()
    except (duckdb.ConversionException, duckdb.OutOfRangeException):
        return None
    assert found is not None
    return int(found[0])


def compare(seed: int, statements: int) -> None:
    draw = random.Random(seed)
    theirs = duckdb.connect()
    with sp.create(f"memory://{uuid4().hex}") as store:
        given = rows(draw, 0, 60)
        theirs.register("given", given)
        theirs.execute("CREATE TABLE t AS SELECT * FROM given")
        with store.transaction() as txn:
            txn.create_table("t", SCHEMA)
            txn.append("t", given)
        for _ in range(statements):
            text = statement(draw)
            expected = count_of(theirs, text)
            if expected is None:  # such as an integer that becomes too large
                with pytest.raises(sp.SparkPagesError), store.transaction() as txn:
                    txn.sql(text)
                continue
            counted = store.sql(text)["rows"].to_pylist()
            assert counted == [expected], text
            assert plain(store.snapshot().table("t").read()) == plain(
                theirs.sql("SELECT * FROM t").to_arrow_table()
            ), text
        assert store.verify().ok


@pytest.mark.parametrize("seed", [1])
def test_some_statements_change_the_rows_that_duckdb_changes(seed: int) -> None:
    compare(seed, 8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_thousands_of_statements_change_the_rows_that_duckdb_changes(seed: int) -> None:
    compare(seed, 50)
