"""Compacted ranges against the slots that they hold, and lost slots out of compacted ranges."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import xxhash

from spark_pages.display.text import count
from spark_pages.errors import SparkPagesError, UnsupportedFormatError
from spark_pages.format.commit import MAX_COMMIT_BYTES, decode_slot
from spark_pages.format.names import commit_key
from spark_pages.log.compaction.compacted_range import (
    BUNDLES,
    CompactedRange,
    encode_range,
    is_one_frame,
    plan_ranges,
)
from spark_pages.log.compaction.reader import slots_of
from spark_pages.log.slots import SlotReader
from spark_pages.maintenance.verify.faults import MEND, FaultKind
from spark_pages.maintenance.verify.slots import COMMIT
from spark_pages.maintenance.verify.walk import Survey
from spark_pages.model.actions import Commit
from spark_pages.storage.store import ObjectStore

_RANGE = re.compile(r"_log/(\d{20})-(\d{20})\.(compacted\.avro|bundle)")


def listed_range(key: str) -> CompactedRange | None:
    """Return the range that a key names, or None if it is impossible."""
    found = _RANGE.fullmatch(key)
    if found is None:
        return None
    start, end = int(found[1]), int(found[2])
    exponent, bundled = (end - start + 1).bit_length() - 1, found[3] == "bundle"
    if exponent not in (BUNDLES if bundled else range(1, 64)):
        return None
    around = CompactedRange(start, exponent, bundled)
    return around if around.stop == end + 1 and start % (end - start + 1) == 0 else None


def check_ranges(survey: Survey) -> None:
    """Every compacted range that there should be is there; ranges and bundles hold their slots, bit by bit.

    One that is wrong or missing changes no answer. Log compaction makes bundles that are missing.

    Notes
    -----
    A request for each range, and for each 16 MiB of a bundle; memory for so much.
    """
    damaged = []
    for around in _ranges(survey):
        try:
            wrong = _differing(survey, around)
        except UnsupportedFormatError as error:
            survey.findings.add_error(error, around.key, MEND)
            continue
        except SparkPagesError as error:
            survey.findings.add(FaultKind.RANGE, around.key, error.message, MEND)
        else:
            if wrong is None:
                continue
            what = f"{around.key} holds slot {wrong} otherwise than {commit_key(wrong)}."
            survey.findings.add(FaultKind.RANGE, around.key, what, MEND)
        damaged.append(around)
    survey.lost_ranges = _lost(survey)
    if survey.lost_ranges:
        what = f"{describe_ranges(survey.lost_ranges)} missing: reading takes more requests."
        survey.findings.add(FaultKind.RANGE, survey.lost_ranges[0].key, what, MEND)
    survey.lost_ranges += sorted(
        (each for each in damaged if each.bundled and survey.slots.all_commits(each.start, each.stop)),
        key=lambda each: each.exponent,
    )


def _differing(survey: Survey, around: CompactedRange) -> int | None:
    """Find the first slot that a range holds with other bytes than the slot itself; None if there is none."""
    survey.findings.objects += 1
    size_bytes = survey.listed[around.key]
    survey.findings.bytes_read += size_bytes
    for part, slots in slots_of(survey.store, around, around.start, around.stop, size_bytes):
        for version, data in enumerate(slots, part.start):
            is_known = survey.slots.kinds[version] == COMMIT
            if is_known and survey.slots.hashes[version] != xxhash.xxh3_64_intdigest(data):
                return version
    return None


def _lost(survey: Survey) -> list[CompactedRange]:
    """Ranges that commits say were made, and no vacuum has deleted, but are not there.

    What a vacuum deletes ends before the version from which the oldest one kept is read. It does so before
    it buries the slots, so a killed one leaves commits without the ranges around them.
    """
    if survey.state is None:
        return []
    kept, compacted = survey.slots.read_from, min(survey.state.compacted, survey.slots.head + 1)
    ends = np.cumsum([0, *(survey.listed.get(commit_key(version), 0) for version in range(compacted))])
    return [
        each
        for each in plan_ranges(kept, compacted)
        if each.key not in survey.listed
        and each.stop > kept
        and survey.slots.all_commits(each.start, each.stop)
        and is_one_frame(int(ends[each.stop] - ends[each.start]))
    ]


def describe_ranges(ranges: Sequence[CompactedRange]) -> str:
    """How many ranges, and of which slots, up to "are"."""
    first, last = min(each.start for each in ranges), max(each.stop for each in ranges) - 1
    verb = "is" if len(ranges) == 1 else "are"
    return f"{count(len(ranges), 'compacted range')} of slots {first} to {last} {verb}"


def regenerate_ranges(survey: Survey) -> dict[str, bytes]:
    """Compacted ranges that are wrong, made again from their slots."""
    wrong = {fault.key for fault in survey.findings.faults if fault.kind is FaultKind.RANGE}
    found = {}
    for around in _ranges(survey):
        is_due = around.key in wrong and not around.bundled
        if is_due and survey.slots.all_commits(around.start, around.stop):
            slots = [
                survey.store.get(commit_key(version), MAX_COMMIT_BYTES)
                for version in range(around.start, around.stop)
            ]
            found[around.key] = encode_range(around.start, slots)
    return found


def recover_slots(store: ObjectStore, survey: Survey) -> dict[str, bytes]:
    """Lost slots as compacted ranges hold them.

    Their own digest, and the one that the next commit names as its parent's, prove them to be the ones that
    were there. Without a next commit that could be read, a slot is left alone.
    """
    found: dict[int, bytes] = {}
    ranges = list(_ranges(survey))
    reader = SlotReader(store)
    for version in sorted(survey.slots.errors, reverse=True):  # so that a later one can vouch for an earlier
        vouching = found.get(version + 1)
        for around in ranges:
            if not around.start <= version < around.stop:
                continue
            try:
                ((part, slots),) = slots_of(store, around, version, version + 1)
                data = slots[version - part.start]
                slot = decode_slot(data, commit_key(version))
                later = decode_slot(vouching, "") if vouching else reader.read(version + 1)
            except SparkPagesError:
                continue
            proved = isinstance(later, Commit) and later.parent_digest == slot.digest
            if slot.version == version and proved:
                found[version] = data
                break
    return {commit_key(version): data for version, data in found.items()}


def _ranges(survey: Survey) -> Iterator[CompactedRange]:
    for key in sorted(survey.listed):
        around = listed_range(key)
        if around is not None and around.stop <= survey.slots.head + 1:
            yield around
