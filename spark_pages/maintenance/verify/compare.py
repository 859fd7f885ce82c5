"""Two ways to one version, compared: a checkpoint, and an earlier state with the commits since. Streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from spark_pages.arrow.schema_bytes import schema_to_bytes
from spark_pages.log.checkpoint.reader import Checkpoint
from spark_pages.log.checkpoint.root import description_digest
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.maintenance.verify.pages import stream
from spark_pages.model.chain import ColumnChain
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.page import PageKind
from spark_pages.model.run import PageRun
from spark_pages.model.table import TableDefinition

_SMALL = (
    "version", "timestamp_us", "token", "digest", "features", "next_table_id", "apps", "properties", "tags",
    "leases", "retention",
)  # fmt: skip
_ALIKE = ("page_id", "entry_count", "payload_entries", "actual_len", "checksum")


def differences(
    replayed: LogState, before: Checkpoint | None, shown: Checkpoint, changed: Iterable[ChainKey]
) -> Iterator[str]:
    """What a checkpoint says otherwise than the log does.

    Parameters
    ----------
    replayed
        The state of the checkpoint's version by replay from `before`, or from commit 0 if that is None.
    shown
        The checkpoint.
    changed
        Chains to compare page by page.

    Notes
    -----
    Memory for a few segments, and for the pages added in between.
    """
    state = shown.root.state
    for name in _SMALL:
        told, expected = getattr(state, name), getattr(replayed, name)
        if _plain(told) != _plain(expected):
            yield f"says {name} is {told!r}, but the log says {expected!r}"
    if sorted(map(repr, state.claims)) != sorted(map(repr, replayed.claims)):
        yield "holds other claims than the log"
    snapshot = LogSnapshot(replayed, before)
    told_tables, expected_tables = shown.tables(), snapshot.tables()
    if [described(d) for d in told_tables] != [described(d) for d in expected_tables]:
        yield "has catalog files with other tables than the intents of the log give"
    told_zero = [each for each in told_tables if each.table_id == CATALOG_TABLE]
    if shown.root.table_zero and [shown.root.table_zero] != [description_digest(each) for each in told_zero]:
        yield "says of table 0 what it does not say of itself"
    for key in changed:
        pieces = ColumnChain(before.chain(key) if before else []).apply(replayed.edits.get(key, ())).pieces
        position = first_difference(stream(pieces), stream(shown.chain(key)))
        if position is not None:
            yield f"holds other pages of column {key[1]} of table {key[0]} than the log, from page {position}"


def described(definition: TableDefinition) -> tuple[object, ...]:
    """A definition in a form that compares schemas with their metadata."""
    return (
        definition.table_id,
        definition.namespace_id,
        definition.name,
        schema_to_bytes(definition.schema),
        definition.next_field_id,
        definition.aligned,
        dict(definition.properties),
        definition.created_at_us,
    )


def first_difference(one: Iterable[PageRun], other: Iterable[PageRun]) -> int | None:
    """Position of the first run at which two chains differ, whatever runs they are cut into."""
    ones, others = iter(one), iter(other)
    mine, yours = next(ones, None), next(others, None)
    position = 0
    while mine is not None and yours is not None:
        pages = min(mine.num_pages, yours.num_pages)
        if not _same(mine.slice(0, pages), yours.slice(0, pages)):
            return position
        position += pages
        mine = mine.slice(pages, mine.num_pages) if pages < mine.num_pages else next(ones, None)
        yours = yours.slice(pages, yours.num_pages) if pages < yours.num_pages else next(others, None)
    return None if mine is None and yours is None else position


def _same(one: PageRun, other: PageRun) -> bool:
    if any(not one.pages.column(name).equals(other.pages.column(name)) for name in _ALIKE):
        return False
    kinds = [run.numbers("kind") == PageKind.CONSTANT for run in (one, other)]
    if (kinds[0] != kinds[1]).any():
        return False
    if kinds[0].any():
        data = [run.pages.column("data").filter(kinds[0]) for run in (one, other)]
        if not data[0].equals(data[1]):
            return False
    return bool(one.stats.equals(other.stats))


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "items") else value
