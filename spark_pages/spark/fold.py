"""Where the pages of every splice stand: a fold over small tables of counts. Pure, runs on the driver.

Executors count (rows of each chain in each segment; rows that each splice removes and adds); this
module turns the counts into first rows; executors then give every page its absolute first row on their
own. The pages themselves never pass through the driver.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from spark_pages.model.actions import CatalogIntent, IntentKind
from spark_pages.model.chain import ChainKey
from spark_pages.model.table import TableDefinition


@dataclass(frozen=True, slots=True)
class SegmentCount:
    """Rows of one chain in one segment; segments are numbered base first, then tail runs."""

    segment: int
    key: ChainKey
    rows: int


@dataclass(frozen=True, slots=True)
class SpliceCount:
    """What one splice does to the length of its chain."""

    record: int
    splice: int
    key: ChainKey
    first_row: int
    removes: bool
    removed_entries: int
    added_entries: int


@dataclass(frozen=True, slots=True)
class CommitCount:
    """All splices and catalog intents of one commit, in order; intents come with their record."""

    version: int
    intents: tuple[tuple[int, CatalogIntent], ...]
    splices: tuple[SpliceCount, ...]


@dataclass
class Layout:
    """Where everything begins.

    Attributes
    ----------
    segments
        First row of a chain in a segment, by ``(segment, chain)``.
    splices
        First row of the pages that a splice adds, by ``(version, record, splice)``.
    dead
        Splices whose pages a later truncation removed.
    cleared
        Tables whose checkpointed pages a truncation removed.
    live
        Definitions of the live tables by id.
    """

    segments: dict[tuple[int, ChainKey], int] = field(default_factory=dict)
    splices: dict[tuple[int, int, int], int] = field(default_factory=dict)
    dead: set[tuple[int, int, int]] = field(default_factory=set)
    cleared: set[int] = field(default_factory=set)
    live: dict[int, TableDefinition] = field(default_factory=dict)

    def chains(self) -> set[ChainKey]:
        """The chains of the live tables."""
        return {(d.table_id, field_id) for d in self.live.values() for field_id in d.field_ids.values()}


def fold_counts(
    segments: Iterable[SegmentCount], commits: Iterable[CommitCount], tables: Iterable[TableDefinition]
) -> Layout:
    """The layout after all commits.

    Notes
    -----
    Relies on what the log promises: a splice that removes pages begins where it says, because until it was
    committed only row-preserving changes happened before it; an append goes behind what is there.
    """
    layout = Layout(live={definition.table_id: definition for definition in tables})
    totals: dict[ChainKey, int] = {}
    placed: dict[int, list[tuple[int, int, int]]] = {}
    for segment in sorted(segments, key=lambda each: each.segment):
        rows = totals.get(segment.key, 0)
        layout.segments[segment.segment, segment.key] = rows
        totals[segment.key] = rows + segment.rows
    for commit in sorted(commits, key=lambda each: each.version):
        steps: list[tuple[int, int, CatalogIntent | SpliceCount]] = [
            *((record, 0, intent) for record, intent in commit.intents),
            *((splice.record, 1, splice) for splice in commit.splices),
        ]
        for _, _, step in sorted(steps, key=lambda each: each[:2]):
            if isinstance(step, CatalogIntent):
                _intent(layout, totals, placed, step)
                continue
            name = (commit.version, step.record, step.splice)
            total = totals.get(step.key, 0)
            layout.splices[name] = step.first_row if step.removes else total
            placed.setdefault(step.key[0], []).append(name)
            totals[step.key] = total + step.added_entries - step.removed_entries
    return layout


def _intent(
    layout: Layout,
    totals: dict[ChainKey, int],
    placed: dict[int, list[tuple[int, int, int]]],
    intent: CatalogIntent,
) -> None:
    table_id = intent.table_id
    match intent.kind:
        case IntentKind.CREATE | IntentKind.ALTER | IntentKind.UNDROP:
            if intent.definition is not None:
                layout.live[table_id] = intent.definition
        case IntentKind.DROP:
            layout.live.pop(table_id, None)
        case IntentKind.TRUNCATE | IntentKind.PURGE:
            layout.cleared.add(table_id)
            layout.dead.update(placed.pop(table_id, ()))
            for key in [key for key in totals if key[0] == table_id]:
                del totals[key]
        case IntentKind.REQUIRE:
            pass
