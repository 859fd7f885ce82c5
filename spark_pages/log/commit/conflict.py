"""When a transaction may be rebased over another one. Pure: decided on actions alone.

The rules are those of `docs/format.md` ("Rebase"). A run of pages stays contiguous exactly as long
as nobody removes one of its pages, because a splice that puts pages in removes at least one, unless
it appends. So no chain has to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from spark_pages.display.text import count
from spark_pages.model.actions import CatalogIntent, IntentKind, Splice, TransactionRecord
from spark_pages.model.ids import CATALOG_TABLE, LIVENESS
from spark_pages.model.row_ranges import RowRanges, intersection
from spark_pages.model.table import NAMESPACE_NAMES, TYPE_NAMES

_CHANGES_TABLE = frozenset(
    {IntentKind.ALTER, IntentKind.DROP, IntentKind.UNDROP, IntentKind.TRUNCATE, IntentKind.PURGE}
)


Named = Callable[[int, int | None], str]
"""How people call a table, or a column of it, given their ids."""


def by_ids(table_id: int, field_id: int | None = None) -> str:
    """``table 3`` or ``column 1 of table 3``, where nobody knows a name."""
    return f"table {table_id}" if field_id is None else f"column {field_id} of table {table_id}"


@dataclass(frozen=True, slots=True)
class Overlap:
    """Why two transactions cannot both happen as they were read.

    Attributes
    ----------
    version, writer, operation
        The transaction that was there first; without a writer where nothing tells any more whose it was.
    what
        What both touch, for people.
    chains
        Table and field ids of the chains that both change.
    """

    version: int
    writer: str
    operation: str
    what: str
    chains: tuple[tuple[int, int], ...] = ()


def only_appends(record: TransactionRecord) -> bool:
    """Whether a transaction does nothing but put pages behind others: two such never conflict."""
    return not (
        record.intents
        or record.retention
        or record.tags
        or record.leases
        or record.claims
        or any(splice.removed or splice.field_id == LIVENESS for splice in record.splices)
    )


def without_pages(mine: TransactionRecord) -> TransactionRecord:
    """Return the transaction for `find_overlap` without pages that it only replaces by equal rows.

    For a transaction whose rows are compared in their place, and that says anew which pages hold them.
    Splices of a liveness chain lengthen it no more: where it ends is found anew, too.
    """

    def without(splice: Splice) -> Splice:
        if splice.field_id == LIVENESS:
            return replace(splice, removed=(), added_entries=splice.removed_entries)
        return replace(splice, removed=()) if splice.row_preserving else splice

    return replace(mine, splices=tuple(map(without, mine.splices)))


def find_overlap(
    mine: TransactionRecord,
    version: int,
    landed: Iterable[TransactionRecord],
    reads: frozenset[int] = frozenset(),
    named: Named = by_ids,
) -> Overlap | None:
    """Return the first reason why `mine` conflicts with a commit; None if it does not.

    Parameters
    ----------
    mine
        A transaction that has not seen them.
    version, landed
        The commit's version and transactions.
    reads
        Tables whose rows `mine` relies on; table 0 stands for which tables there are, and how they are made.
    named
        How `mine` calls tables and columns.
    """
    for other in landed:
        what = (
            _names(mine, other)
            or _tables(mine, other)
            or _pages(mine, other, named)
            or _liveness(mine, other, named)
            or _reads(reads, other, named)
            or _retention(mine, other)
            or _claims(mine, other, named)
        )
        if what is not None:
            return Overlap(version, other.writer, other.operation, what, shared_chains(mine, other))
    return None


def shared_chains(mine: TransactionRecord, other: TransactionRecord) -> tuple[tuple[int, int], ...]:
    """Chains that both change, table 0 apart."""
    touched = [{(s.table_id, s.field_id) for s in each.splices if s.table_id} for each in (mine, other)]
    return tuple(sorted(touched[0] & touched[1]))


def _created(record: TransactionRecord) -> set[int]:
    return {intent.table_id for intent in record.intents if intent.kind is IntentKind.CREATE}


def _object_name(intent: CatalogIntent) -> str:
    """Return the name that users know, such as ``table 'flights'``."""
    return f"{_noun(intent.namespace_id)} {(intent.old_name[1] if intent.old_name else intent.name)!r}"


def _noun(namespace_id: int) -> str:
    """Return the kind of object in a namespace."""
    return {NAMESPACE_NAMES: "namespace", TYPE_NAMES: "type"}.get(namespace_id, "table")


def _names(mine: TransactionRecord, other: TransactionRecord) -> str | None:
    taking = (IntentKind.CREATE, IntentKind.ALTER, IntentKind.UNDROP)
    taken = {(intent.namespace_id, intent.name) for intent in other.intents if intent.kind in taking}
    for intent in mine.intents:
        if intent.kind in taking and (intent.namespace_id, intent.name) in taken:
            return f"both give the name {intent.name!r} to a {_noun(intent.namespace_id)}"
    return None


def _tables(mine: TransactionRecord, other: TransactionRecord) -> str | None:
    new = _created(mine)
    used = {splice.table_id for splice in mine.splices} | {intent.table_id for intent in mine.intents}
    told = {intent.table_id for intent in mine.intents}
    for intent in other.intents:
        if intent.kind not in _CHANGES_TABLE or intent.table_id not in used - new:
            continue
        if intent.table_id in told or not _stays_valid(mine, intent):
            return f"it made a change of kind {intent.kind.value!r} to {_object_name(intent)}"
    changed = {intent.table_id: intent for intent in mine.intents if intent.kind in _CHANGES_TABLE}
    for splice in other.splices:
        if splice.table_id in changed and splice.table_id != CATALOG_TABLE:
            intent = changed[splice.table_id]
            if not _allows(intent, splice):
                return f"it wrote to {_object_name(intent)}, which this transaction would {intent.kind.value}"
    for needed in other.intents:
        if needed.kind is IntentKind.REQUIRE and needed.table_id in changed:
            intent = changed[needed.table_id]
            return f"it relies on {_object_name(intent)}, which this transaction would {intent.kind.value}"
    return None


def _stays_valid(mine: TransactionRecord, alter: CatalogIntent) -> bool:
    """Whether what is written for the definition before is right after an alter."""
    if alter.columns is None or alter.definition is None:
        return False
    growth: dict[int, int] = {}
    for splice in mine.splices:
        if splice.table_id == alter.table_id and splice.field_id != LIVENESS:
            more = splice.added_entries - splice.removed_entries
            growth[splice.field_id] = growth.get(splice.field_id, 0) + more
    there = alter.definition.field_ids.values()
    if any(field_id in growth and field_id not in there for field_id in alter.columns):
        return False  # it writes to a column that is gone
    if not any(growth.values()):
        return True
    grown = next(filter(None, growth.values()))
    return all(growth.get(field_id) == grown for field_id in alter.columns if field_id in there)


def _allows(alter: CatalogIntent, written: Splice) -> bool:
    """Whether an alter is right behind a splice for the definition before."""
    if alter.columns is None or alter.definition is None:
        return False
    if written.field_id == LIVENESS:
        return True
    adds = any(field_id in alter.definition.field_ids.values() for field_id in alter.columns)
    return not adds or written.added_entries >= written.removed_entries


def _pages(mine: TransactionRecord, other: TransactionRecord, named: Named) -> str | None:
    new = _created(mine)
    removed: dict[tuple[int, int], set[int]] = {}
    resized: set[int] = set()
    for splice in other.splices:
        removed.setdefault((splice.table_id, splice.field_id), set()).update(splice.removed)
        if splice.field_id == LIVENESS:
            continue  # its length is not that of the table
        if not splice.row_preserving or not splice.removed:  # an empty page too ends another's tail
            resized.add(splice.table_id)
    for splice in mine.splices:
        if splice.table_id == CATALOG_TABLE or splice.table_id in new or not splice.removed:
            continue
        both = removed.get((splice.table_id, splice.field_id), set()).intersection(splice.removed)
        if both:
            return (
                f"both replace {count(len(both), 'page')} of {named(splice.table_id, splice.field_id)}, "
                f"the first of them {min(both):016x}"
            )
        if not splice.row_preserving and splice.table_id in resized and splice.field_id != LIVENESS:
            return f"both change the number of rows of {named(splice.table_id, None)}"
    return None


_END = 1 << 62
"""One past any row."""


@dataclass(eq=False, slots=True)
class _Marks:
    """What a transaction does to the liveness chain of a table, and to rows that others may delete.

    Attributes
    ----------
    marked
        Ranges of rows whose liveness it changes.
    resizes
        Whether it changes the length of the liveness chain.
    end_row
        End of what it puts behind that chain.
    touched
        Ranges of rows that it touches in columns, new rows apart, and those that it takes away.
    lost
        First row that it takes away at the end of a column.
    """

    marked: list[tuple[int, int]] = field(default_factory=list)
    resizes: bool = False
    end_row: int = 0
    touched: list[tuple[int, int]] = field(default_factory=list)
    lost: int = _END

    def add(self, splice: Splice) -> None:
        end_row = splice.first_row + splice.added_entries
        if splice.field_id == LIVENESS:
            self.marked += splice.touched_rows(splice.first_row)
            self.resizes |= not splice.row_preserving
            if splice.added_entries < splice.removed_entries:  # dead rows behind the new end live again
                self.marked.append((end_row, splice.first_row + splice.removed_entries))
            if splice.added_entries > splice.removed_entries:
                self.end_row = max(self.end_row, end_row)
            return
        if splice.is_append:
            return
        self.touched += splice.touched_rows(splice.first_row)
        if splice.added_entries < splice.removed_entries:
            self.lost = min(self.lost, end_row)
            self.touched.append((end_row, _END))

    def obstructs(self, other: _Marks) -> bool:
        """Whether the rows that it touches, or takes away, are in the way of the other's deletes."""
        return self.lost < other.end_row or _meet(self.touched, other.marked)


