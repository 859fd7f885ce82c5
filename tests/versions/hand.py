"""What no public method writes yet, committed by hand: DDL, tails that change their length, retention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import CatalogIntent, IntentKind, Retention, Splice, TransactionRecord
from spark_pages.model.added_pages import AddedPages
from spark_pages.model.ids import TableId, Version
from spark_pages.model.page_schema import PAGE_SCHEMA, STATS_SCHEMA, empty_batch
from spark_pages.model.table import TableDefinition, with_field_ids
from spark_pages.store import Store
from spark_pages.transaction.page_writer import stage_column
from spark_pages.transaction.placement import StagedSplice, place_splices
from spark_pages.versions.restore import _prepare
from spark_pages.versions.restore_plan import RestorePlan


def record(store: Store, **given: Any) -> TransactionRecord:
    """A record without pages, on the newest version."""
    return TransactionRecord(
        **{
            "token": store._runtime.token(),
            "operation": "by hand",
            "read_version": store._log.refresh().state.version,
            "writer": "a test",
            **given,
        }
    )


def commit(store: Store, made: TransactionRecord) -> int:
    """Put a record on the newest version."""
    return store._log.commit(store._log.refresh(), lambda _: made).version


def retain(store: Store, min_readable: int, min_epoch: int = 0) -> int:
    """Versions before `min_readable` cannot be read from now on."""
    bounds = Retention(Version(min_epoch), Version(min_readable))
    return commit(store, record(store, operation="vacuum", retention=bounds))


def definition(store: Store, name: str) -> TableDefinition:
    return next(d for d in store.snapshot().log.tables() if (d.namespace_id, d.name) == (0, name))


def drop(store: Store, name: str) -> int:
    table = definition(store, name)
    intent = CatalogIntent(IntentKind.DROP, table.table_id, table.namespace_id, table.name)
    return _catalog(store, "drop", [intent], [table.table_id], [])


def rename(store: Store, names: Mapping[str, str]) -> int:
    """Tables get other names, all in one commit; they may change names with each other."""
    altered = [replace(definition(store, old), name=new) for old, new in names.items()]
    return _alter(store, "rename", altered, list(names))


def set_schema(store: Store, name: str, schema: pa.Schema, next_field_id: int) -> int:
    """Columns come or go: the schema is given with its field ids."""
    table = replace(definition(store, name), schema=schema, next_field_id=next_field_id)
    return _alter(store, "alter", [table], [name])


def _alter(store: Store, operation: str, altered: Sequence[TableDefinition], old: Sequence[str]) -> int:
    intents = [
        CatalogIntent(
            IntentKind.ALTER, d.table_id, d.namespace_id, d.name, d, (0, was) if was != d.name else None
        )
        for d, was in zip(altered, old, strict=True)
    ]
    return _catalog(store, operation, intents, [d.table_id for d in altered], altered)


def truncate(store: Store, name: str, purge: bool = False) -> int:
    table = definition(store, name)
    kind = IntentKind.PURGE if purge else IntentKind.TRUNCATE
    intent = CatalogIntent(kind, table.table_id, table.namespace_id, table.name, table)
    return commit(store, record(store, operation=kind.value, intents=(intent,)))


def _catalog(
    store: Store,
    operation: str,
    intents: Sequence[CatalogIntent],
    ended: Sequence[TableId],
    described: Sequence[TableDefinition],
) -> int:
    plan = RestorePlan(
        (),
        empty_batch(PAGE_SCHEMA),
        empty_batch(STATS_SCHEMA),
        tuple(intents),
        tuple(ended),
        tuple(described),
        {},
    )
    head: LogSnapshot = store._log.refresh()
    made = _prepare(store.object_store, head, store._pages, plan, store._runtime.token(), {})
    return commit(store, replace(made, operation=operation))


def replace_tail(
    store: Store, name: str, first_row: int, rows: Mapping[str, Sequence[Any]], page_bytes: int = 48
) -> int:
    """Everything from a row on gives way to other rows, by splices at the ends of the chains."""
    table = store.snapshot().table(name)
    splices = []
    for column, field_id in table.definition.field_ids.items():
        chain = table.directory.chain(column)
        n = chain.num_rows
        begin = n
        if first_row < n:
            begin = first_row - chain.locate_row(first_row).row_in_page
        gone = chain.pages_between(begin, n)
        kind = table.schema.field(column).type
        kept = table.read([column], begin, first_row).column(0)
        values = pa.concat_arrays([*kept.chunks, pa.array(rows[column], kind)])
        new = stage_column(values, page_bytes) if len(values) else []
        splices.append(
            StagedSplice(
                table.definition.table_id,
                field_id,
                begin,
                tuple(gone.page_ids.tolist()),
                gone.num_rows,
                new,
                touched=((first_row, first_row + len(rows[column])),) if rows[column] else (),
            )
        )
    token = store._runtime.token()
    placed = place_splices(store.object_store, splices, lambda _: f"pages/{0:020d}-{token}-0.pages", token)
    made = record(
        store,
        token=token,
        operation="replace tail",
        own=placed.own,
        splices=placed.splices,
        manifests=placed.manifests,
    )
    return commit(store, made)


def recount_last_page(store: Store, name: str, entry_count: int) -> int:
    """The last page of each column holds other numbers of entries, and its payload stays."""
    table = store.snapshot().table(name)
    batches, stats, splices = [], [], []
    for index, (column, field_id) in enumerate(table.definition.field_ids.items()):
        chain = table.directory.chain(column)
        n = chain.num_rows
        begin = n - chain.latest().entry_count
        run = chain.pages_between(begin, n)
        pages = run.pages.set_column(1, PAGE_SCHEMA.field(1), pa.array([entry_count]))
        batches.append(pages.set_column(0, PAGE_SCHEMA.field(0), pa.array([index])))
        stats.append(run.stats)
        touched = ((n, begin + entry_count),) if begin + entry_count > n else ()
        splices.append(
            Splice(
                table.definition.table_id,
                field_id,
                begin,
                tuple(run.page_ids.tolist()),
                run.num_rows,
                0,
                index,
                index + 1,
                entry_count,
                touched=touched,
            )
        )
    made = record(
        store,
        operation="recount",
        own=AddedPages(
            pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()[0],
            pa.Table.from_batches(stats).combine_chunks().to_batches()[0],
        ),
        splices=tuple(splices),
    )
    return commit(store, made)


def fields(**kinds: pa.DataType) -> pa.Schema:
    """A schema with field ids from 1."""
    return with_field_ids(pa.schema(list(kinds.items())))


def numbers(start: int, stop: int) -> pa.Table:
    """Rows of the columns ``n`` and ``s``."""
    return pa.table({"n": np.arange(start, stop), "s": [f"row {i}" for i in range(start, stop)]})
