"""What a medley's store must hold: lists of values by table and column, formed from what was noted.

Nothing here asks the package anything. A table is known by the mark that its maker gave it, a column by the
part of its name before the first ``_``: so both stay the same when they get other names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Values = dict[str, list[Any]]
Op = list[Any]
"""The name of a change, the mark of its table, and what else belongs to it; see `Model.apply`."""


def mark_of(column: str) -> str:
    """By what a column is known, whatever it is called by now."""
    return column.partition("_")[0]


def fingerprint(columns: Mapping[str, list[Any]]) -> str:
    """Names, number of rows and a digest of the values."""
    values = json.dumps(list(columns.values()))
    rows = len(next(iter(columns.values()), []))
    return f"{','.join(columns)}: {rows} rows {hashlib.blake2b(values.encode(), digest_size=8).hexdigest()}"


@dataclass(frozen=True, slots=True)
class ModelTable:
    """One table of one version.

    Attributes
    ----------
    names
        By mark, in order, what columns are called.
    values
        By mark.
    keyed
        Whether no two rows may have the same ``n``.
    """

    name: str
    names: dict[str, str]
    values: Values
    keyed: bool

    @property
    def num_rows(self) -> int:
        return len(self.values["n"])

    @property
    def shown(self) -> Values:
        """What a reader of all rows is given."""
        return {name: self.values[mark] for mark, name in self.names.items()}


@dataclass(frozen=True, slots=True)
class State:
    """One version: tables by mark, those that are gone as they were last, and properties of the store."""

    tables: dict[str, ModelTable] = field(default_factory=dict)
    gone: dict[str, ModelTable] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)

    def shown(self) -> dict[str, Values]:
        """By name, as a reader is given them."""
        return {table.name: table.shown for table in self.tables.values()}


@dataclass(frozen=True, slots=True)
class Event:
    """A version that wrote rows of a column, or may have: a restore brings back version `back_to`."""

    version: int
    first_row: int
    end_row: int
    back_to: int | None = None


class Model:
    """Every version so far, and who wrote which rows of which column of which table."""

    def __init__(self) -> None:
        self.versions: list[State] = []
        self.now = State()
        self.events: dict[tuple[str, str], list[Event]] = {}

    def land(self, version: int) -> None:
        """The version is complete."""
        if version != len(self.versions):
            raise ValueError(f"version {version} comes after {len(self.versions) - 1}")
        self.versions.append(self.now)

    def commit(self, ops: Iterable[Op], version: int) -> None:
        """A transaction has landed."""
        self.now, written = follow(self.now, ops)
        for mark, column, first, end in written:
            self.events.setdefault((mark, column), []).append(Event(version, first, end))

    def restore(self, then: int, version: int) -> None:
        """Tables and properties are what they were."""
        old = self.versions[then]
        lost = {mark: table for mark, table in self.now.tables.items() if mark not in old.tables}
        gone = {mark: each for mark, each in {**self.now.gone, **lost}.items() if mark not in old.tables}
        for mark, table in old.tables.items():
            for column, values in table.values.items():
                event = Event(version, 0, len(values), back_to=then)
                self.events.setdefault((mark, column), []).append(event)
        self.now = State(old.tables, gone, old.properties)

    def writers(self, table: str, column: str, row: int) -> set[int]:
        """The versions of which one wrote the row last.

        A restore leaves what is as it was: then the row is of who wrote it before, there or here.
        """
        found: set[int] = set()
        ends = [len(self.versions)]
        while ends:
            until = ends.pop()
            for event in reversed(self.events[table, column]):
                if event.version <= until and event.first_row <= row < event.end_row:
                    if event.back_to is None:
                        found.add(event.version)
                        break
                    if event.version not in found:
                        found.add(event.version)
                        ends.append(event.back_to)
        return found

    def written(self, table: str, column: str, start: int, end: int) -> set[int] | None:
        """The rows that versions after `start` up to `end` wrote; None where a restore was among them."""
        of = [event for event in self.events.get((table, column), []) if start < event.version <= end]
        if any(event.back_to is not None for event in of):
            return None
        return {row for event in of for row in range(event.first_row, event.end_row)}


def follow(state: State, ops: Iterable[Op]) -> tuple[State, list[tuple[str, str, int, int]]]:
    """The state after a transaction, and which rows of which columns it wrote: marks, first row, end row.

    A table that it drops can come back as it was before, though empty if it was truncated first.
    """
    before, written = state.tables, []
    emptied: set[str] = set()
    for op in ops:
        kind, mark = op[:2]
        state, rows = apply(state, op)
        written += [(mark, *each) for each in rows]
        if kind == "truncate":
            emptied.add(mark)
        if kind == "drop" and mark in before:
            left = _changed(before[mark], "truncate", [])[0] if mark in emptied else before[mark]
            state = replace(state, gone={**state.gone, mark: left})
            written = [each for each in written if each[0] != mark]
    return state, written


def apply(state: State, op: Op) -> tuple[State, list[tuple[str, int, int]]]:
    """The state after a change, and of each column which rows it wrote: mark, first row, end row.

    Raises
    ------
    LookupError, ValueError
        If the change cannot be: its table is gone, or its row.
    """
    kind, mark, *rest = op
    if kind == "properties":
        return replace(state, properties={**state.properties, **rest[0]}), []
    if kind == "create":
        made = ModelTable(rest[0], {"n": "n", "s": "s"}, {"n": [], "s": []}, rest[1])
        return _with(state, mark, made), []
    if kind == "undrop":
        return _with(state, mark, replace(state.gone[mark], name=rest[0])), []
    table = state.tables[mark]
    if kind == "drop":
        left = {each: of for each, of in state.tables.items() if each != mark}
        return replace(state, tables=left, gone={**state.gone, mark: table}), []
    after, written = _changed(table, kind, rest)
    return _with(state, mark, after), written


def _with(state: State, mark: str, table: ModelTable) -> State:
    """The state with this table, whatever was known by its mark."""
    if any(other != mark and each.name == table.name for other, each in state.tables.items()):
        raise ValueError(f"two tables are called {table.name!r}")
    gone = {each: of for each, of in state.gone.items() if each != mark}
    return replace(state, tables={**state.tables, mark: table}, gone=gone)


def _changed(table: ModelTable, kind: str, rest: list[Any]) -> tuple[ModelTable, list[tuple[str, int, int]]]:
    match kind, rest:
        case "append", [given]:
            more = len(given["n"])
            values = {mark: old + given.get(mark, [None] * more) for mark, old in table.values.items()}
            if not given.keys() <= values.keys():
                raise ValueError(f"values of columns that are gone: {given.keys() - values.keys()}")
            return replace(table, values=values), [
                (mark, table.num_rows, table.num_rows + more) for mark in values
            ]
        case "update", [column, rows, news]:
            changed = list(table.values[column])
            for row, value in zip(rows, news, strict=True):
                changed[row] = value
            values = {**table.values, column: changed}
            return replace(table, values=values), [(column, row, row + 1) for row in rows]
        case "truncate", []:
            return replace(table, values={mark: [] for mark in table.values}), []
        case "rename", [name]:
            return replace(table, name=name), []
        case "add column", [column, default]:
            mark = mark_of(column)
            names = {**table.names, mark: column}
            values = {**table.values, mark: [default] * table.num_rows}
            return replace(table, names=names, values=values), [(mark, 0, table.num_rows)]
        case "drop column", [mark]:
            names = {each: name for each, name in table.names.items() if each != mark}
            return replace(table, names=names, values={each: table.values[each] for each in names}), []
        case "rename column", [mark, name]:
            if mark not in table.names:
                raise LookupError(f"column {mark} is gone")
            return replace(table, names={**table.names, mark: name}), []
    raise ValueError(f"no change {kind!r} of {rest}")