def _liveness(mine: TransactionRecord, other: TransactionRecord, named: Named) -> str | None:
    """Find a row that one deletes and the other changes, or two lengthened liveness chains."""
    new = _created(mine)
    tables = {s.table_id for each in (mine, other) for s in each.splices if s.field_id == LIVENESS} - new
    for table_id in sorted(tables):
        marks, others = _marks(mine, table_id), _marks(other, table_id)
        if marks.resizes and others.resizes:
            return f"both delete rows of {named(table_id, None)} behind those that were deleted before"
        if others.obstructs(marks):
            return f"it changed rows of {named(table_id, None)} that this transaction deletes"
        if marks.obstructs(others):
            return f"it deleted rows of {named(table_id, None)} that this transaction changes"
    return None


def _marks(record: TransactionRecord, table_id: int) -> _Marks:
    marks = _Marks()
    for splice in record.splices:
        if splice.table_id == table_id:
            marks.add(splice)
    return marks


def _meet(one: list[tuple[int, int]], two: list[tuple[int, int]]) -> bool:
    """Whether some range of the one has a row in common with one of the other."""
    if not one or not two:
        return False
    sets = [RowRanges.joined(np.array(each, np.int64)) for each in (one, two)]
    return intersection(sets).num_rows > 0


def _claims(mine: TransactionRecord, other: TransactionRecord, named: Named) -> str | None:
    """Two owners claim the same rows: the first one has them."""
    for claim in mine.claims:
        for held in other.claims:
            if (
                claim.expires_at_us
                and held.expires_at_us
                and claim.owner != held.owner
                and held.overlaps((claim.table_id, claim.field_id), claim.first_row, claim.end_row)
            ):
                rows = f"rows [{held.first_row}, {held.end_row})"
                return f"{held.owner} claims {rows} of {named(held.table_id, held.field_id)}"
    return None


