"""Proof of an erase: what is listed as gone is absent, and nothing that is there stems from the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arguments import check_kind
from spark_pages.arrow.columns import numbers_of, valid_of
from spark_pages.errors import DamageError, ObjectNotFoundError
from spark_pages.format.bloom import BLOCK_BYTES, bloom_of
from spark_pages.format.names import PageFolders, commit_key
from spark_pages.format.value_hash import hash_values
from spark_pages.io import PageHandler, page_stats
from spark_pages.log.slots import SlotReader
from spark_pages.log.vacuum.reachability import Reason
from spark_pages.maintenance.erase.plan import ErasableStore, check_same_store
from spark_pages.maintenance.erase.report import ErasureReport
from spark_pages.maintenance.erase.row_trace import TracedPage, find_holders, holds_any, trace_rows
from spark_pages.maintenance.verify.faults import Fault, FaultKind, Verification
from spark_pages.model.actions import Tombstone
from spark_pages.model.page import PageKind
from spark_pages.query.page_metadata import PageMeta
from spark_pages.storage.store import ObjectStore, size_if_there

_REMEDY = "Run `store.resume_erase(report).execute()`, once what keeps the object has ended."

Offsets = NDArray[np.int64]


def with_erased(store: ErasableStore, found: Verification, report: ErasureReport) -> Verification:
    """Return what was found, and a fault for each object with something of rows that were erased.

    Notes
    -----
    Reads all commits that are kept, and every page of every version that has entries of the rows.
    """
    check_kind(report, ErasureReport, "erased", "an ErasureReport")
    check_same_store(store, report)
    faults = (*_reappeared(store, report), *_remains(store, report), *_orphans(found, store, report))
    return replace(found, faults=(*found.faults, *dict.fromkeys(faults)))


def _fault(key: str, what: str) -> Fault:
    return Fault(FaultKind.ERASED, key, f"{key} {what}.", _REMEDY)


def _reappeared(store: ErasableStore, report: ErasureReport) -> Iterator[Fault]:
    """Objects that the report lists as gone and that are there."""
    log, runtime = store._log, store._runtime
    slots = SlotReader(log.store, runtime.map)
    gone = [each for each in report.objects if each.gone]
    sizes = runtime.map(partial(size_if_there, log.store), [each.key for each in gone])
    for each, size in zip(gone, sizes, strict=True):
        if size is None:
            continue
        version = int(each.key.rpartition("/")[2].partition(".")[0]) if each.kind == Reason.SLOT else -1
        if version < 0 or not isinstance(slots.read(version), Tombstone):
            yield _fault(each.key, "is listed as gone, and is there")


def _remains(store: ErasableStore, report: ErasureReport) -> Iterator[Fault]:
    """Objects that hold something of the rows, in whatever version is kept."""
    log, runtime, pages = store._log, store._runtime, store._pages
    trace = trace_rows(log, runtime, report.table_id, report.ranges)
    found = {page: _remainder(traced, pages, log.store) for page, traced in trace.pages.items()}
    holding = {page: what for page, what in found.items() if what}
    kinds = find_holders(trace, set(holding), log, runtime)
    told = sorted(set(holding.values()))
    for key, each in kinds.items():
        if each.kind == Reason.SLOT and key in {commit_key(version) for version in trace.telling}:
            yield _fault(key, "touches erased rows, and its operation or parameters may tell of them")
        else:
            yield _fault(key, f"describes pages that {' or '.join(told)}" if told else "may hold erased rows")


def _orphans(found: Verification, store: ErasableStore, report: ErasureReport) -> Iterator[Fault]:
    """Page files that nothing names, of writers that may have read the rows."""
    folders = PageFolders.of(store._log.known().state.properties)
    for fault in found.faults:
        epoch = folders.epoch_of(fault.key) if fault.kind is FaultKind.ORPHAN else None
        if epoch is not None and epoch < report.deleted_version:
            yield _fault(fault.key, "is named by nothing, and its writer may have read erased rows")


def _remainder(traced: TracedPage, pages: PageHandler, store: ObjectStore) -> str:
    """Return what a page has of the rows, in words; empty where it has nothing."""
    page = traced.run.descriptor(0)
    try:
        batch = pages.get_page(page, admit=False)
    except ObjectNotFoundError:  # deleted meanwhile
        return ""
    values, offsets = batch.column("data"), traced.offsets
    if page.kind is PageKind.CONSTANT:
        values, offsets = values.slice(0, 1), np.zeros(1, np.int64)
    if holds_any(values, PageMeta.of([batch]), offsets):
        return "have entries of erased rows"
    if not _explains_bounds(traced, values):
        return "have bounds that none of their values explains"
    if not _explains_bloom(traced, values, store):
        return "have bloom filters that their values do not explain"
    dead = np.zeros(len(values), bool)
    dead[offsets] = True
    if has_remains(values, dead):
        return "have bytes under nulls, or values of dictionaries, that no entry has"
    return ""


def _explains_bounds(traced: TracedPage, values: pa.Array) -> bool:
    told = traced.run.stats.to_pylist()[0]
    if told["null_count"] is None:
        return True
    found = page_stats(values)
    return (found.min, found.max, found.nan) == (told["min"], told["max"], bool(told["nan"]))


def _explains_bloom(traced: TracedPage, values: pa.Array, store: ObjectStore) -> bool:
    told = traced.run.stats.to_pylist()[0]
    if told["bloom_offset"] is None:
        return True
    try:
        path = traced.run.descriptor(0).disk_path
        stored = bytes(store.get_range(path, told["bloom_offset"], told["bloom_length"]))
    except (DamageError, ObjectNotFoundError):
        return False
    hashes = hash_values(values)
    if hashes is None or not len(hashes):
        return not any(stored)
    return stored == bloom_of(np.unique(hashes), len(stored) // BLOCK_BYTES)


def has_remains(values: pa.Array, dead: NDArray[np.bool_]) -> bool:
    """Whether bytes under the nulls of some entries, or values of a dictionary, are those of no other entry.

    Parameters
    ----------
    dead : bool, shape (n_entries,)
        The entries, which are null.
    """
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return has_remains(values.storage, dead)
    if pa.types.is_dictionary(kind):
        used = np.unique(numbers_of(values.indices)[valid_of(values.indices)])
        return len(used) < len(values.dictionary) or has_remains(values.indices, dead)
    if pa.types.is_struct(kind):
        return any(has_remains(values.field(index), dead) for index in range(kind.num_fields))
    if pa.types.is_fixed_size_list(kind):
        inside = values.values.slice(values.offset * kind.list_size, len(values) * kind.list_size)
        return has_remains(inside, np.repeat(dead, kind.list_size))
    offsets = _lengths(values)
    if offsets is not None:
        return bool(offsets[dead].any())
    try:
        width = kind.bit_width // 8
    except ValueError:
        return False
    if not width or values.buffers()[1] is None:  # a boolean has too few values to tell of one
        return False
    raw = np.frombuffer(values.buffers()[1], np.uint8)[values.offset * width :][: len(values) * width]
    entries = raw.reshape(-1, width).copy().view(f"V{width}").ravel()
    known = {bytes(width), *(bytes(each) for each in entries[~dead])}
    return any(bytes(each) not in known for each in entries[dead])


def _lengths(values: pa.Array) -> NDArray[np.int64] | None:
    """Bytes or items that each entry takes; None for types whose entries have no lengths."""
    kind, types = values.type, pa.types
    if types.is_string(kind) or types.is_binary(kind) or types.is_list(kind) or types.is_map(kind):
        code = "<i4"
    elif types.is_large_string(kind) or types.is_large_binary(kind) or types.is_large_list(kind):
        code = "<i8"
    else:
        return None
    buffer = values.buffers()[1]
    if buffer is None or not len(values):
        return np.zeros(len(values), np.int64)
    ends = np.frombuffer(buffer, code)[values.offset : values.offset + len(values) + 1]
    return np.diff(ends).astype(np.int64)
