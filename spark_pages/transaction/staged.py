"""What a transaction has staged, and how it becomes the record that the log is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spark_pages.catalog.constraints import with_final_ids
from spark_pages.catalog.differences import creation, headed
from spark_pages.catalog.migration import upgrade_intents
from spark_pages.catalog.namespaces import LOCATION, check_apart
from spark_pages.errors import CommitConflictError, InvalidInputError, RaggedTableError
from spark_pages.format.page_folders import LOCATION_PROPERTY
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState, TableName
from spark_pages.model.actions import (
    CatalogIntent,
    Claim,
    IntentKind,
    ManifestRef,
    TransactionRecord,
)
from spark_pages.model.ids import TableId, format_page_id, is_temporary
from spark_pages.model.table import FIRST_NAMESPACE, NAMESPACE_NAMES, TableDefinition
from spark_pages.query.snapshot import Snapshot
from spark_pages.runtime import writer_name
from spark_pages.transaction.catalog_changes import catalog_changes
from spark_pages.transaction.column_types import check_read_back
from spark_pages.transaction.placement import PlacedChanges, StagedSplice
from spark_pages.transaction.rebase import extend_new_columns, fill_late_columns
from spark_pages.transaction.staged_ddl import StagedDdl
from spark_pages.transaction.update_buffer import Updates
from spark_pages.transaction.written_rows import StagedWrites


@dataclass(slots=True)
class TransactionInfo:
    """What a transaction says of itself. A forked process that goes on with it gives it another token."""

    token: str
    operation: str | None
    parameters: Mapping[str, str]
    app_id: str | None
    app_version: int | None


@dataclass(eq=False, slots=True)
class StagedChanges:
    """Staged changes; fields in the order in which they take effect.

    Attributes
    ----------
    created
        New tables by name; their ids are negative until the commit.
    definitions
        Tables that are written to, new ones too, by id.
    updates
        Updates of rows by table and column, not yet turned into pages.
    splices
        Changes of chains.
    written
        Appends whose pages other processes have written.
    ddl
        What becomes of tables that are there.
    properties, claims
        Of the store.
    since
        The version of the log in which the tables were found first.
    """

    created: dict[TableName, TableDefinition] = field(default_factory=dict)
    definitions: dict[TableId, TableDefinition] = field(default_factory=dict)
    updates: dict[tuple[TableId, str], Updates] = field(default_factory=dict)
    splices: list[StagedSplice] = field(default_factory=list)
    written: list[StagedWrites] = field(default_factory=list)
    ddl: StagedDdl = field(default_factory=StagedDdl)
    properties: dict[str, str | None] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    since: int = -1

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        changes = (self.created, self.updates, self.splices, self.written, self.ddl, self.properties)
        return not any((*changes, self.claims))

    def clear(self) -> None:
        """Nothing is staged; what was handed on stays as it is."""
        fresh = StagedChanges()
        for name in StagedChanges.__slots__:
            setattr(self, name, getattr(fresh, name))

    def with_pages(self, rewritten: Sequence[StagedSplice]) -> StagedChanges:
        """The same, with the pages that the updates touch in the place of the updates."""
        if not rewritten and not self.updates:
            return self
        return replace(self, splices=[*rewritten, *self.splices], updates={})

    def lasting(self) -> StagedChanges:
        """The same without temporary tables, which end with the transaction."""
        if not any(map(is_temporary, self.definitions)):
            return self
        kept = replace(self, definitions=dict(self.definitions), updates=dict(self.updates))
        kept.forget_temporary()
        return kept

    def tables(self) -> frozenset[int]:
        """Tables of the snapshot that are written to."""
        return frozenset(table_id for table_id in self.definitions if table_id >= 0)

    def staged_rows(self, table_id: TableId) -> Mapping[int, int]:
        """Rows by which each chain of a table grows; those that are not named stay as long as they are."""
        rows: dict[int, int] = {}
        for splice in self.splices:
            if splice.table_id == table_id:
                grown = splice.added_entries - splice.removed_entries
                rows[splice.field_id] = rows.get(splice.field_id, 0) + grown
        return rows

    def forget(self, table_id: TableId) -> None:
        """Nothing is staged for the rows of a table any more."""
        self.definitions.pop(table_id, None)
        self.splices = [splice for splice in self.splices if splice.table_id != table_id]
        self.written = [writes for writes in self.written if writes.table_id != table_id]
        for key in [key for key in self.updates if key[0] == table_id]:
            del self.updates[key]

    def forget_temporary(self) -> None:
        """Temporary tables end here."""
        self.created = {name: each for name, each in self.created.items() if not is_temporary(each.table_id)}
        for table_id in [table_id for table_id in self.definitions if is_temporary(table_id)]:
            self.forget(table_id)

    def create(self, definition: TableDefinition) -> None:
        """Add what is new in the transaction.

        Raises
        ------
        InvalidInputError
            If its schema is not read as it is written.
        """
        check_read_back(definition.name, definition.schema)
        self.created[definition.namespace_id, definition.name] = definition

    def alter(self, old: TableDefinition, new: TableDefinition) -> None:
        """What is there, or is new in the transaction, has another definition.

        Raises
        ------
        InvalidInputError
            As `create`.
        """
        check_read_back(new.name, new.schema)
        if old.table_id < 0:
            self.created = {
                (d.namespace_id, d.name): d
                for d in (new if each is old else each for each in self.created.values())
            }
        else:
            self.ddl.alter(old, new)
        if old.table_id in self.definitions:
            self.definitions[old.table_id] = new

    def check_ragged(self) -> None:
        """Refuse to let the columns of an aligned table grow apart.

        Raises
        ------
        RaggedTableError
            Says by how many rows each column would grow.
        """
        for table_id, definition in self.definitions.items():
            if not definition.aligned:
                continue
            staged = self.staged_rows(table_id)
            growth = {
                name: staged.get(field_id, 0) - self.ddl.new_columns.get((table_id, field_id), 0)
                for name, field_id in definition.field_ids.items()
            }
            if len(set(growth.values())) > 1:
                raise RaggedTableError(
                    f"The columns of {definition.name!r} would grow by different numbers of rows: {growth}."
                )

    def check_removed_once(self) -> None:
        """Refuse to replace one page twice.

        Raises
        ------
        InvalidInputError
            Names the page.
        """
        removed: dict[tuple[int, int], set[int]] = {}
        for splice in self.splices:
            ids = removed.setdefault((splice.table_id, splice.field_id), set())
            if not ids.isdisjoint(splice.removed):
                page = format_page_id(min(ids.intersection(splice.removed)))
                table = self.definitions.get(splice.table_id)
                name = table.name if table else splice.table_id
                raise InvalidInputError(
                    f"This transaction would replace page {page} of table {name!r} twice: for an update "
                    f"of its rows, and whole.",
                    hint="Do one of them in another transaction.",
                )
            ids.update(splice.removed)

    def _check_locations(self, log: LogSnapshot) -> None:
        """Refuse a location that another namespace has got meanwhile."""
        if not any(name.startswith(LOCATION_PROPERTY) for name in self.properties):
            return
        for mine in (*self.ddl.described(), *self.created.values()):
            if LOCATION_PROPERTY + mine.properties.get(LOCATION, "") not in self.properties:
                continue
            theirs = (each for each in log.tables(NAMESPACE_NAMES) if not self.ddl.hides(each))
            try:
                check_apart(mine, theirs)
            except InvalidInputError as error:
                raise CommitConflictError(error.message, hint=error.hint) from error

    def _headed(self, heading: TransactionInfo, prepared: PlacedChanges) -> tuple[str, Mapping[str, str]]:
        """Operation and parameters for the history, which names changes of the catalog by itself."""
        if not self.created and not self.ddl:
            return heading.operation or "write", heading.parameters
        moves_rows = any((s.table_id, s.field_id) not in self.ddl.new_columns for s in prepared.splices)
        changes = [*self.ddl.differences(), *map(creation, self.created.values())]
        return headed(heading.operation, heading.parameters, changes, moves_rows)

    def record(
        self,
        heading: TransactionInfo,
        prepared: PlacedChanges,
        read_version: int,
        state: LogState,
        show: Callable[[LogState], Snapshot],
    ) -> TransactionRecord:
        """What the log is told, on top of `state`: final table ids, and the rows of table 0.

        Parameters
        ----------
        show
            Gives the snapshot of a state.
        """
        final = final_ids(self.created.values(), state.next_table_id)
        created = [with_final_ids(definition, final) for definition in self.created.values()]
        splices = [
            replace(splice, table_id=TableId(final[splice.table_id])) if splice.table_id in final else splice
            for splice in prepared.splices
        ]
        written = [self.definitions[TableId(each)] for each in self.tables() - self.ddl.altered.keys()]
        late, late_splices = fill_late_columns(
            written, splices, self.since, state, lambda state: show(state).log, prepared.own.num_pages
        )
        pages = prepared.own.and_pages(late)
        splices += late_splices
        own: Sequence[CatalogIntent] = ()
        if created or self.ddl:
            shown = show(state)
            late, late_splices = extend_new_columns(self.ddl, shown.log, pages.num_pages)
            pages = pages.and_pages(late)
            splices = late_splices + splices
            own = upgrade_intents(shown.log)
            self._check_locations(shown.log)
            described, catalog_splices = catalog_changes(
                shown.log,
                shown.table("system.catalog"),
                self.ddl.ended(),
                [*(with_final_ids(each, final) for each in self.ddl.described()), *created],
                first_page=pages.num_pages,
            )
            pages = pages.and_pages(described)
            splices += catalog_splices
        manifests: list[ManifestRef] = []
        ordinal = pages.num_pages
        for manifest in prepared.manifests:
            manifests.append(replace(manifest, base_ordinal=ordinal))
            ordinal += manifest.num_pages
        operation, parameters = self._headed(heading, prepared)
        return TransactionRecord(
            token=heading.token,
            operation=operation,
            parameters=parameters,
            writer=writer_name(),
            app_id=heading.app_id,
            app_version=heading.app_version,
            read_version=read_version,
            own=pages,
            manifests=tuple(manifests),
            splices=tuple(splices),
            intents=(
                *own,
                *(_final_intent(intent, final) for intent in self.ddl.intents()),
                *(CatalogIntent(IntentKind.CREATE, d.table_id, d.namespace_id, d.name, d) for d in created),
            ),
            claims=tuple(self.claims),
            properties=self.properties,
        )


def final_ids(created: Iterable[TableDefinition], next_id: int) -> dict[int, int]:
    """The ids that what is new gets; temporary tables keep theirs.

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
