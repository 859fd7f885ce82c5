"""Restore: a new commit that makes rows, tables and properties what they were at an earlier version.

`restore_plan.py` decides what has to be done; this module gives old pages a place where they need one, tells
table 0, and brings the plan into the log. What nobody changed since is neither read nor written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.catalog.differences import headed
from spark_pages.catalog.table_zero import upgrade_intents
from spark_pages.changes.feed import iterate_commits
from spark_pages.changes.row_changes import Changes, rows_of
from spark_pages.errors import CommitConflictError, InvalidInputError
from spark_pages.format.digest import locate
from spark_pages.format.features import check_writable
from spark_pages.format.names import manifest_key, page_file_key
from spark_pages.format.segment import encode_manifest
from spark_pages.io import PageHandler
from spark_pages.log.commit.protocol_types import Build
from spark_pages.log.conflict_error import attach_conflicting_commit
from spark_pages.log.log import Log
from spark_pages.log.reopen import retry_after_vacuum
from spark_pages.log.retention import check_version
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.model.actions import CatalogIntent, ManifestRef, Splice, TransactionRecord
from spark_pages.model.added_pages import AddedPages, NewPage, page_batches
from spark_pages.model.page import PAGE_ALIGNMENT, PageKind
from spark_pages.model.page_schema import PAGE_SCHEMA, STATS_SCHEMA, concat_batches, empty_batch, have_nan
from spark_pages.query.snapshot import Snapshot
from spark_pages.runtime import Runtime, writer_name
from spark_pages.storage.store import ObjectStore
from spark_pages.transaction.catalog_changes import catalog_changes
from spark_pages.transaction.page_writer import INLINE_TRANSACTION_BYTES
from spark_pages.transaction.placement import MANIFEST_PAGES
from spark_pages.versions.restore_plan import RestorePlan, plan_restore

_PATIENCE_S = 60.0

MAX_REMOVED_PAGES = 5_000_000
"""Pages that one restore may take out: their ids ride in the commit, which must stay below 64 MiB."""


class _StalePlanError(CommitConflictError):
    """The log moved on since the plan was made: make it again."""


def restore(
    log: Log, pages: PageHandler, runtime: Runtime, version: int, parameters: Mapping[str, str]
) -> int:
    """Restore rows, tables and properties of an earlier version, and return the newest version.

    Parameters
    ----------
    version
        The earlier version.
    parameters
        How the caller named it, for the history.

    Raises
    ------
    SnapshotExpiredError
        If retention has passed the earlier version meanwhile.
    InvalidInputError
        If a table has been purged since.
    CommitConflictError
        If others committed more quickly than plans could be made, for a minute.

    Notes
    -----
    Reads the commits since then, and of checkpoints what describes the places that they changed. Pages are
    neither read nor written, but for inline ones, where they are too many for a commit. A commit that lands
    meanwhile is undone like those before it.
    """
    return retry_after_vacuum(lambda: _restore(log, pages, runtime, log.snapshot(version), parameters))


def _restore(
    log: Log, pages: PageHandler, runtime: Runtime, then: LogSnapshot, parameters: Mapping[str, str]
) -> int:
    changes = Changes(lambda key: rows_of(then, key))
    fed = then.state.version
    deadline = runtime.monotonic_s() + _PATIENCE_S
    tries = 0
    while True:
        head = log.refresh_to_write()
        check_writable(head.state.features)  # before a page file or manifest is written for it
        check_version(head.state, then.state.version)
        for commit in iterate_commits(log, fed + 1, head.state.version + 1):
            changes.feed(commit)
        fed = head.state.version
        then = log.snapshot(then.state.version)  # anew: vacuum may have taken the places that it described
        plan = plan_restore(then, head, changes)
        if plan.empty:
            return head.state.version
        _check_size(plan, then.state.version)
        record = _prepare(log.store, head, pages, plan, runtime.token(), parameters)
        try:
            return log.commit(head, _build(record, head.state, then.state.version)).version
        except CommitConflictError as overtaken:
            tries += 1
            if runtime.monotonic_s() > deadline:
                late = CommitConflictError(
                    f"Cannot restore version {then.state.version}: others committed more quickly than "
                    f"it could be planned, for {_PATIENCE_S:.0f} s. Nothing was committed.",
                    hint="Pause the other writers, then call `restore` again.",
                    version=then.state.version,
                    tries=tries,
                )
                raise attach_conflicting_commit(late, log, head.state.version, lambda _: True) from overtaken


def _check_size(plan: RestorePlan, version: int) -> None:
    removed = sum(len(splice.removed) for splice in plan.splices)
    if removed > MAX_REMOVED_PAGES:
        raise InvalidInputError(
            f"Cannot restore version {version} in one commit: {removed} pages would be removed, and "
            f"at most {MAX_REMOVED_PAGES} can be. Nothing was committed.",
            hint="Restore a version nearer to the newest one, or compact pages first: `spark-pages "
            "compact-pages`.",
        )


def _build(record: TransactionRecord, planned: LogState, version: int) -> Build:
    """Build the record while no commit contradicts the plan."""

    def build(state: LogState) -> TransactionRecord:
        check_version(state, version)
        if not _same(state, planned):
            raise _StalePlanError("The log moved on while a restore was planned.")
        return record

    return build


def _same(one: LogState, two: LogState) -> bool:
    """Whether nothing moved that a restore looks at.

    Retention is part of it. Where it has moved, vacuum may delete the places in which the plan found old
    pages, though the version itself is kept: inline pages have a place in each checkpoint.
    """
    return (
        one.edits == two.edits
        and one.tables == two.tables
        and one.names == two.names
        and one.properties == two.properties
        and one.next_table_id == two.next_table_id
        and one.retention == two.retention
    )


def _prepare(
    store: ObjectStore,
    head: LogSnapshot,
    handler: PageHandler,
    plan: RestorePlan,
    token: str,
    parameters: Mapping[str, str],
) -> TransactionRecord:
    """Build the record of a plan, and write the page files and the manifest that it names."""
    version = head.state.version
    pages, stats = _with_page_files(store, plan.pages, page_file_key(version, token, 0)), plan.stats
    splices = plan.splices
    manifest: ManifestRef | None = None
    if pages.num_rows > MANIFEST_PAGES:
        data = encode_manifest(pages, stats)
        location = locate(manifest_key(f"{version:020d}-{token}-0"), data)
        store.put(location.key, data)
        page_bytes = int(pages.column("actual_len").to_numpy().sum())
        manifest = ManifestRef(location, 0, pages.num_rows, page_bytes, have_nan(stats))
        splices = tuple(replace(splice, source=1) for splice in splices)
        pages, stats = empty_batch(PAGE_SCHEMA), empty_batch(STATS_SCHEMA)
    zero = Snapshot(head, handler).table("system.catalog")
    own: Sequence[CatalogIntent] = ()
    catalog_pages: list[NewPage] = []
    catalog_splices: list[Splice] = []
    if plan.ended or plan.described:
        own = upgrade_intents(head)
        catalog_pages, catalog_splices = catalog_changes(
            head, zero, plan.ended, plan.described, pages.num_rows
        )
    if catalog_pages:
        more_pages, more_stats = page_batches(catalog_pages)
        pages = concat_batches([pages, more_pages], PAGE_SCHEMA)
        stats = concat_batches([stats, more_stats], STATS_SCHEMA)
    operation, parameters = headed("restore", parameters, plan.changes, moves_rows=True)
    return TransactionRecord(
        token=token,
        operation=operation,
        parameters=parameters,
        read_version=version,
        writer=writer_name(),
        own=AddedPages(pages, stats),
        manifests=() if manifest is None else (replace(manifest, base_ordinal=pages.num_rows),),
        splices=(*splices, *catalog_splices),
        intents=(*own, *plan.intents),
        properties=plan.properties,
    )


def _with_page_files(store: ObjectStore, pages: pa.RecordBatch, key: str) -> pa.RecordBatch:
    """Write inline pages to a page file, byte for byte, if they are too many for a commit."""
    inline = np.flatnonzero(pages.column("kind").to_numpy() == PageKind.INLINE)
    sizes = pages.column("actual_len").to_numpy()[inline].astype(np.int64)
    if not len(inline) or (sizes.sum() <= INLINE_TRANSACTION_BYTES and pages.num_rows <= MANIFEST_PAGES):
        return pages
    bodies = pages.column("data").take(pa.array(inline)).to_pylist()
    store.put(key, b"".join(body + bytes(-len(body) % PAGE_ALIGNMENT) for body in bodies))
    allocated = (sizes + PAGE_ALIGNMENT - 1) // PAGE_ALIGNMENT * PAGE_ALIGNMENT
    moved = np.zeros(pages.num_rows, dtype=bool)
    moved[inline] = True
    given = {
        "kind": np.full(len(inline), int(PageKind.FILE)),
        "offset": np.cumsum(allocated) - allocated,
        "alloc_len": allocated,
    }
    columns: dict[str, pa.Array] = {}
    for name, values in given.items():
        column = pages.column(name).to_numpy().copy()
        column[inline] = values
        columns[name] = pa.array(column)
    mask = pa.array(moved)
    path = pc.if_else(mask, pa.scalar(key), pages.column("path").cast(pa.string()))
    columns["path"] = path.dictionary_encode()
    columns["data"] = pc.if_else(mask, pa.scalar(None, pa.binary()), pages.column("data"))
    arrays = [columns.get(name, pages.column(name)) for name in PAGE_SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=PAGE_SCHEMA)
