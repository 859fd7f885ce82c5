"""Judges a medley: replays what was noted, in the order of the log, and compares with what the store says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import spark_pages as sp
from spark_pages.errors import SnapshotExpiredError
from spark_pages.store import Store
from tests.crash.medley_model import Model, ModelTable, Op, State, fingerprint, follow
from tests.crash.storm import Place
from tests.invariants import check_snapshot, check_table_zero
from tests.property.public_upkeep import oldest_readable

_UPKEEP = {
    *("create store", "tag", "delete tag", "lease", "release", "vacuum", "purge"),
    *("claim rows", "release claims", "compact pages", "collect rows"),
}
_QUESTIONS = 25
_VERSIONS = 40
"""Of those that can be read, so many are compared."""

Note = dict[str, Any]


@dataclass(slots=True)
class Outcome:
    """What a medley has done, and what was wrong afterwards."""

    kills: int = 0
    versions: int = 0
    transactions: int = 0
    readable: int = 0
    reads: int = 0
    acknowledged: int = 0
    landed_unacknowledged: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    operations: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def expect(self, holds: bool, what: str) -> None:
        if not holds and len(self.faults) < 50:
            self.faults.append(what)


def judge(place: Place, notes: Iterable[Note], chronicle: list[Note], outcome: Outcome, seed: int) -> None:
    """Compare the store with what the notes make of it.

    Parameters
    ----------
    chronicle
        A row of the history for each transaction, in the order of the log from version 0 on.
    """
    notes = list(notes)
    replay = Replay(notes, chronicle, outcome)
    replay.run()
    if outcome.faults:
        return
    store = sp.open(place[0], storage_options=place[1])
    check_snapshot(store.snapshot().log)
    check_table_zero(store)
    found = store.verify(pages="all")
    outcome.expect(
        found.ok, f"verify: {[str(fault) for fault in found.faults if fault.kind != 'orphan'][:9]}"
    )
    Questions(store, replay.model, outcome, random.Random(seed)).ask()
    outcome.expect(
        store.tags() == dict(sorted(replay.tags.items())), f"tags are {store.tags()}, not {replay.tags}"
    )
    store.close()


class Replay:
    """The model, formed in the order of the log; what processes were told meanwhile is compared with it."""

    def __init__(self, notes: list[Note], chronicle: list[Note], outcome: Outcome) -> None:
        self.model = Model()
        self.tags: dict[str, int] = {}
        self._planned = {note["planned"]: note for note in notes if "planned" in note}
        self._notes = notes
        self._chronicle = chronicle
        self._outcome = outcome
        self._landed: dict[str, int] = {}
        self._apps: dict[tuple[str, int], int] = {}
        self._expect = outcome.expect

    def run(self) -> None:
        self._outcome.operations = dict(Counter(row["operation"] for row in self._chronicle))
        self._outcome.refused = dict(Counter(note["refused"] for note in self._notes if "refused" in note))
        rows: dict[int, list[Note]] = {}
        for row in self._chronicle:
            rows.setdefault(row["version"], []).append(row)
        self._expect(list(rows) == list(range(len(rows))), f"the history has gaps: {list(rows)[:50]}")
        for version, of in rows.items():
            for row in of:
                try:
                    self._land(row)
                except (LookupError, ValueError) as error:
                    name = row["parameters"].get("name")
                    what = f"version {version}: {row['operation']} {name} cannot have landed: {error!r}"
                    self._expect(False, f"{what}; it read {row['read_version']}: {self._planned.get(name)}")
                    return
            self.model.land(version)
        self._outcome.versions = len(rows)
        self._compare_notes()

    def _land(self, row: Note) -> None:
        version, parameters = row["version"], row["parameters"]
        match row["operation"]:
            case "medley":
                self._land_planned(self._planned[parameters["name"]], row)
            case "restore":
                self.model.restore(int(parameters["version"]), version)
            case "tag":
                self.tags[parameters["tag"]] = int(parameters["version"])
            case "delete tag":
                del self.tags[parameters["tag"]]
            case other:
                self._expect(other in _UPKEEP, f"version {version}: nobody was to {other!r}")

    def _land_planned(self, plan: Note, row: Note) -> None:
        name, version = plan["planned"], row["version"]
        self._expect(name not in self._landed, f"{name} is in version {self._landed.get(name)} and {version}")
        self._landed[name] = version
        if "app" in plan:
            pair = (plan["app"][0], plan["app"][1])
            self._expect(pair not in self._apps, f"{pair} is in version {self._apps.get(pair)} and {version}")
            self._expect((row["app_id"], row["app_version"]) == pair, f"version {version} is not of {pair}")
            self._apps[pair] = version
        read = self.model.versions[row["read_version"]]
        for mark in plan["relied"]:
            same = _same_rows(read.tables.get(mark), self.model.now.tables.get(mark))
            self._expect(same, f"{name} in version {version} relied on {mark} as of {row['read_version']}")
        self.model.commit(plan["ops"], version)
        for mark in {op[1] for op in plan["ops"]} & self.model.now.tables.keys():
            table = self.model.now.tables[mark]
            keys = table.values["n"]
            unique = not table.keyed or len(keys) == len(set(keys))
            self._expect(unique, f"version {version}: keys of table {table.name} are there twice")
        self._compare_counts(plan["ops"], row)

    def _compare_counts(self, ops: list[Op], row: Note) -> None:
        """What the history says of rows, where it can be told without knowing pages."""
        kinds = {op[0] for op in ops}
        if kinds <= {"append", "update", "create"}:
            added = sum(len(op[2]["n"]) for op in ops if op[0] == "append")
            updated = len({(op[1], each) for op in ops if op[0] == "update" for each in op[3]})
            told = row["rows_added"], row["rows_updated"], row["rows_removed"]
            self._expect(
                told == (added, updated, 0), f"version {row['version']}: rows {told}, {added}, {updated}"
            )

    def _compare_notes(self) -> None:
        outcome, versions = self._outcome, self.model.versions
        acked = {note["acked"] for note in self._notes if "acked" in note}
        outcome.transactions, outcome.acknowledged = len(self._landed), len(acked)
        outcome.landed_unacknowledged = len(self._landed.keys() - acked)
        for note in self._notes:
            match note:
                case {"acked": name, "version": version, "exact": exact}:
                    self._compare_ack(self._planned[name], version, exact)
                case {"refused": why, "name": name}:
                    self._expect(name not in self._landed, f"{name} was refused ({why}) and landed")
                case {"saw": version, "tables": tables}:
                    outcome.reads += 1
                    shown = {name: fingerprint(of) for name, of in versions[version].shown().items()}
                    self._expect(
                        tables == shown, f"of version {version} was read {tables} instead of {shown}"
                    )
                case {"within": name, "version": version, "table": mark, "found": found}:
                    outcome.reads += 1
                    staged = follow(versions[version], self._planned[name]["ops"])[0].tables[mark]
                    shown = fingerprint(staged.shown)
                    self._expect(
                        found == shown, f"{name} on {version} saw {mark}: {found} instead of {shown}"
                    )
                case {"restored": then, "version": version}:
                    same = versions[version].shown() == versions[then].shown()
                    self._expect(same, f"version {version} does not restore {then}")

    def _compare_ack(self, plan: Note, version: int, exact: bool) -> None:
        name = plan["planned"]
        landed = self._landed.get(name)
        if landed is None and self._changes_nothing(plan["ops"], version):
            return
        if landed is None and "app" in plan:
            landed = self._apps.get((plan["app"][0], plan["app"][1]))
        holds = landed == version if exact else landed is not None and landed <= version
        self._expect(holds, f"{name} was told version {version}, and is in {landed}")

    def _changes_nothing(self, ops: list[Op], version: int) -> bool:
        """Of a transaction that was to do nothing, or drops what it makes, there is no commit."""
        made = {op[1] for op in ops if op[0] == "create"}
        if not {op[1] for op in ops} <= made:
            return False
        read = self.model.versions[version]
        return follow(read, ops)[0].tables == read.tables


class Questions:
    """What can be asked of the store afterwards, against the model."""

    def __init__(self, store: Store, model: Model, outcome: Outcome, chance: random.Random) -> None:
        self._store = store
        self._model = model
        self._outcome = outcome
        self._chance = chance
        self._expect = outcome.expect
        self._table_ids: dict[int, dict[str, int]] = {}

    def ask(self) -> None:
        head = self._store.snapshot().version
        self._expect(head + 1 == len(self._model.versions), f"the store is at {head}")
        readable = list(range(oldest_readable(self._store), head + 1))
        self._outcome.readable = len(readable)
        for version in range(max(0, readable[0] - 3), readable[0]):
            self._expect_expired(version)
        readable = sorted({readable[0], head, *self._chance.sample(readable, min(len(readable), _VERSIONS))})
        for version in readable:
            self._compare_version(version)
        for _ in range(_QUESTIONS):
            start, end = sorted(self._chance.choices(readable, k=2))
            self._compare_changes(start, end)
            self._compare_aggregate(self._chance.choice([end, head]))
            self._compare_blame()
        self._compare_changes(readable[0], head)

    def _expect_expired(self, version: int) -> None:
        try:
            self._store.snapshot(version=version)
        except SnapshotExpiredError:
            return
        self._expect(False, f"version {version} can be read")

    def _compare_version(self, version: int) -> None:
        """Newest or not, it is what the model says."""
        snapshot = self._store.snapshot(version=version)
        state = self._model.versions[version]
        tables = {name: snapshot.table(name) for name in snapshot.tables()}
        self._table_ids[version] = {name: table.definition.table_id for name, table in tables.items()}
        found = {name: table.read().to_pydict() for name, table in tables.items()}
        self._expect(found == state.shown(), f"version {version} {_difference(found, state)}")
        properties = {name: snapshot.log.state.properties.get(name) for name in state.properties}
        self._expect(properties == state.properties, f"version {version} has {properties}")

    def _compare_changes(self, start: int, end: int) -> None:
        """The rows of `start` with the changes put in give those of `end`."""
        told: dict[tuple[str, str], dict[str, set[int]]] = {}
        then, now = (self._model.versions[each].tables for each in (start, end))
        marks = {self._table_ids[start][table.name]: mark for mark, table in then.items()}
        marks |= {self._table_ids[end][table.name]: mark for mark, table in now.items()}
        for row in self._store.changes(start + 1, end, granularity="rows").to_pylist():
            if row["table_id"] not in marks:
                self._expect(False, f"changes {start}…{end} are of {row}")
                continue
            key = marks[row["table_id"]], row["column"].partition("_")[0]
            kinds = told.setdefault(key, {"inserted": set(), "updated": set(), "removed": set()})
            kinds[row["change"]] |= set(range(row["first_row"], row["end_row"]))
        for mark in then.keys() | now.keys():
            old = then[mark].values if mark in then else {}
            new = now[mark].values if mark in now else {}
            for column in old.keys() | new.keys():
                kinds = told.get((mark, column), {"inserted": set(), "updated": set(), "removed": set()})
                where = f"changes {start}…{end} of {mark}.{column}"
                self._compare_feed(where, old.get(column, []), new.get(column, []), kinds)
                written = self._model.written(mark, column, start, end)
                if written is not None:
                    more = kinds["updated"] - written
                    self._expect(not more, f"{where}: nobody updated {sorted(more)}")

    def _compare_feed(self, where: str, old: list[Any], new: list[Any], told: dict[str, set[int]]) -> None:
        kept = len(old) - len(told["removed"])
        holds = told["removed"] == set(range(kept, len(old))) and told["inserted"] == set(
            range(kept, len(new))
        )
        self._expect(holds, f"{where}: {len(old)} rows became {len(new)} by {told}")
        if holds:
            lost = [row for row in range(kept) if row not in told["updated"] and old[row] != new[row]]
            self._expect(not lost, f"{where}: does not tell of rows {lost}")

    def _compare_aggregate(self, version: int) -> None:
        tables = list(self._model.versions[version].tables.values())
        if not tables:
            return
        table = self._chance.choice(tables)
        mark, name = self._chance.choice(list(table.names.items()))
        start, stop = sorted(self._chance.choices(range(table.num_rows + 1), k=2))
        values = table.values[mark][start:stop]
        there = [value for value in values if value is not None]
        found = self._store.snapshot(version=version).table(table.name).aggregate(name, start, stop)
        told = found.count, found.null_count, found.min.as_py(), found.max.as_py()
        wanted = len(there), len(values) - len(there), min(there, default=None), max(there, default=None)
        self._expect(
            told == wanted, f"aggregate of {version} {table.name}.{name} {start}…{stop}: {told}, {wanted}"
        )

    def _compare_blame(self) -> None:
        tables = [each for each in self._model.now.tables.items() if each[1].num_rows]
        if not tables:
            return
        mark, table = self._chance.choice(tables)
        column, name = self._chance.choice(list(table.names.items()))
        row = self._chance.randrange(table.num_rows)
        blamed = self._store.blame(table.name, name, row)
        writers = self._model.writers(mark, column, row)
        holds = blamed.version in writers if blamed.exact else blamed.version >= min(writers)
        self._expect(
            holds, f"{table.name}.{name} row {row}: blame says {blamed}, written in {sorted(writers)}"
        )


def _same_rows(one: ModelTable | None, two: ModelTable | None) -> bool:
    """Of the columns that both have; a table that was not there yet was not read."""
    if one is None:
        return True
    return two is not None and all(
        one.values[mark] == two.values[mark] for mark in one.values.keys() & two.values.keys()
    )


def _difference(found: dict[str, Any], state: State) -> str:
    """Of the first table that differs."""
    shown = state.shown()
    if found.keys() != shown.keys():
        return f"has tables {sorted(found)} instead of {sorted(shown)}"
    for name, values in shown.items():
        for column in values.keys() | found[name].keys():
            one, two = found[name].get(column), values.get(column)
            if one != two:
                rows = [
                    row
                    for row, pair in enumerate(zip(one or [], two or [], strict=False))
                    if pair[0] != pair[1]
                ]
                return f"differs in {name}.{column}: {len(one or [])} rows, not {len(two or [])}; {rows[:9]}"
    return "differs in the order of columns"
