"""Commits for tests, by hand and by hypothesis."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from spark_pages.format.commit import encode_commit, with_digest
from spark_pages.format.page_columns import pages_to_avro
from spark_pages.model.actions import (
    CatalogIntent,
    CheckpointRef,
    Claim,
    Commit,
    IntentKind,
    Lease,
    ManifestRef,
    Retention,
    Splice,
    Tag,
    TransactionRecord,
)
from spark_pages.model.added_pages import AddedPages, NewPage, page_batches
from spark_pages.model.location import Location
from spark_pages.model.page import BloomLocation, PageKind, PageStats
from spark_pages.model.table import TableDefinition, with_field_ids

SCHEMA = with_field_ids(pa.schema([("a", pa.int64()), pa.field("b", pa.string(), nullable=False)]))


def token(number: int) -> str:
    return f"{number:032x}"


def pages(counts: list[int]) -> dict[str, Any]:
    """The pages and statistics of a record, one page for each entry count."""
    batch, stats = page_batches(
        [
            NewPage(n, n, PageKind.FILE, "pages/x", 4096 * i, 4096, 80, i, None, PageStats(0))
            for i, n in enumerate(counts)
        ]
    )
    return {"own": AddedPages(batch, stats)}


def as_read(own: AddedPages) -> dict[str, Any]:
    """What `pages_to_avro` gives, with lists as Python has them: so they are read."""
    value = pages_to_avro(own)
    return {name: each.to_pylist() if isinstance(each, pa.Array) else each for name, each in value.items()}


def record(number: int = 1, counts: tuple[int, ...] = (), **given: Any) -> TransactionRecord:
    return TransactionRecord(
        **{
            "token": token(number),
            "operation": "test",
            "read_version": 0,
            "writer": "someone",
            **pages(list(counts)),
            **given,
        }
    )


def append(table: int, field: int, index: int, count: int) -> Splice:
    return Splice(table, field, 0, (), 0, 0, index, index + 1, count)


def swap(table: int, field: int, removed: tuple[int, ...], entries: int, added: int, **given: Any) -> Splice:
    return Splice(table, field, 0, removed, entries, 0, 0, 0, added, **given)


def create(table: int, name: str) -> CatalogIntent:
    return CatalogIntent(IntentKind.CREATE, table, 0, name, definition(table, name))


def definition(table: int, name: str) -> TableDefinition:
    return TableDefinition(table, name, SCHEMA, 3, properties={"p": "q"}, created_at_us=5)


def commit(version: int, *records: TransactionRecord, parent: Commit | None = None, **given: Any) -> Commit:
    """A commit with the digest that its bytes have."""
    made = Commit(
        version,
        1_000 + version,
        given.pop("token", token(1_000 + version)),
        parent.digest if parent else "",
        records,
        **given,
    )
    return with_digest(made, encode_commit(made)[1])


i64 = st.integers(-(2**63), 2**63 - 1)
count = st.integers(0, 2**62)
text = st.text(max_size=8)
tokens = st.binary(min_size=16, max_size=16).map(bytes.hex)
maps = st.dictionaries(text, text, max_size=3)
locations = st.builds(Location, text, count, text, count, count, st.booleans())
blooms = st.builds(BloomLocation, count, st.integers(0, 2**31 - 1), st.integers(0, 2**64 - 1))
page_stats = st.builds(
    PageStats,
    count,
    st.none() | st.binary(max_size=4),
    st.none() | st.binary(max_size=4),
    st.booleans(),
    st.none() | count,
    st.none() | blooms,
    st.booleans(),
)


@st.composite
def new_page(draw: st.DrawFn) -> NewPage:
    """A page with numbers that can be true, which reach as far as they may."""
    kind = draw(st.sampled_from(PageKind))
    rows, in_file = draw(st.integers(0, 2**59)), kind is PageKind.FILE
    alloc_len = 4096 * draw(st.integers(1, 2**19 - 1)) if in_file else 0
    return NewPage(
        rows,
        rows if kind is PageKind.CONSTANT else draw(count),
        kind,
        draw(st.sampled_from(["pages/a", "pages/b"])) if in_file else None,
        4096 * draw(st.integers(0, 2**49)) if in_file else 0,
        alloc_len,
        draw(st.integers(64, alloc_len or 2**31 - 1)),
        draw(st.integers(0, 2**64 - 1)),
        None if in_file else draw(st.binary(max_size=8)),
        draw(page_stats),
    )


new_pages = new_page()
field_ids = st.integers(0, 2**31 - 1)
rows = st.integers(0, 2**60)
splices = st.builds(
    Splice,
    count,
    field_ids,
    rows,
    st.lists(st.integers(0, 2**63 - 1), max_size=3).map(tuple),
    rows,
    st.integers(0, 3),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    rows,
    st.booleans(),
    st.lists(st.tuples(count, count), max_size=3).map(tuple),
)


@st.composite
def intents(draw: st.DrawFn) -> CatalogIntent:
    table, namespace, name = draw(count), draw(i64), draw(text)
    told = st.builds(
        TableDefinition,
        st.just(table),
        st.just(name),
        st.just(SCHEMA),
        field_ids,
        st.just(namespace),
        st.booleans(),
        maps,
        count,
    )
    return CatalogIntent(draw(st.sampled_from(IntentKind)), table, namespace, name, draw(st.none() | told))


@st.composite
def records(draw: st.DrawFn) -> TransactionRecord:
    listed = draw(st.lists(new_pages, max_size=4))
    batch, stats = page_batches(listed)
    few = {"max_size": 2}
    return TransactionRecord(
        token=draw(tokens),
        operation=draw(text),
        read_version=draw(st.integers(-1, 2**35)),
        writer=draw(text),
        own=AddedPages(batch, stats) if draw(st.booleans()) else AddedPages.of(listed),
        parameters=draw(maps),
        app_id=draw(st.none() | text),
        app_version=draw(st.none() | i64),
        base_ordinal=draw(st.integers(0, 2**28 - 4)),
        manifests=tuple(
            draw(
                st.lists(
                    st.builds(ManifestRef, locations, st.integers(0, 2**27), st.integers(0, 2**27)), **few
                )
            )
        ),
        splices=tuple(draw(st.lists(splices, **few))),
        intents=tuple(draw(st.lists(intents(), **few))),
        tags=tuple(draw(st.lists(st.builds(Tag, text, st.none() | count), **few))),
        leases=tuple(draw(st.lists(st.builds(Lease, text, count, count), **few))),
        claims=tuple(
            draw(st.lists(st.builds(Claim, i64, field_ids, count, count, text, count, count), **few))
        ),
        retention=draw(st.none() | st.builds(Retention, count, count)),
        properties=draw(maps),
    )


commits = st.builds(
    Commit,
    st.integers(0, 2**35 - 1),
    count,
    tokens,
    st.sampled_from(["", "ab" * 32]),
    st.lists(records(), min_size=1, max_size=2).map(tuple),
    st.none() | st.builds(CheckpointRef, count, locations),
)


def _comparable(each: TransactionRecord) -> dict[str, Any]:
    plain = {name: getattr(each, name) for name in TransactionRecord.__dataclass_fields__}
    plain["pages"] = each.pages.to_pylist()
    plain["stats"] = each.stats.to_pylist()
    del plain["own"]
    return plain


def same(one: Commit, two: Commit) -> bool:
    """Whether two commits say the same, apart from what they are only given by being in storage."""
    names = [name for name in Commit.__dataclass_fields__ if name not in ("digest", "size_bytes", "records")]
    return all(getattr(one, name) == getattr(two, name) for name in names) and (
        [_comparable(each) for each in one.records] == [_comparable(each) for each in two.records]
    )
