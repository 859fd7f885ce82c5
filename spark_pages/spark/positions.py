"""Where the pages of every splice stand: a fold over small tables of counts. Pure, runs on the driver.

Executors count (rows of each chain in each segment; rows that each splice removes and adds); this
module turns the counts into first rows; executors then give every page its absolute first row on their
own. The pages themselves never pass through the driver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_pages.format.checkpoint_tree import Node
from spark_pages.model.actions import CatalogIntent, IntentKind
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.table import TableDefinition

SpliceName = tuple[int, int, int]
"""Version, number of the record in the commit, number of the splice in the record."""


@dataclass(frozen=True, slots=True)
class SegmentCount:
    """Rows of one chain in one segment; segments are numbered base first, then tail runs."""

    segment: int
    key: ChainKey
    rows: int
    empty_pages: int = 0


@dataclass(frozen=True, slots=True)
class SpliceCount:
    """What one splice does to the length of its chain, and how many of the pages that it brings are empty."""

    record: int
    splice: int
    key: ChainKey
    first_row: int
    removes: bool
    removed_entries: int
    added_entries: int
    empty_pages: int = 0


@dataclass(frozen=True, slots=True)
class CommitCount:
    """Splices and catalog intents of one commit, in order.

    Removed page ids are bytes of int64. Intents come with their record.
    """

    version: int
    intents: tuple[tuple[int, CatalogIntent], ...]
    splices: tuple[SpliceCount, ...]
    removed: bytes = b""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything that is still there begins.

    Attributes
    ----------
    chains
        The chains of the live tables.
    segments
        First row of a chain in a segment, by ``(segment, chain)``.
    splices
        First row of the pages that a splice adds, by ``(version, record, splice)``.
    """

    chains: frozenset[ChainKey]
    segments: Mapping[tuple[int, ChainKey], int]
    splices: Mapping[SpliceName, int]


def count_of_node(number: int, node: Node) -> list[SegmentCount] | None:
    """Return the counts of a segment without reading it; None if it spans a whole chain in its middle."""
    counts = [SegmentCount(number, node.first, node.first_rows)]
    if node.last != node.first:
        counts.append(SegmentCount(number, node.last, node.last_rows))
    told = node.first_pages + (node.last_pages if node.last != node.first else 0)
    return counts if told == node.pages else None


def chains_with_ties(segments: Iterable[SegmentCount], commits: Iterable[CommitCount]) -> frozenset[ChainKey]:
    """Chains that can have two pages without rows, whose order first rows do not tell."""
    empty: Counter[ChainKey] = Counter()
    for segment in segments:
        empty[segment.key] += segment.empty_pages
    for commit in commits:
        for splice in commit.splices:
            empty[splice.key] += splice.empty_pages
    return frozenset(key for key, pages in empty.items() if pages > 1)


def fold_counts(
    segments: Iterable[SegmentCount], commits: Iterable[CommitCount], tables: Iterable[TableDefinition]
) -> Layout:
    """Return the layout after all commits.

    Parameters
    ----------
    segments, tables
        Of the checkpoint.
    commits
        Those after it.

    Notes
    -----
    Relies on what the log promises: a splice that removes pages begins where it says, because until it was
    committed only row-preserving changes happened before it; an append goes behind what is there.
    """
    fold = _Fold(tables)
    for segment in sorted(segments, key=lambda each: each.segment):
        fold.segment(segment)
    for commit in sorted(commits, key=lambda each: each.version):
        fold.commit(commit)
    return fold.layout()


class _Fold:
    """The layout so far, of tables that are not live too: they may come back."""

    def __init__(self, tables: Iterable[TableDefinition]) -> None:
        self._tables = {definition.table_id: definition for definition in tables}
        self._totals: dict[ChainKey, int] = {}
        self._segments: dict[tuple[int, ChainKey], int] = {}
        self._splices: dict[SpliceName, tuple[ChainKey, int]] = {}

    def layout(self) -> Layout:
        live = frozenset(key for definition in self._tables.values() for key in definition.chains)
        return Layout(
            live,
            {(segment, key): row for (segment, key), row in self._segments.items() if key in live},
            {name: row for name, (key, row) in self._splices.items() if key in live},
        )

    def segment(self, segment: SegmentCount) -> None:
        row = self._totals.get(segment.key, 0)
        self._segments[segment.segment, segment.key] = row
        self._totals[segment.key] = row + segment.rows

    def commit(self, commit: CommitCount) -> None:
        steps: list[tuple[int, int, CatalogIntent | SpliceCount]] = [
            *((record, 0, intent) for record, intent in commit.intents),
            *((splice.record, 1, splice) for splice in commit.splices),
        ]
        for _, _, step in sorted(steps, key=lambda each: each[:2]):
            if isinstance(step, CatalogIntent):
                self._intent(step)
            else:
                self._splice(commit.version, step)

    def _splice(self, version: int, splice: SpliceCount) -> None:
        total = self._totals.get(splice.key, 0)
        row = splice.first_row if splice.removes else total
        self._splices[version, splice.record, splice.splice] = (splice.key, row)
        self._totals[splice.key] = total + splice.added_entries - splice.removed_entries

    def _intent(self, intent: CatalogIntent) -> None:
        match intent.kind:
            case IntentKind.CREATE | IntentKind.ALTER | IntentKind.UNDROP:
                if intent.definition is not None:
                    self._tables[intent.table_id] = intent.definition
            case IntentKind.DROP:
                self._tables.pop(intent.table_id, None)
            case IntentKind.TRUNCATE | IntentKind.PURGE:
                self._clear(intent.table_id)
            case IntentKind.REQUIRE:
                pass

    def _clear(self, table_id: int) -> None:
        """Nothing that was there before is there any more."""
        self._totals = {key: rows for key, rows in self._totals.items() if key[0] != table_id}
        self._segments = {
            (segment, key): row for (segment, key), row in self._segments.items() if key[0] != table_id
        }
        self._splices = {name: (key, row) for name, (key, row) in self._splices.items() if key[0] != table_id}
