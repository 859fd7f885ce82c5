"""What a transaction has staged, and how it becomes the record that the log is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from spark_pages.catalog.bootstrap import describe
from spark_pages.errors import RaggedTableError
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState, TableName
from spark_pages.model.actions import (
    CatalogIntent,
    Claim,
    IntentKind,
    ManifestRef,
    TransactionRecord,
)
from spark_pages.model.ids import CATALOG_TABLE, TableId
from spark_pages.model.run import PAGE_SCHEMA, STATS_SCHEMA, concat_batches, page_batches
from spark_pages.model.table import TableDefinition
from spark_pages.runtime import writer_name
from spark_pages.tables.staging import Prepared, StagedSplice
from spark_pages.tables.updates import Updates


@dataclass(frozen=True, slots=True)
class Heading:
    """What a transaction says of itself."""

    token: str
    operation: str
    parameters: Mapping[str, str]
    app_id: str | None
    app_version: int | None


@dataclass(eq=False, slots=True)
class Workspace:
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
    properties, claims
        Of the store.
    """

    created: dict[TableName, TableDefinition] = field(default_factory=dict)
    definitions: dict[TableId, TableDefinition] = field(default_factory=dict)
    updates: dict[tuple[TableId, str], Updates] = field(default_factory=dict)
    splices: list[StagedSplice] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (self.created or self.updates or self.splices or self.properties or self.claims)

    def tables(self) -> frozenset[int]:
        """Tables of the snapshot that are written to."""
        return frozenset(table_id for table_id in self.definitions if table_id >= 0)

    def staged_rows(self, table_id: TableId, field_id: int) -> int:
        """Rows by which a chain grows."""
        return sum(
            splice.added_entries - splice.removed_entries
            for splice in self.splices
            if (splice.table_id, splice.field_id) == (table_id, field_id)
        )

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
            growth = {
                name: self.staged_rows(table_id, field_id) for name, field_id in definition.field_ids.items()
            }
            if len(set(growth.values())) > 1:
                raise RaggedTableError(
                    f"The columns of {definition.name!r} would grow by different numbers of rows: {growth}."
                )

    def record(
        self,
        heading: Heading,
        prepared: Prepared,
        read_version: int,
        state: LogState,
        bind: Callable[[LogState], LogSnapshot],
    ) -> TransactionRecord:
        """What the log is told, on top of `state`: final table ids, and the rows of table 0."""
        final = {
            definition.table_id: TableId(state.next_table_id + index)
            for index, definition in enumerate(self.created.values())
        }
        created = [replace(d, table_id=final[d.table_id]) for d in self.created.values()]
        splices = [
            replace(splice, table_id=final.get(splice.table_id, splice.table_id))
            for splice in prepared.splices
        ]
        pages, stats = prepared.pages, prepared.stats
        if created:
            rows_before = bind(state).chain((CATALOG_TABLE, 1)).num_rows
            described, catalog_splices = describe(created, rows_before, first_page=pages.num_rows)
            more_pages, more_stats = page_batches(described)
            pages = concat_batches([pages, more_pages], PAGE_SCHEMA)
            stats = concat_batches([stats, more_stats], STATS_SCHEMA)
            splices += catalog_splices
        manifests: tuple[ManifestRef, ...] = ()
        if prepared.manifest is not None:
            manifests = (replace(prepared.manifest, base_ordinal=pages.num_rows),)
        return TransactionRecord(
            token=heading.token,
            operation=heading.operation,
            parameters=heading.parameters,
            writer=writer_name(),
            app_id=heading.app_id,
            app_version=heading.app_version,
            read_version=read_version,
            pages=pages,
            stats=stats,
            manifests=manifests,
            splices=tuple(splices),
            intents=tuple(
                CatalogIntent(IntentKind.CREATE, d.table_id, d.namespace_id, d.name, d) for d in created
            ),
            claims=tuple(self.claims),
            properties=self.properties,
        )