def _reads(reads: frozenset[int], other: TransactionRecord, named: Named) -> str | None:
    if CATALOG_TABLE in reads and any(intent.kind is not IntentKind.REQUIRE for intent in other.intents):
        return "it changed the catalog, on which this transaction relies by serializable isolation"
    written = {splice.table_id for splice in other.splices if splice.data_change and splice.table_id}
    changed = {intent.table_id for intent in other.intents if intent.kind in _CHANGES_TABLE}
    both = sorted(reads & (written | changed))
    if not both:
        return None
    changes = f"it changed {'rows of ' if both[0] in written else ''}{named(both[0], None)}"
    return f"{changes}, on which this transaction relies by serializable isolation or by a constraint"


def _retention(mine: TransactionRecord, other: TransactionRecord) -> str | None:
    """Find a tag or lease whose version the retention of the other passes."""
    for one, two in ((mine, other), (other, mine)):
        if one.retention is None:
            continue
        oldest = one.retention.min_readable
        tagged = [tag.version for tag in two.tags if tag.version is not None and tag.version < oldest]
        leased = [lease.version for lease in two.leases if lease.expires_at_us and lease.version < oldest]
        for what, versions in (("tag", tagged), ("lease", leased)):
            if versions:
                side = "it sets" if two is other else "this transaction would set"
                return (
                    f"versions before {oldest} cannot be read any more, and {side} a {what} on version "
                    f"{min(versions)}"
                )
    return None
