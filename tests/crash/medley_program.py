"""The transactions of a medley: changes drawn at random, staged, and told in the words of the model."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from spark_pages.errors import InvalidInputError, NotFoundError
from spark_pages.model.table import TableDefinition
from spark_pages.transaction.transaction import Transaction
from tests.crash.medley_model import Op, Values, fingerprint, mark_of

NAMES = ["a", "b", "c", "d"]
_ROWS = 300
"""A table that has more is emptied: the judge reads all versions."""

_BASE = pa.schema([("n", pa.int64()), ("s", pa.string())])
_CHANGES = {
    "append": 40,
    "update": 25,
    "upsert": 8,
    "create": 4,
    "add_column": 3,
    "drop_column": 2,
    "rename_column": 2,
    "rename": 2,
    "truncate": 2,
    "drop": 2,
    "undrop": 2,
    "properties": 1,
}


class Program:
    """Changes of one transaction, drawn one after the other.

    Attributes
    ----------
    ops
        What they are, in the words of `medley_model.apply`.
    relied
        Marks of the tables that nobody else may have changed, under serializable isolation.
    reads
        What the transaction saw with its own changes: version read, mark, fingerprint.
    """

    def __init__(self, txn: Transaction, name: str, chance: random.Random) -> None:
        self.ops: list[Op] = []
        self.relied: set[str] = set()
        self.reads: list[tuple[int, str, str]] = []
        self._txn = txn
        self._serializable = txn._state.read_tables is not None
        self._name = name
        self._chance = chance
        self._made = 0

    def run(self) -> None:
        """Draw one to three changes and stage them; then look at them, perhaps."""
        if self._chance.random() < 0.35:  # what asks storage for nothing before its commit
            self._append(self._definition(self._chance.choice(NAMES)))
            return
        for _ in range(self._chance.choice([1, 1, 1, 2, 3])):
            names = self._names()
            change = self._chance.choices(list(_CHANGES), list(_CHANGES.values()))[0]
            if len(names) < 2:
                change = "create"
            if change in ("create", "undrop", "properties"):
                getattr(self, f"_{change}")([each for each in NAMES if each not in names])
            elif names:
                table = self._definition(self._chance.choice(names))
                getattr(self, "_truncate" if self._is_large(table) else f"_{change}")(table)
        if self._chance.random() < 0.3:
            self._look()

    def _is_large(self, table: TableDefinition) -> bool:
        before = self._txn.snapshot
        return table.name in before.tables() and before.table(table.name).num_rows > _ROWS

    def _look(self) -> None:
        for name in self._names()[:2]:
            mark = self._definition(name).properties["mark"]
            table = self._txn.table(name)
            found = fingerprint(table.read().to_pydict())
            self.reads.append((self._txn.snapshot.version, mark, found))
            self._rely(mark)

    def _names(self) -> list[str]:
        """Tables as the transaction sees them."""
        self._txn.snapshot  # noqa: B018  stands on the newest version
        known = [name for name in NAMES if self._txn._names.known(name) is not None]
        self._chance.shuffle(known)
        return known

    def _definition(self, name: str) -> TableDefinition:
        """Without a read that counts; the store must name a table by what it was when rows were given."""
        return self._txn._names.find(name)

    def _rely(self, mark: str) -> None:
        if self._serializable:
            self.relied.add(mark)

    def _note(self, kind: str, mark: str, *rest: Any) -> None:
        self.ops.append([kind, mark, *rest])
        if kind in ("append", "update", "truncate"):
            self._rely(mark)

    # rows

    def _text(self) -> str | None:
        size = self._chance.choice([0, 0, 3, 40, 40, 3_000])
        return None if self._chance.random() < 0.1 else f"{self._name} {'x' * size}{self._chance.random()}"

    def _number(self, keyed: bool) -> int | None:
        if keyed:
            return self._chance.randrange(10_000)
        return None if self._chance.random() < 0.1 else self._chance.randrange(1 << 40)

    def _append(self, table: TableDefinition, keys: list[int] | None = None) -> None:
        mark = table.properties["mark"]
        keyed = "keyed" in table.properties
        rows = len(keys) if keys is not None else self._chance.choice([1, 1, 2, 5, 20])
        values: dict[str, list[Any]] = {
            "n": keys or [self._number(keyed) for _ in range(rows)],
            "s": [self._text() for _ in range(rows)],
        }
        for column in table.schema.names[2:]:
            if self._chance.random() < 0.8:
                values[column] = [self._number(False) for _ in range(rows)]
        given = {name: values.get(name) for name in table.schema.names}
        data = {name: pa.array(of, table.schema.field(name).type) for name, of in given.items() if of}
        self._txn.append(table.name, pa.table(data))
        self._note("append", mark, {mark_of(name): of for name, of in values.items()})

    def _read(self, table: TableDefinition) -> Values:
        """All rows, as staged."""
        self._rely(table.properties["mark"])
        return self._txn.table(table.name).read().to_pydict()

    def _update(self, table: TableDefinition) -> None:
        """Of rows that the version read has: the transaction's own appended ones have other ways."""
        before = self._txn.snapshot
        if table.table_id < 0 or table.name not in before.tables() or self._is_changed(table):
            return
        rows = before.table(table.name).num_rows
        if rows == 0:
            return
        keyed = "keyed" in table.properties
        column = self._chance.choice([name for name in table.schema.names if not (keyed and name == "n")])
        chosen = self._chance.sample(range(rows), min(rows, self._chance.choice([1, 1, 3, 10])))
        news = [self._text() if column == "s" else self._number(False) for _ in chosen]
        self._txn.update_rows(table.name, chosen, {column: pa.array(news, table.schema.field(column).type)})
        self._note("update", table.properties["mark"], mark_of(column), chosen, news)

    def _is_changed(self, table: TableDefinition) -> bool:
        """Whether the transaction has done more to it than append and update."""
        mark = table.properties["mark"]
        return any(op[1] == mark and op[0] not in ("append", "update") for op in self.ops)

    def _upsert(self, table: TableDefinition) -> None:
        """Keys that are there get another text, others get rows."""
        if "keyed" not in table.properties or table.table_id < 0 or self._is_changed(table):
            return
        mark = table.properties["mark"]
        there = {key: row for row, key in enumerate(self._read(table)["n"])}
        read = (
            self._txn.snapshot.table(table.name).num_rows if table.name in self._txn.snapshot.tables() else 0
        )
        asked = {self._chance.randrange(60) for _ in range(5)}
        rows = [there[key] for key in sorted(asked) if key in there and there[key] < read]
        news = [self._text() for _ in rows]
        if rows:
            self._txn.update_rows(table.name, rows, {"s": pa.array(news, pa.string())})
            self._note("update", mark, "s", rows, news)
        keys = sorted(asked - there.keys())
        if keys:
            self._append(table, keys)

    def _truncate(self, table: TableDefinition) -> None:
        self._txn.truncate_table(table.name)
        self._note("truncate", table.properties["mark"])
        if self._chance.random() < 0.5:
            self._append(table)

    # tables and columns

    def _create(self, free: list[str]) -> None:
        if not free:
            return
        self._made += 1
        mark, name = f"{self._name}:{self._made}", self._chance.choice(free)
        keyed = self._chance.random() < 0.4
        properties = {"mark": mark, "page_bytes": self._chance.choice(["1024", "8192", "65536"])}
        self._txn.create_table(name, _BASE, properties={**properties, **({"keyed": "1"} if keyed else {})})
        if keyed:
            self._txn.add_constraint(name, "key", primary_key=["n"])
        self._note("create", mark, name, keyed)
        self._append(self._definition(name))

    def _drop(self, table: TableDefinition) -> None:
        self._txn.drop_table(table.name)
        self._note("drop", table.properties["mark"])

    def _undrop(self, free: list[str]) -> None:
        if not free:
            return
        name = self._chance.choice(free)
        try:
            self._txn.undrop_table(name)
        except (NotFoundError, InvalidInputError):
            return
        self._note("undrop", self._definition(name).properties["mark"], name)

    def _rename(self, table: TableDefinition) -> None:
        free = [each for each in NAMES if each not in self._names()]
        if free:
            self._txn.rename_table(table.name, free[0])
            self._note("rename", table.properties["mark"], free[0])

    def _add_column(self, table: TableDefinition) -> None:
        if len(table.schema) > 4:
            return
        self._made += 1
        column = f"x{self._name}:{self._made}"
        default = self._number(False)
        self._txn.add_column(table.name, pa.field(column, pa.int64()), default)
        self._note("add column", table.properties["mark"], column, default)

    def _drop_column(self, table: TableDefinition) -> None:
        if len(table.schema) > 2:
            column = self._chance.choice(table.schema.names[2:])
            self._txn.drop_column(table.name, column)
            self._note("drop column", table.properties["mark"], mark_of(column))

    def _rename_column(self, table: TableDefinition) -> None:
        if len(table.schema) > 2:
            column = self._chance.choice(table.schema.names[2:])
            self._made += 1
            name = f"{mark_of(column)}_{self._name}:{self._made}"
            self._txn.rename_column(table.name, column, name)
            self._note("rename column", table.properties["mark"], mark_of(column), name)

    def _properties(self, _free: list[str]) -> None:
        told = {"whose": self._name}
        self._txn.set_properties(told)
        self._note("properties", "", told)
