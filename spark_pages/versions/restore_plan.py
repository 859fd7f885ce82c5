"""What restore has to do: from the commits since a version to splices and intents that undo them. Pure.

It reads descriptors and definitions, as far as commits touched them, and never a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.columns import flags_of, number_column
from spark_pages.arrow.nested import null_scalar
from spark_pages.catalog.differences import Difference
from spark_pages.catalog.evolution import with_pages_of
from spark_pages.catalog.references import finder, new_references
from spark_pages.catalog.resolve import show_name
from spark_pages.changes.row_changes import ChainTrace, Changes
from spark_pages.display.markup import card, joined, table, tag
from spark_pages.display.text import count
from spark_pages.errors import InvalidInputError
from spark_pages.format.names import LOCATION_PROPERTY
from spark_pages.log.commit_times import RESETS_PROPERTY
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import CatalogIntent, Splice
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import CATALOG_TABLE, FieldId, TableId
from spark_pages.model.immutable import freeze
from spark_pages.model.page_schema import PAGE_SCHEMA, STATS_SCHEMA, concat_batches, empty_batch
from spark_pages.model.row_ranges import RowRanges, union
from spark_pages.model.run import PageRun
from spark_pages.model.table import TableDefinition
from spark_pages.transaction.staged import StagedDdl


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class RestorePlan:
    """What has to be done to the newest version to make it like an earlier one.

    Attributes
    ----------
    splices
        Old pages in the place of newer ones; ``[start, stop)`` counts in `pages`.
    pages, stats
        The old pages, described anew: same bytes, other ids.
    intents
        Tables dropped, altered back and brought back, and what these refer to.
    ended, described
        Tables whose rows in table 0 end, and those that it describes anew.
    properties
        Properties of the store to set; None takes one away.
    changes
        What becomes of tables, namespaces and types, for the history.
    """

    splices: tuple[Splice, ...]
    pages: pa.RecordBatch
    stats: pa.RecordBatch
    intents: tuple[CatalogIntent, ...]
    ended: tuple[TableId, ...]
    described: tuple[TableDefinition, ...]
    properties: Mapping[str, str | None]
    changes: tuple[Difference, ...] = ()

    def __post_init__(self) -> None:
        freeze(self, "properties")

    @property
    def empty(self) -> bool:
        """Whether everything is as it was."""
        return not (self.splices or self.intents or self.properties)

    def __repr__(self) -> str:
        return (
            f"RestorePlan({count(self.pages.num_rows, 'page')} back in {count(len(self.splices), 'splice')}, "
            f"{count(len(self.intents), 'catalog change')}, {len(self.properties)} properties)"
        )

    def _repr_html_(self) -> str:
        rows = [
            [each.table_id, each.field_id, each.first_row, len(each.removed), each.stop - each.start]
            for each in self.splices
        ]
        changes = [[each.kind.value, each.name] for each in self.intents]
        return card(
            joined(tag("b", "plan of a restore"), f" · {self!r}"),
            table(["table id", "field id", "from row", "pages out", "pages back"], rows) if rows else "",
            table(["change", "table"], changes) if changes else "",
        )


def plan_restore(then: LogSnapshot, head: LogSnapshot, changes: Changes) -> RestorePlan:
    """Plan the changes that make `head` equal to `then`.

    Parameters
    ----------
    changes
        What the commits after `then` did, up to and with `head`.

    Raises
    ------
    InvalidInputError
        If a table has been purged since.
    """
    ddl = StagedDdl()
    live: dict[int, TableDefinition] | None = None
    if changes.tables:
        live = _by_id(then)
        gone = sorted(changes.purged.keys() & live.keys())
        if gone:
            raise InvalidInputError(
                f"Cannot restore version {then.state.version}: table {show_name(live[gone[0]])!r} was "
                f"purged in version {changes.purged[gone[0]]}, and a purged table does not come back.",
                hint=f"Restore version {changes.purged[gone[0]]} or a later one.",
            )
        ddl = _plan_catalog(live, _by_id(head), changes)
    splices: list[Splice] = []
    runs: list[PageRun] = []
    start = 0
    for key in sorted(changes.traces):
        if live is not None and (key[0] not in live or key not in live[key[0]].chains):
            continue
        for splice, run in _plan_chain(key, then, head, changes.traces[key]):
            splices.append(replace(splice, start=start, stop=start + run.num_pages))
            runs.append(run)
            start += run.num_pages
    pages, stats = _renumbered_pages(runs)
    return RestorePlan(
        tuple(splices),
        pages,
        stats,
        tuple(ddl.intents()),
        tuple(ddl.ended()),
        tuple(ddl.described()),
        _plan_properties(then.state.properties, head.state.properties),
        tuple(ddl.differences()),
    )


def _by_id(snapshot: LogSnapshot) -> dict[int, TableDefinition]:
    return {d.table_id: d for d in snapshot.tables() if d.table_id != CATALOG_TABLE}


def _plan_properties(then: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str | None]:
    changed: dict[str, str | None] = {name: value for name, value in then.items() if now.get(name) != value}
    new = (name for name in now.keys() - then.keys() if not name.startswith(LOCATION_PROPERTY))
    plan = changed | dict.fromkeys(new)
    plan.pop(RESETS_PROPERTY, None)  # it dates all versions, also those after the restored one
    return plan


def _plan_catalog(
    then: Mapping[int, TableDefinition], now: Mapping[int, TableDefinition], changes: Changes
) -> StagedDdl:
    """Plan the changes of tables, namespaces and types, as verbs would stage them."""
    ddl = StagedDdl()
    find = finder(then.values())
    for table_id in now.keys() - then.keys():
        ddl.drop(now[table_id])
    for table_id, wanted in then.items():
        newest = max(wanted.next_field_id, changes.next_field_ids.get(table_id, 0))
        definition = replace(wanted, next_field_id=newest)
        if table_id in changes.newest:
            definition = with_pages_of(definition, changes.newest[table_id])
        before = now.get(table_id)
        if before is None:
            ddl.restored[definition.table_id] = definition
        elif not _same_definition(definition, before):
            ddl.alter(before, definition)
            for field, field_id in zip(definition.schema, definition.field_ids.values(), strict=True):
                if field.nullable and field_id not in before.field_ids.values():
                    ddl.defaults[definition.table_id, field_id] = null_scalar(field.type)
        else:
            continue
        for needed in filter(None, map(find, new_references(before, definition))):
            ddl.require(needed)
    return ddl


def _same_definition(one: TableDefinition, two: TableDefinition) -> bool:
    """Whether two definitions of a table differ in nothing that restore would change."""
    return (
        one.schema.equals(two.schema, check_metadata=True)
        and replace(one, schema=two.schema, next_field_id=two.next_field_id) == two
    )


def _plan_chain(
    key: ChainKey, then: LogSnapshot, head: LogSnapshot, trace: ChainTrace
) -> list[tuple[Splice, PageRun]]:
    """Splices that make one chain hold its old rows, each with the old pages that it puts in.

    Places where pages were only compacted keep their newer pages: the rows in them are the old ones. Pages
    that an earlier restore has brought back already stay too.
    """
    differs = union([trace.updated, RowRanges.of(trace.kept, trace.rows_before)])
    places = [(begin, end) for begin, end in trace.replaced_ranges().tolist()]
    old, new = (snapshot.chain(key).runs_between(places) for snapshot in (then, head))
    planned = []
    for (begin, _), was, now, ends in zip(places, old, new, _equal_ends(old, new), strict=True):
        front, back = ends
        goes, comes = (run.slice(front, run.num_pages - back) for run in (now, was))
        if goes.num_pages or comes.num_pages:
            planned.append((_exchange(key, begin + was.rows_before(front), goes, comes, differs), comes))
    return planned


def _exchange(key: ChainKey, first_row: int, goes: PageRun, comes: PageRun, differs: RowRanges) -> Splice:
    """Create the splice that replaces pages; where its pages are listed is set later."""
    inside = differs.between(first_row, first_row + comes.num_rows)
    return Splice(
        TableId(key[0]),
        FieldId(key[1]),
        first_row,
        tuple(goes.page_ids.tolist()),
        goes.num_rows,
        0,
        0,
        0,
        comes.num_rows,
        data_change=bool(len(inside.starts)) or goes.num_rows != comes.num_rows,
        touched=tuple(zip(inside.starts.tolist(), inside.ends.tolist(), strict=True)),
    )


def _equal_ends(old: Sequence[PageRun], new: Sequence[PageRun]) -> list[tuple[int, int]]:
    """How many pages at the front, and at the back, have the same bytes and entry counts in both runs.

    Parameters
    ----------
    old, new
        Runs two by two. Their pages are compared together, because Arrow takes as long for one.

    Notes
    -----
    Pages at the back may stay only where no row moves.
    """
    both = list(zip(old, new, strict=True))
    shorter = [min(was.num_pages, now.num_pages) for was, now in both]
    differ = _differing_positions(
        [was.slice(0, n) for was, n in zip(old, shorter, strict=True)],
        [now.slice(0, n) for now, n in zip(new, shorter, strict=True)],
    )
    fronts = [int(found[0]) if len(found) else n for found, n in zip(differ, shorter, strict=True)]
    rest = [
        n - front if was.num_rows == now.num_rows else 0
        for (was, now), n, front in zip(both, shorter, fronts, strict=True)
    ]
    differ = _differing_positions(
        [was.slice(was.num_pages - n, was.num_pages) for was, n in zip(old, rest, strict=True)],
        [now.slice(now.num_pages - n, now.num_pages) for now, n in zip(new, rest, strict=True)],
    )
    backs = [n - 1 - int(found[-1]) if len(found) else n for found, n in zip(differ, rest, strict=True)]
    return list(zip(fronts, backs, strict=True))


def _differing_positions(old: Sequence[PageRun], new: Sequence[PageRun]) -> list[NDArray[np.intp]]:
    """Of runs of the same lengths, two by two: places of the pages that differ in more than their ids."""
    if not old:
        return []
    alike = _equal_pages(PageRun.concat(old).pages, PageRun.concat(new).pages)
    ends = np.cumsum([run.num_pages for run in old])
    return [np.flatnonzero(~part) for part in np.split(alike, ends[:-1])]


def _equal_pages(old: pa.RecordBatch, new: pa.RecordBatch) -> NDArray[np.bool_]:
    """Which pages of two batches of the same length are the same but for their ids."""
    alike = np.ones(old.num_rows, dtype=bool)
    for field in PAGE_SCHEMA:
        left, right = old.column(field.name), new.column(field.name)
        if field.name == "path":
            left, right = left.cast(pa.string()), right.cast(pa.string())
        if field.name != "page_id":
            equal = pc.or_kleene(pc.equal(left, right), pc.and_(left.is_null(), right.is_null()))
            alike &= flags_of(equal)
    return alike


def _renumbered_pages(runs: list[PageRun]) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Join runs into one batch, with ordinals as ids and only the paths that are used."""
    if not runs:
        return empty_batch(PAGE_SCHEMA), empty_batch(STATS_SCHEMA)
    pages = concat_batches([run.pages for run in runs], PAGE_SCHEMA)
    stats = concat_batches([run.stats for run in runs], STATS_SCHEMA)
    columns = {
        "page_id": number_column(np.arange(pages.num_rows, dtype=np.int64), pa.int64()),
        "path": pages.column("path").cast(pa.string()).dictionary_encode(),
    }
    arrays = [columns.get(name, pages.column(name)) for name in PAGE_SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=PAGE_SCHEMA), stats
