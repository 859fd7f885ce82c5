"""Verification: a whole store read and compared with itself. Writes nothing."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from spark_pages.arguments import as_choice
from spark_pages.arrow.stored_types import schema_from_bytes
from spark_pages.catalog.references import dangling_references
from spark_pages.catalog.table_zero import kind_of, stored_table_zero, table_zero
from spark_pages.errors import (
    InvalidInputError,
    InvalidKeyError,
    SparkPagesError,
    StoreNotFoundError,
    UnsupportedFormatError,
)
from spark_pages.format.features import check_writable
from spark_pages.format.names import LOG, PageFolders, commit_key, is_published, is_unnamed_tree_object
from spark_pages.io import PageHandler
from spark_pages.log.checkpoint.reader import Checkpoint
from spark_pages.log.discovery import open_state
from spark_pages.log.slots import SlotReader
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.maintenance.verify.compacted_ranges import check_ranges, listed_range
from spark_pages.maintenance.verify.faults import MEND, REFERENCES, RESTORE, UPGRADE, FaultKind, Verification
from spark_pages.maintenance.verify.page_values import PageReader, PageValues
from spark_pages.maintenance.verify.pages import PagesMode
from spark_pages.maintenance.verify.slots import TOMBSTONE
from spark_pages.maintenance.verify.walk import Survey, report_foreign_objects
from spark_pages.model.ids import CATALOG_TABLE
from spark_pages.model.table import TableDefinition
from spark_pages.runtime import Runtime
from spark_pages.storage.local import DurableLocalStore
from spark_pages.storage.store import ObjectInfo, ObjectStore, size_if_there

SAMPLE_FRACTION = 0.01
"""Part of the pages that ``pages="sample"`` reads."""

_VERSIONED = re.compile(r"(?:_log/checkpoints/|_log/\d{20}-)(\d{20})[-.]")
"""Objects of the log whose name tells a version that was in it when they were made."""

TEMPORARY_AGE_US = 24 * 3600 * 1_000_000
"""A temporary file this old is taken for one of a writer that died."""


def verify(
    store: ObjectStore,
    runtime: Runtime | None = None,
    pages: PagesMode = "sample",
    fraction: float = SAMPLE_FRACTION,
    page_reader: PageReader | None = None,
) -> Verification:
    """Everything that the log names has been read and compared; each fault is named.

    Parameters
    ----------
    pages
        Which pages are read: "all", "sample", or "none". A sample has at least one of each run of pages, all
        that lie in the log itself, and all whose type only their bytes prove. Descriptors, their places and
        the types that statistics tell are always checked.
    fraction
        Part of the pages that a sample reads, from 0 to 1.
    page_reader
        Reads the pages; by default this process does.

    Returns
    -------
    Verification
        Damage is told here, never raised.

    Raises
    ------
    StoreNotFoundError
        If there is no log.
    StorageError
        If storage cannot be listed, or fails while slots are read.

    Notes
    -----
    Two requests for each slot, one for each object of a checkpoint, and those of the pages read. Memory for
    the names of all objects, 8 MiB of pages, and the commits between two checkpoints.
    """
    survey = survey_store(store, runtime or Runtime(), pages, fraction, page_reader)
    findings = survey.findings
    return Verification(
        url=store.url,
        version=survey.slots.head,
        faults=tuple(findings.faults),
        objects=findings.objects,
        bytes_read=findings.bytes_read + survey.read.bytes,
        pages=findings.pages,
        pages_read=survey.read.pages,
        checkpoints=len(survey.trees),
        replayed=survey.replayed,
    )


def survey_store(
    store: ObjectStore,
    runtime: Runtime,
    pages: PagesMode,
    fraction: float = SAMPLE_FRACTION,
    page_reader: PageReader | None = None,
) -> Survey:
    """Collect the findings of `verify` in the form that `repair` plans from."""
    as_choice(pages, "pages", ("all", "sample", "none"))
    if not 0 <= fraction <= 1:
        raise InvalidInputError(
            f"Cannot verify a fraction {fraction} of the pages: expected 0 to 1.",
            hint="Pass a `fraction` such as 0.1.",
        )
    survey = Survey(store, runtime, pages, fraction, page_reader or PageValues(store))
    survey.run()
    report_foreign_objects(survey.strangers, _folders(survey).folders, survey.findings)
    if survey.slots.head < 0 and any(path.startswith(LOG.rstrip("/")) for path in survey.strangers):
        return survey
    if survey.slots.head < 0:
        raise StoreNotFoundError(
            f"Cannot verify {store.url}: there is no spark_pages store.",
            hint="Look at the address; `spark-pages create URL` creates a store.",
            url=store.url,
        )
    _check_table_zero(survey)
    check_ranges(survey)
    _check_end(survey)
    _check_kept_versions(survey)
    if not survey.findings.newer and not survey.slots.errors:  # else what cannot be read may name them
        _report_orphans(survey)
    for info in temporaries(store, runtime):
        what = f"{info.key} is an unfinished file of {info.size_bytes} bytes, untouched for a day."
        survey.findings.add(FaultKind.TEMPORARY, info.key, what, MEND)
    if why_no_repair(survey):
        survey.findings.advise_no_repair()
    return survey


def why_no_repair(survey: Survey) -> str:
    """Why this release must not mend anything of the store; empty where it may."""
    newer = survey.findings.newer
    if newer:
        return (
            f"{newer[0].key} was written by a newer release. This one cannot tell what is broken from what "
            f"it does not know, and mends nothing. {UPGRADE}"
        )
    try:
        check_writable(survey.features)
    except UnsupportedFormatError as error:
        return str(error)
    return ""


def temporaries(store: ObjectStore, runtime: Runtime) -> list[ObjectInfo]:
    """Unfinished files of local writers that must be dead, going by their age."""
    if not isinstance(store, DurableLocalStore):
        return []
    before_us = runtime.now_us() - TEMPORARY_AGE_US
    try:
        return [info for info in store.temporaries() if info.modified_at_us < before_us]
    except InvalidKeyError:  # no folder, which is among the strangers
        return []


def _check_table_zero(survey: Survey) -> None:
    state = survey.state
    if state is None:
        return
    snapshot = LogSnapshot(state, Checkpoint(state.base, survey.reader) if state.base else None)
    key = commit_key(state.version)
    try:
        for what in table_zero_differences(
            snapshot, PageHandler(survey.store, decoded_bytes=0, compressed_bytes=0)
        ):
            survey.findings.add(FaultKind.CONTRADICTION, key, f"At {key}, table 0 {what}.", RESTORE)
        for what in dangling_references(snapshot.tables()):
            survey.findings.add(FaultKind.CONTRADICTION, key, f"At {key}, {what}.", REFERENCES)
        stored_table_zero(snapshot)
    except UnsupportedFormatError as error:
        survey.findings.add_error(error, key, RESTORE)
    except SparkPagesError as error:
        if not survey.findings.faults:  # else its pages or checkpoint have been told already
            survey.findings.add_error(error, key, RESTORE)


def _check_end(survey: Survey) -> None:
    """No object was written for a version behind the end of the log: then its newest slots are lost.

    Nor has a vacuum cleaned slots of which no commit says so: it commits first.
    """
    head = survey.slots.head
    folders = _folders(survey)
    versions = {int(found[1]): key for key in survey.listed if (found := _VERSIONED.match(key))}
    foreign = survey.foreign_tokens()
    versions |= {
        read: key
        for key in survey.listed
        if (read := folders.epoch_of(key)) is not None and not any(token in key for token in foreign)
    }
    newest = max(versions, default=-1)
    if newest > head:
        told = (
            f"{versions[newest]} was written for version {newest}. Versions {head + 1} to {newest} are lost."
        )
        _report_missing_slots(survey, newest, told)
    cleaned, kept = survey.slots.kinds.rfind(TOMBSTONE), survey.slots.retention
    if cleaned >= (kept.min_readable if kept else 0) and not survey.slots.errors:
        told = f"{commit_key(cleaned)} has been cleaned. The commit of the vacuum that did so is lost."
        _report_missing_slots(survey, head + 1, told)


def _check_kept_versions(survey: Survey) -> None:
    """Open the oldest version that retention keeps, and what every tag and lease keeps, as a reader would."""
    state = survey.state
    if state is None or survey.findings.newer:  # versions on what this release cannot read
        return
    keepers: dict[int, list[str]] = {survey.oldest: ["the oldest version that retention keeps"]}
    for name, version in sorted(state.tags.items()):
        keepers.setdefault(version, []).append(f"tag {name!r}")
    for lease in state.leases.values():
        if lease.version >= survey.oldest or lease.expires_at_us > survey.runtime.now_us():
            keepers.setdefault(lease.version, []).append(f"lease {lease.lease_id}")
    slots = SlotReader(survey.store, survey.runtime.map)
    reported = {fault.key for fault in survey.findings.faults}
    for version, names in sorted(keepers.items()):
        try:
            kept = open_state(slots, survey.reader, state, version, survey.manifest_reader.read)
            live = LogSnapshot(kept, Checkpoint(kept.base, survey.reader) if kept.base else None).tables()
            for what in dangling_references(live) if version < state.version else ():
                key, told = commit_key(version), f"At version {version} ({', '.join(names)}), {what}."
                survey.findings.add(FaultKind.CONTRADICTION, key, told, REFERENCES)
        except SparkPagesError as error:
            if error.context.get("key") in reported:  # one damaged object is one fault
                continue
            what = f"Cannot open version {version} ({', '.join(names)}): {error.message}"
            survey.findings.add(FaultKind.CONTRADICTION, commit_key(version), what, RESTORE)


def _report_missing_slots(survey: Survey, version: int, told: str) -> None:
    """Report a missing slot before the head, unless it appeared since the listing began."""
    key = commit_key(version)
    if key in survey.listed:
        return
    if size_if_there(survey.store, key):
        return
    what = f"{key} is missing: the log ends with version {survey.slots.head}, but {told}"
    survey.findings.add(FaultKind.MISSING, key, what, RESTORE)


def _folders(survey: Survey) -> PageFolders:
    return PageFolders.of(survey.state.properties if survey.state else {})


def _report_orphans(survey: Survey) -> None:
    known, folders = survey.known_keys(), _folders(survey)
    for key in survey.listed.keys() - known:
        if is_published(key):
            continue
        around = listed_range(key)
        if around is not None and around.stop <= survey.slots.head + 1:
            continue
        if (key.startswith(LOG) or folders.contains(key)) and not is_unnamed_tree_object(key):
            what = f"Nothing names {key}: it was replaced, or its writer died or is still at work."
            remedy = "Vacuum removes it once no writer can need it."
        else:
            what = f"{key} is no object of the store."
            remedy = "Remove it if you know what it is."
        survey.findings.add(FaultKind.ORPHAN, key, what, remedy)


_OBJECTS = ("table", "namespace", "type")
"""Kinds of rows that describe something whole."""


def table_zero_differences(snapshot: LogSnapshot, pages: PageHandler) -> Iterator[str]:
    """Iterate over the differences between table 0 and the definitions.

    Raises
    ------
    DamageError, ObjectNotFoundError, StorageError
        If table 0 cannot be read.

    Notes
    -----
    Memory for table 0: a row for each table and column.
    """
    rows = [row for row in _read(snapshot, pages).to_pylist() if row["deleted_by"] is None]
    tables = {row["table_id"]: row for row in rows if row["kind"] in _OBJECTS}
    columns: dict[int, dict[str, int]] = defaultdict(dict)
    for row in rows:
        if row["kind"] == "column":
            columns[row["table_id"]][row["name"]] = row["field_id"]
    live = {definition.table_id: definition for definition in snapshot.tables()}
    if len(tables) != sum(row["kind"] in _OBJECTS for row in rows):
        yield "describes a table twice"
    for table_id in sorted({*tables, *live}):
        if table_id not in live:
            yield f"describes table {table_id}, {tables[table_id]['name']!r}, which the log does not have"
        elif table_id not in tables:
            yield f"does not describe table {table_id}, {live[table_id].name!r}"
        elif not _agrees(tables[table_id], columns[table_id], live[table_id]):
            yield f"describes table {table_id}, {live[table_id].name!r}, otherwise than the log"


def _agrees(row: dict[str, Any], columns: dict[str, int], definition: TableDefinition) -> bool:
    schema = schema_from_bytes(row["arrow_schema"])
    told = (row["namespace_id"], row["name"], json.loads(str(row["metadata"]))["aligned"])
    if not definition.is_table:
        columns = dict(definition.field_ids)
    return bool(
        row["kind"] == kind_of(definition)
        and told == (definition.namespace_id, definition.name, definition.aligned)
        and schema.equals(definition.schema, check_metadata=True)
        and columns == dict(definition.field_ids)
    )


def _read(snapshot: LogSnapshot, handler: PageHandler) -> pa.Table:
    columns = {}
    zero = table_zero(0)
    for name, field_id in zero.field_ids.items():
        run = snapshot.chain((CATALOG_TABLE, field_id)).all_pages()
        batches = handler.get_pages(run.descriptors(0, run.num_pages), admit=False)
        kind = zero.bare_schema.field(name).type
        columns[name] = pa.chunked_array([batch.column("data") for batch in batches], kind)
    return pa.table(columns)
