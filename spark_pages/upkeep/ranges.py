"""Compacted ranges against the slots that they hold, and lost slots out of compacted ranges."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import xxhash

from spark_pages.errors import SparkPagesError, UnsupportedFormatError
from spark_pages.log.encoding.commit_codec import decode_slot
from spark_pages.log.names import commit_key
from spark_pages.log.ranges.log_range import (
    MAX_RANGE_BYTES,
    LogRange,
    decode_range,
    encode_range,
    plan_ranges,
)
from spark_pages.log.slots import SlotReader
from spark_pages.model.actions import Commit
from spark_pages.show.text import count
from spark_pages.storage.store import ObjectStore
from spark_pages.upkeep.faults import MEND, FaultKind
from spark_pages.upkeep.slots import COMMIT
from spark_pages.upkeep.survey import Survey

_RANGE = re.compile(r"_log/(\d{20})-(\d{20})\.compacted\.avro")


def listed_range(key: str) -> LogRange | None:
    """The range that a key names, if it is a possible one."""
    found = _RANGE.fullmatch(key)
    if found is None:
        return None
    start, end = int(found[1]), int(found[2])
    exponent = (end - start + 1).bit_length() - 1
    around = LogRange(start, exponent)
    return around if exponent > 0 and around.stop == end + 1 and start % (end - start + 1) == 0 else None


def check_ranges(survey: Survey) -> None:
    """Every compacted range that there should be is there and holds its slots, bit by bit.

    One that is wrong or missing changes no answer.

    Notes
    -----
    A request for each range; memory for the slots of one.
    """
    for around in _ranges(survey):
        try:
            slots = decode_range(survey.findings.get(survey.store.get, around.key), around)
        except UnsupportedFormatError as error:
            survey.findings.add_error(error, around.key, MEND)
            continue
        except SparkPagesError as error:
            survey.findings.add(FaultKind.RANGE, around.key, error.message, MEND)
            continue
        wrong = [
            version
            for version, data in enumerate(slots, around.start)
            if survey.slots.kinds[version] == COMMIT
            and survey.slots.hashes[version] != xxhash.xxh3_64_intdigest(data)
        ]
        if wrong:
            what = f"{around.key} holds slot {wrong[0]} otherwise than {commit_key(wrong[0])}."
            survey.findings.add(FaultKind.RANGE, around.key, what, MEND)
    survey.lost_ranges = _lost(survey)
    if survey.lost_ranges:
        what = f"{told_lost(survey)} missing: reading takes more requests."
        survey.findings.add(FaultKind.RANGE, survey.lost_ranges[0].key, what, MEND)


def _lost(survey: Survey) -> list[LogRange]:
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
        and ends[each.stop] - ends[each.start] <= MAX_RANGE_BYTES
    ]


def told_lost(survey: Survey) -> str:
    """How many ranges are lost, and of which slots, up to "are"."""
    lost = survey.lost_ranges
    first, last = min(each.start for each in lost), max(each.stop for each in lost) - 1
    verb = "is" if len(lost) == 1 else "are"
    return f"{count(len(lost), 'compacted range')} of slots {first} to {last} {verb}"


def remake_ranges(survey: Survey) -> dict[str, bytes]:
    """Compacted ranges that are wrong, made again from their slots."""
    wrong = {fault.key for fault in survey.findings.faults if fault.kind is FaultKind.RANGE}
    found = {}
    for around in _ranges(survey):
        if around.key in wrong and survey.slots.all_commits(around.start, around.stop):
            slots = [survey.store.get(commit_key(version)) for version in range(around.start, around.stop)]
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
                data = decode_range(store.get(around.key), around)[version - around.start]
                slot = decode_slot(data, commit_key(version))
                later = decode_slot(vouching, "") if vouching else reader.read(version + 1)
            except SparkPagesError:
                continue
            proved = isinstance(later, Commit) and later.parent_digest == slot.digest
            if slot.version == version and proved:
                found[version] = data
                break
    return {commit_key(version): data for version, data in found.items()}


def _ranges(survey: Survey) -> Iterator[LogRange]:
    for key in sorted(survey.listed):
        around = listed_range(key)
        if around is not None and around.stop <= survey.slots.head + 1:
            yield around
