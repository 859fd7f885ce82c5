"""What can be asked of a store, rule by rule, and what the model says to it."""

from __future__ import annotations

from datetime import timedelta

import pyarrow.compute as pc
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from spark_pages.errors import (
    PageNotFoundError,
    RowOutOfRangeError,
    TableNotFoundError,
    VersionNotFoundError,
)
from tests.invariants import check_snapshot, check_table_zero
from tests.property.public_model import SCHEMA, PublicModel, as_rows

_SELECT = "SELECT n, s FROM {} WHERE n >= {}"
_COUNT = "SELECT count(*) AS c FROM {}"
_INSERT = "INSERT INTO {} VALUES (5, 'sql'), (NULL, NULL)"


class Questions(PublicModel):
    """Reads rows, pages and history, of any version."""

    @rule(second=st.booleans())
    def the_store_describes_itself(self, second: bool) -> None:
        store = self.handle(second)

        info = store.info()

        assert info.version == len(self.versions) - 1
        assert dict(info.properties) == dict(store.properties)
        assert dict(info.tags) == self.tags

    @rule(second=st.booleans(), data=st.data())
    def read_any_version(self, second: bool, data: st.DataObject) -> None:
        version = self.old_version(data)
        snapshot = self.handle(second).snapshot(version=version)
        assert snapshot.tables() == sorted(self.versions[version])
        for name, rows in self.versions[version].items():
            table = snapshot.table(name)
            start = data.draw(st.integers(0, len(rows)))
            stop = data.draw(st.integers(start, len(rows)))
            assert as_rows(table.read(start=start, stop=stop)) == rows[start:stop]
            assert as_rows(table.scan(batch_rows=2).read_all()) == rows
            found = table.read(filter=[("n", ">", 2)])
            assert as_rows(found) == [row for row in rows if row[0] is not None and row[0] > 2]
            if rows:
                wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=4))
                assert as_rows(table.take(wanted)) == [rows[row] for row in wanted]
            with pytest.raises(RowOutOfRangeError):
                table.take([len(rows)])

    @rule(second=st.booleans())
    def the_newest_version_is_that_of_the_model(self, second: bool) -> None:
        store = self.handle(second)
        snapshot = store.snapshot()
        assert snapshot.version == len(self.versions) - 1
        assert store.url == store.object_store.url
        assert {name: as_rows(snapshot.table(name).read()) for name in snapshot.tables()} == self.now
        assert store.tags() == dict(sorted(self.tags.items()))
        check_snapshot(snapshot.log)
        check_table_zero(store)
        with pytest.raises(VersionNotFoundError):
            store.snapshot(version=len(self.versions))
        with pytest.raises(TableNotFoundError):
            snapshot.table("nothing")

    @rule(second=st.booleans(), data=st.data())
    def a_time_leads_to_its_version(self, second: bool, data: st.DataObject) -> None:
        store, version = self.handle(second), self.old_version(data)
        at = store.snapshot(version=version).timestamp
        assert store.snapshot(timestamp=at).version == version
        if version > self.oldest:
            assert store.snapshot(timestamp=at - timedelta(microseconds=1)).version == version - 1
        store.close()
        assert store.cache_stats.misses >= 0

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data(), least=st.integers(-9, 210))
    def sql(self, second: bool, data: st.DataObject, least: int) -> None:
        name, store = self.a_table(data), self.handle(second)
        versions = [each for each in self.readable() if name in self.versions[each]]
        version = self.one_of(data, versions)
        rows = self.versions[version][name]
        found = store.sql(_SELECT.format(name, least), version=version)
        wanted = [row for row in rows if row[0] is not None and row[0] >= least]
        assert sorted(as_rows(found), key=repr) == sorted(wanted, key=repr)
        counted = store.sql(_COUNT.format(name), version=version)
        assert counted["c"].to_pylist() == [len(rows)]

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data())
    def insert_by_sql(self, second: bool, data: st.DataObject) -> None:
        name = self.a_table(data)
        told = self.handle(second).sql(_INSERT.format(name)).to_pylist()
        rows = [*self.now[name], (5, "sql"), (None, None)]
        assert told[0]["rows"] == 2
        self.landed(told[0]["version"], {**self.now, name: rows}, {name})

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data())
    def aggregate(self, second: bool, data: st.DataObject) -> None:
        name = self.a_table(data)
        table, rows = self.handle(second).snapshot().table(name), self.now[name]
        start = data.draw(st.integers(0, len(rows)))
        stop = data.draw(st.integers(start, len(rows)))
        for position, column in enumerate(SCHEMA.names):
            values = [row[position] for row in rows[start:stop] if row[position] is not None]
            found = table.aggregate(column, start, stop)
            assert (found.count, found.null_count) == (len(values), stop - start - len(values))
            assert found.min.as_py() == min(values, default=None)
            assert found.max.as_py() == max(values, default=None)

    @precondition(lambda self: any(self.now.values()))
    @rule(second=st.booleans(), data=st.data())
    def locate(self, second: bool, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(name for name, rows in self.now.items() if rows)))
        snapshot, rows = self.handle(second).snapshot(), self.now[name]
        table = snapshot.table(name)
        directory = table.directory
        asked = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=4))
        first, last = min(asked), max(asked) + 1
        at_us = int(snapshot.timestamp.timestamp() * 1_000_000)
        for position, column in enumerate(SCHEMA.names):
            pages = [directory.lookup(page, column) for page in table.pages(column)["page_id"].to_pylist()]
            held = [value.as_py() for values in table.page_values(column, pages) for value in values]
            assert held == [row[position] for row in rows]
            where = directory.locate_rows(column, asked)
            starts = table.pages(column)["first_row"].to_pylist()
            for row, page, inside in zip(asked, where.positions, where.rows_in_page, strict=True):
                found = directory.locate_row(column, row)
                assert (found.page.page_id, found.row_in_page) == (pages[page].page_id, inside)
                assert starts[page] + inside == row
            slices = directory.locate_range(column, first, last)
            assert sum(each.stop - each.start for each in slices) == last - first
            touched = [each.page.page_id for each in slices]
            assert [page.page_id for page in directory.range(column, first, last)] == touched
            assert touched == [
                page.page_id for page in directory.get_ranged_pages_meta(column, first, last, at_us)
            ]
            assert directory.latest(column) == directory.get_latest_page_meta(column) == pages[-1]
            assert directory.chain(column).num_rows == directory.chain_of(directory.key(column)).num_rows
            with pytest.raises(RowOutOfRangeError):
                directory.locate_row(column, len(rows))
            with pytest.raises(PageNotFoundError):
                directory.lookup(2**62, column)

    @precondition(lambda self: self.now)
    @rule(second=st.booleans(), data=st.data())
    def what_a_table_says_of_itself(self, second: bool, data: st.DataObject) -> None:
        name = self.a_table(data)
        snapshot = self.handle(second).snapshot()
        table, rows = snapshot.table(name), self.now[name]
        assert (table.name, table.version, table.num_rows) == (name, snapshot.version, len(rows))
        assert (table.schema, table.columns) == (SCHEMA, SCHEMA.names)
        blocks = table.blocks("n")
        of_n = [each for each in blocks.to_pylist() if each["column"] == "n"]
        assert sum(each["end_row"] - each["first_row"] for each in of_n) == len(rows)
        passing = sum(n is not None and n > 2 for n, _ in rows)
        assert passing <= table.explain(filter="n > 2").rows <= len(rows)

    @rule(second=st.booleans(), data=st.data())
    def history_and_changes(self, second: bool, data: st.DataObject) -> None:
        store = self.handle(second)
        history = store.history()
        done = history.filter(pc.field("transaction").is_valid())
        upkeep = history.filter(pc.field("transaction").is_null())
        told = done["version"].to_pylist()
        assert told == sorted(told, reverse=True)
        assert set(told) == set(range(self.oldest, len(self.versions)))
        assert store.history(limit=1).equals(history.slice(0, 1))
        notes = upkeep.select(["operation", "timestamp", "read_version"]).to_pylist()
        assert len({tuple(note.values()) for note in notes}) == len(notes)
        known = upkeep.filter(pc.field("version").is_valid())
        assert pc.all(pc.less(known["read_version"], known["version"]), min_count=0).as_py()
        start = self.old_version(data)
        end = self.one_of(data, list(range(start, len(self.versions))))
        moved = store.changes(start + 1, end).to_pylist()
        purges = history.filter(pc.field("operation") == "purge")["version"].to_pylist()  # of dropped tables
        changing = {each["version"] for each in moved if each["data_change"]} - set(purges)
        assert changing <= {version for version in range(start + 1, end + 1) if self.wrote[version]}
        grown = store.changes(start + 1, end, granularity="rows").to_pylist()
        for name in self.now.keys() & self.versions[start].keys() & self.versions[end].keys():
            of = [each for each in grown if each["table"] == name]
            if not of and name not in set().union(*self.wrote[start + 1 : end + 1]):
                assert self.versions[start][name] == self.versions[end][name]

    @precondition(lambda self: any(self.now.values()))
    @rule(second=st.booleans(), data=st.data())
    def blame(self, second: bool, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(name for name, rows in self.now.items() if rows)))
        row = data.draw(st.integers(0, len(self.now[name]) - 1))
        for position, column in enumerate(SCHEMA.names):
            blamed = self.handle(second).blame(name, column, row)
            assert 0 <= blamed.version < len(self.versions)
            assert not blamed.exact or self.wrote[blamed.version]
            assert any(
                len(rows) > row and rows[row][position] == self.now[name][row][position]
                for rows in self.versions[blamed.version].values()
            )
