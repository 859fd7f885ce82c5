"""The record of a transaction on top of a state of the log: final ids, rows of table 0, missing columns.

The log requests the record again after each rebase. Between two states a table may have got columns: rows
that the transaction appends get nulls for them, and a column that the transaction adds gets its default for
rows appended meanwhile. So neither waits for the other, and the columns of a table stay equally long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from spark_pages.arrow.nested import null_scalar
from spark_pages.catalog.constraints import with_final_ids
from spark_pages.catalog.differences import creation, headed
from spark_pages.catalog.evolution import columns_to_fill
from spark_pages.catalog.namespaces import LOCATION, check_disjoint
from spark_pages.catalog.resolve import same_table
from spark_pages.catalog.table_zero import upgrade_intents
from spark_pages.errors import CommitConflictError, InvalidInputError
from spark_pages.format.names import LOCATION_PROPERTY
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import CatalogIntent, IntentKind, ManifestRef, Splice, TransactionRecord
from spark_pages.model.added_pages import NewPage
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import LIVENESS, FieldId, TableId, is_temporary
from spark_pages.model.table import FIRST_NAMESPACE, NAMESPACE_NAMES, TableDefinition
from spark_pages.query.snapshot import Snapshot
from spark_pages.runtime import writer_name
from spark_pages.transaction.catalog_changes import catalog_changes
from spark_pages.transaction.page_writer import inline_page, stage_constants
from spark_pages.transaction.placement import PlacedChanges
from spark_pages.transaction.staged import StagedChanges, StagedDdl
from spark_pages.transaction.state import TransactionInfo, TransactionState


@dataclass(frozen=True, slots=True)
class _Filling:
    """Constant pages that a rebase adds, and the splices with them.

    Attributes
    ----------
    first_page
        Ordinal of the first of these pages.
    """

    first_page: int
    pages: list[NewPage] = field(default_factory=list)
    splices: list[Splice] = field(default_factory=list)

    def add(self, key: ChainKey, first_row: int, value: pa.Scalar, count: int) -> None:
        """Add `count` equal rows to a chain."""
        start = self.first_page + len(self.pages)
        self.pages.extend(inline_page(page) for page in stage_constants(value, count))
        stop = self.first_page + len(self.pages)
        touched = ((first_row, first_row + count),)
        table_id, field_id = TableId(key[0]), FieldId(key[1])
        self.splices.append(
            Splice(table_id, field_id, first_row, (), 0, 0, start, stop, count, touched=touched)
        )


def snapshot_of(state: TransactionState, on: LogState) -> Snapshot:
    """Return what readers see of a state of the log."""
    return state.view(state.log.open(on))


def build_record(
    state: TransactionState, changes: StagedChanges, placed: PlacedChanges, on: LogState
) -> TransactionRecord:
    """Return the record of some changes on top of a state of the log.

    Parameters
    ----------
    changes
        The staged changes, or a part of them.
    placed
        Their splices.
    on
        The state.

    Raises
    ------
    CommitConflictError
        If a commit since the read version is in the way.
    """
    info, ddl = state.info, changes.ddl
    final = _final_ids(changes.created.values(), on.next_table_id)
    created = [with_final_ids(definition, final) for definition in changes.created.values()]
    splices = [
        replace(splice, table_id=TableId(final[splice.table_id])) if splice.table_id in final else splice
        for splice in placed.splices
    ]
    written = [changes.definitions[TableId(each)] for each in changes.tables() - ddl.altered.keys()]
    nulls = _fill_added_columns(
        written, splices, changes.since, on, lambda: snapshot_of(state, on).log, placed.own.num_pages
    )
    pages = placed.own.and_pages(nulls.pages)
    splices += nulls.splices
    own: Sequence[CatalogIntent] = ()
    if created or ddl:
        shown = snapshot_of(state, on)
        defaults = _extend_new_columns(ddl, shown.log, pages.num_pages)
        pages = pages.and_pages(defaults.pages)
        splices = defaults.splices + splices
        own = upgrade_intents(shown.log)
        _check_locations(changes, shown.log)
        described, catalog_splices = catalog_changes(
            shown.log,
            shown.table("system.catalog"),
            ddl.ended(),
            [*(with_final_ids(each, final) for each in ddl.described()), *created],
            first_page=pages.num_pages,
        )
        pages = pages.and_pages(described)
        splices += catalog_splices
    manifests: list[ManifestRef] = []
    ordinal = pages.num_pages
    for manifest in placed.manifests:
        manifests.append(replace(manifest, base_ordinal=ordinal))
        ordinal += manifest.num_pages
    operation, parameters = _headed(info, changes, placed)
    return TransactionRecord(
        token=info.token,
        operation=operation,
        parameters=parameters,
        writer=writer_name(),
        app_id=info.app_id,
        app_version=info.app_version,
        read_version=state.version,
        own=pages,
        manifests=tuple(manifests),
        splices=tuple(splices),
        intents=(
            *own,
            *(_final_intent(intent, final) for intent in ddl.intents()),
            *(CatalogIntent(IntentKind.CREATE, d.table_id, d.namespace_id, d.name, d) for d in created),
        ),
        claims=tuple(changes.claims),
        properties=changes.properties,
    )


def _headed(
    info: TransactionInfo, changes: StagedChanges, placed: PlacedChanges
) -> tuple[str, Mapping[str, str]]:
    """Return operation and parameters for the history, which names changes of the catalog by itself."""
    ddl = changes.ddl
    if not changes.created and not ddl:
        only_deletes = bool(changes.deleted) and all(s.field_id == LIVENESS for s in placed.splices)
        return info.operation or ("delete" if only_deletes else "write"), info.parameters
    moves_rows = any((s.table_id, s.field_id) not in ddl.new_columns for s in placed.splices)
    differences = [*ddl.differences(), *map(creation, changes.created.values())]
    return headed(info.operation, info.parameters, differences, moves_rows)


def _check_locations(changes: StagedChanges, log: LogSnapshot) -> None:
    """Raise CommitConflictError if another namespace has got one of the locations meanwhile."""
    if not any(name.startswith(LOCATION_PROPERTY) for name in changes.properties):
        return
    for mine in (*changes.ddl.described(), *changes.created.values()):
        if LOCATION_PROPERTY + mine.properties.get(LOCATION, "") not in changes.properties:
            continue
        theirs = (each for each in log.tables(NAMESPACE_NAMES) if not changes.ddl.hides(each))
        try:
            check_disjoint(mine, theirs)
        except InvalidInputError as error:
            raise CommitConflictError(error.message, hint=error.hint) from error


def _final_ids(created: Iterable[TableDefinition], next_id: int) -> dict[int, int]:
    """Return the ids that new tables get, by provisional id; temporary tables keep theirs.

    Parameters
    ----------
    next_id
        The smallest that was never used.
    """
    final: dict[int, int] = {}
    for definition in created:
        if is_temporary(definition.table_id):
            continue
        if definition.namespace_id == NAMESPACE_NAMES:
            next_id = max(next_id, FIRST_NAMESPACE)
        final[definition.table_id] = next_id
        next_id += 1
    return final


def _final_intent(intent: CatalogIntent, final: Mapping[int, int]) -> CatalogIntent:
    definition = None if intent.definition is None else with_final_ids(intent.definition, final)
    return replace(
        intent, namespace_id=final.get(intent.namespace_id, intent.namespace_id), definition=definition
    )


def _fill_added_columns(
    definitions: Iterable[TableDefinition],
    splices: Sequence[Splice],
    since: int,
    state: LogState,
    show: Callable[[], LogSnapshot],
    first_page: int,
) -> _Filling:
    """Return nulls for columns added since a version, as many as the transaction appends rows.

    Parameters
    ----------
    definitions
        The tables that are written to, as of that version.
    splices
        What the transaction does to them.
    show
        Gives the snapshot of the state.
    first_page
        Ordinal of the first of these pages.

    Notes
    -----
    No request where no table has changed.
    """
    filling = _Filling(first_page)
    for definition in definitions:
        table_id = definition.table_id
        if not _may_have_changed(table_id, since, state):
            continue
        log = show()
        now = same_table(log, definition)
        for field_id, column in (columns_to_fill(definition, now) or ()) if now is not None else ():
            growth = _growth(splices, table_id)
            if growth > 0:
                rows = log.num_rows((table_id, FieldId(field_id)))
                null = null_scalar(column.type)
                filling.add((table_id, FieldId(field_id)), rows, null, growth)
    return filling


def _extend_new_columns(ddl: StagedDdl, log: LogSnapshot, first_page: int) -> _Filling:
    """Return defaults of columns that the transaction adds, for rows that others have appended meanwhile.

    They belong before the rows that the transaction itself adds to the column.

    Raises
    ------
    CommitConflictError
        If rows are gone.
    """
    filling = _Filling(first_page)
    for key, default in ddl.defaults.items():
        table_id = key[0]
        if table_id not in ddl.altered or table_id in ddl.truncated or key not in ddl.new_columns:
            continue
        before = ddl.before[table_id]
        rows = min(log.num_rows((table_id, each)) for each in before.field_ids.values())
        more = rows - ddl.new_columns[key]
        if more < 0:
            columns = ddl.altered[table_id].field_ids.items()
            added_names = [name for name, field_id in columns if field_id == key[1]]
            raise CommitConflictError(
                f"Cannot add column {added_names[0]!r} to table {before.name!r}: it was to be added "
                f"for {ddl.new_columns[key]} rows, but the table has {rows} by now. Nothing was "
                "committed.",
                hint="Repeat it from the start: `store.transaction()` reads the newest version.",
                table_id=int(table_id),
            )
        if more:
            filling.add((table_id, FieldId(key[1])), 0, default, more)
    return filling


def _may_have_changed(table_id: TableId, since: int, state: LogState) -> bool:
    """Return whether the table may have another definition than at version `since`."""
    if state.catalog_version <= since:
        return False
    if state.base is not None and state.base.version > since:
        return True
    return state.changed.get(int(table_id), -1) > since


def _growth(splices: Iterable[Splice], table_id: TableId) -> int:
    """Return the rows by which the columns of a table grow, all alike."""
    growth: dict[int, int] = {}
    for splice in splices:
        if splice.table_id == table_id and splice.field_id != LIVENESS:
            more = splice.added_entries - splice.removed_entries
            growth[splice.field_id] = growth.get(splice.field_id, 0) + more
    return max(growth.values(), default=0)
