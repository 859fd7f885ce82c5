"""A table with deletes, and a plain model of its numbered rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import spark_pages as sp
from spark_pages.errors import CommitConflictError, RowDeletedError
from spark_pages.store import Store

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
Rows = dict[int, tuple[int | None, str]]


@dataclass
class Model:
    """Live rows by number, one past the last number, and the live rows of each version."""

    store: Store
    rows: Rows = field(default_factory=dict)
    end_row: int = 0
    versions: dict[int, tuple[Rows, int]] = field(default_factory=dict)
    serial: int = 0

    def new_rows(self, count: int) -> list[tuple[int | None, str]]:
        self.serial += count
        numbers = range(self.serial - count, self.serial)
        return [(None if each % 5 == 0 else each % 23, f"r{each}") for each in numbers]

    def some(self, picks: list[int]) -> list[int]:
        """Live rows that picks choose."""
        live = sorted(self.rows)
        return sorted({live[each % len(live)] for each in picks}) if live else []

    def remember(self) -> None:
        self.versions[self.store.snapshot().version] = (dict(self.rows), self.end_row)

    def append(self, values: list[tuple[int | None, str]]) -> None:
        self.rows.update(zip(range(self.end_row, self.end_row + len(values)), values, strict=True))
        self.end_row += len(values)

    def delete(self, rows: list[int]) -> None:
        for row in rows:
            self.rows.pop(row, None)

    def update(self, rows: list[int], value: int) -> None:
        self.rows.update({row: (value, self.rows[row][1]) for row in rows})


def table_of(values: list[tuple[int | None, str]]) -> pa.Table:
    return pa.table({"n": [n for n, _ in values], "s": [s for _, s in values]}, SCHEMA)


def shown(table: Any) -> Rows:
    found = table.read(row_numbers=True).to_pydict()
    return dict(zip(found["_row"], zip(found["n"], found["s"], strict=True), strict=True))


def stage(txn: sp.Transaction, what: str, rows: list[int], values: list[tuple[int | None, str]]) -> None:
    """What one of two transactions does: deletes, updates or appends."""
    if what == "delete":
        txn.delete("t", rows)
    elif what == "update" and rows:
        txn.update_rows("t", rows, {"n": [-1] * len(rows)})
    elif what == "append":
        txn.append("t", table_of(values))


def apply(model: Model, what: str, rows: list[int], values: list[tuple[int | None, str]]) -> None:
    if what == "delete":
        model.delete(rows)
    elif what == "update":
        model.update(rows, -1)
    elif what == "append":
        model.append(values)


def race(model: Model, first: tuple[str, list[int]], second: tuple[str, list[int]]) -> None:
    """Two transactions of one version commit one after the other: a row has one of an update and others."""
    kinds = first[0], second[0]
    chosen = model.some(first[1]), model.some(second[1])
    values = model.new_rows(2), model.new_rows(3)
    one, two = model.store.transaction(), model.store.transaction()
    with one, two:
        stage(one, kinds[0], chosen[0], values[0])
        stage(two, kinds[1], chosen[1], values[1])
        one.commit()
        apply(model, kinds[0], chosen[0], values[0])
        model.remember()
        in_the_way = "update" in kinds and "append" not in kinds and set(chosen[0]) & set(chosen[1])
        try:
            two.commit()
        except CommitConflictError:
            assert in_the_way, (kinds, chosen)
            return
    assert not in_the_way, (kinds, chosen)
    apply(model, kinds[1], chosen[1], values[1])


def check(model: Model, table: Any) -> None:
    """Every way of reading shows the live rows of the model."""
    live = [value for _, value in sorted(model.rows.items())]
    values = [n for n, _ in live if n is not None]
    assert shown(table) == model.rows
    assert (table.num_rows, len(table), table.end_row) == (len(live), len(live), model.end_row)
    assert table.scan(["s"]).read_all().column(0).to_pylist() == [s for _, s in live]
    assert table.read([]).num_rows == len(live)
    assert table.row_numbers("n >= 7").tolist() == [
        row for row, (n, _) in sorted(model.rows.items()) if n is not None and n >= 7
    ]
    assert table.rows_at(range(len(live))).tolist() == sorted(model.rows)
    middle = model.end_row // 2
    assert table.read(["s"], middle).column(0).to_pylist() == [
        s for row, (_, s) in sorted(model.rows.items()) if row >= middle
    ]
    found = table.aggregate("n")
    assert (found.min.as_py(), found.max.as_py()) == (min(values, default=None), max(values, default=None))
    assert (found.count, found.null_count) == (len(values), len(live) - len(values))
    some = sorted(model.rows)[::3]
    assert table.take(some, ["s"]).column(0).to_pylist() == [model.rows[row][1] for row in some]
    dead = [row for row in range(model.end_row) if row not in model.rows]
    for row in dead[:1]:
        try:
            table.take([row])
        except RowDeletedError:
            continue
        raise AssertionError(f"row {row} is dead")


def mirror(model: Model, start: int, end: int) -> None:
    """The feed of rows leads from the rows of one version to those of a later one."""
    before, after = model.versions[start][0], model.versions[end][0]
    told = model.store.changes(start + 1, end, "t", granularity="rows").to_pylist()
    ranges = {
        (each["column"], each["change"], row)
        for each in told
        for row in range(each["first_row"], each["end_row"])
    }
    for place, column in enumerate(("n", "s")):
        removed = {row for name, change, row in ranges if (name, change) == (column, "removed")}
        new = {row for name, change, row in ranges if name == column and change != "removed"}
        kept = {row: value[place] for row, value in before.items() if row not in removed and row not in new}
        assert removed <= before.keys()
        assert new <= after.keys()
        assert {**kept, **{row: after[row][place] for row in new}} == {
            row: value[place] for row, value in after.items()
        }
