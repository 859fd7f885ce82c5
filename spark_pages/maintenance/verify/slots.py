"""The slots of the log, one after the other: each by itself, and each against the one before."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field

import numpy as np
import xxhash

from spark_pages.errors import DamageError, ObjectNotFoundError, SparkPagesError
from spark_pages.format.commit import MAX_COMMIT_BYTES, decode_slot
from spark_pages.format.names import commit_key
from spark_pages.log.retention import further
from spark_pages.maintenance.verify.faults import MEND, RESTORE, FaultKind, Findings
from spark_pages.model.actions import (
    NO_FEATURES,
    CheckpointRef,
    Commit,
    Features,
    Retention,
    Tombstone,
)
from spark_pages.runtime import map_in_threads
from spark_pages.storage.store import ObjectStore

ROUND = 32
"""Slots in flight and in memory at a time."""

_SLOT = re.compile(r"_log/(\d{20})\.avro")

LOST, COMMIT, TOMBSTONE = 0, 1, 2


def slot_of(key: str) -> int | None:
    """Return the version of the slot that a key names, or None for another object."""
    match = _SLOT.fullmatch(key)
    return int(match[1]) if match else None


@dataclass(eq=False, slots=True)
class SlotSurvey:
    """What the slots hold.

    Attributes
    ----------
    kinds
        One byte for each version from 0 to the head: LOST (missing or damaged), COMMIT or TOMBSTONE.
    refs
        Every checkpoint that a slot names, by the key of its root.
    newest_ref
        The one that the newest slot names.
    retention
        What commits say that is kept: of vacuums the one that keeps least. None buries its own commit.
    features
        What the newest commit that can be read asks of readers and writers.
    errors
        Why the lost ones cannot be read.
    foreign
        Commits and tombstones of other stores behind the head.
    hashes
        xxh3_64 of each slot as it is stored, 0 of the lost ones.
    """

    kinds: bytearray = field(default_factory=bytearray)
    refs: dict[str, CheckpointRef] = field(default_factory=dict)
    newest_ref: CheckpointRef | None = None
    retention: Retention | None = None
    features: Features = NO_FEATURES
    errors: dict[int, SparkPagesError] = field(default_factory=dict)
    foreign: list[Commit | Tombstone] = field(default_factory=list)
    hashes: array[int] = field(default_factory=lambda: array("Q"))

    @property
    def head(self) -> int:
        """The newest version, -1 where there is none."""
        return len(self.kinds) - 1

    @property
    def read_from(self) -> int:
        """Where the tail of the oldest kept version begins: a vacuum may delete ranges that end before."""
        kept = self.retention
        return min(kept.min_readable, kept.checkpoint.version) if kept and kept.checkpoint else 0

    def all_commits(self, start: int, stop: int) -> bool:
        """Whether slots [start, stop) can all be replayed."""
        return self.kinds.count(COMMIT, start, stop) == stop - start


def survey_slots(store: ObjectStore, listed: set[str], findings: Findings) -> SlotSurvey:
    """Read every slot and check digest, version, hash chain, times and tokens.

    Parameters
    ----------
    listed
        Keys of the store. The largest slot among them is taken for the head, so that a gap is seen.

    Notes
    -----
    A request for each slot; memory for 32 slots, 25 bytes for each slot and 16 for each transaction.
    """
    numbers = [int(found[1]) for key in listed if (found := _SLOT.fullmatch(key))]
    survey = SlotSurvey(bytearray(max(numbers, default=-1) + 1))
    tokens, versions = array("Q"), array("q")
    digest: str | None = ""
    store_id = ""
    time_us = -(1 << 63)
    for first in range(0, len(survey.kinds), ROUND):
        wanted = range(first, min(first + ROUND, len(survey.kinds)))
        read_slots = map_in_threads(lambda number: _read(store, number), wanted)
        for version, read in zip(wanted, read_slots, strict=True):
            slot, data = read
            findings.objects += 1
            findings.bytes_read += len(data)
            survey.hashes.append(xxhash.xxh3_64_intdigest(data) if data else 0)
            if not isinstance(slot, SparkPagesError):
                store_id = store_id or slot.id_of_store
                if slot.id_of_store not in ("", store_id):
                    survey.foreign.append(slot)
                    key = commit_key(version)
                    slot = DamageError(f"Cannot read commit {key}: it belongs to another store.", key=key)
            if isinstance(slot, SparkPagesError):
                survey.errors[version] = slot
                digest = None
                continue
            survey.kinds[version] = COMMIT if isinstance(slot, Commit) else TOMBSTONE
            _check_order(slot, digest, time_us, findings)
            digest, time_us = slot.digest, slot.timestamp_us
            if slot.checkpoint is not None:
                survey.refs[slot.checkpoint.location.key] = survey.newest_ref = slot.checkpoint
            if isinstance(slot, Commit):
                survey.features = slot.features
            for record in slot.records if isinstance(slot, Commit) else ():
                survey.retention = further(survey.retention, record.retention)
            for token in tokens_of(slot):
                tokens.append(int(token[:16], 16))
                versions.append(version)
    _check_tokens(tokens, versions, findings)
    _drop_foreign_tail(survey, findings)
    return survey


def _drop_foreign_tail(survey: SlotSurvey, findings: Findings) -> None:
    """Take the head for the last slot of this store, where commits of others are behind it."""
    foreign = {slot.version for slot in survey.foreign}
    there = (
        version
        for version in range(survey.head, -1, -1)
        if survey.kinds[version] != LOST
        or (version not in foreign and not isinstance(survey.errors[version], ObjectNotFoundError))
    )
    end = next(there, -1) + 1 if foreign else len(survey.kinds)
    for version in range(end, len(survey.kinds)):
        del survey.errors[version]
    del survey.kinds[end:], survey.hashes[end:]
    survey.foreign = [slot for slot in survey.foreign if slot.version >= end]
    for slot in survey.foreign:
        key = commit_key(slot.version)
        what = (
            f"{key} holds a commit of another store, which somebody who had it open at this address wrote "
            f"after it was replaced. Nothing can be committed; versions up to {end - 1} are served."
        )
        findings.add(FaultKind.FOREIGN, key, what, MEND)


def _read(store: ObjectStore, version: int) -> tuple[Commit | Tombstone | SparkPagesError, bytes]:
    """Read a slot; what is damaged is read again, as `read_checked` does."""
    found = _read_once(store, version)
    return _read_once(store, version) if isinstance(found[0], DamageError) else found


def _read_once(store: ObjectStore, version: int) -> tuple[Commit | Tombstone | SparkPagesError, bytes]:
    key = commit_key(version)
    try:
        data = store.get(key, MAX_COMMIT_BYTES)
    except SparkPagesError as error:
        return error, b""
    try:
        slot = decode_slot(data, key)
    except SparkPagesError as error:
        return error, data
    if slot.version != version:
        return DamageError(
            f"Cannot read commit {key}: it holds version {slot.version}, so objects were swapped.", key=key
        ), data
    return slot, data


def _check_order(slot: Commit | Tombstone, digest: str | None, time_us: int, findings: Findings) -> None:
    key = commit_key(slot.version)
    if isinstance(slot, Commit) and digest is not None and slot.parent_digest != digest:
        findings.add(
            FaultKind.CONTRADICTION,
            key,
            f"{key} names a parent with digest {slot.parent_digest or 'none'}, but the slot before it has "
            f"{digest or 'none'}: one of the two is of another history.",
            RESTORE,
        )
    if slot.timestamp_us <= time_us:
        findings.add(
            FaultKind.CONTRADICTION,
            key,
            f"{key} is of time {slot.timestamp_us} µs, not later than its parent's {time_us} µs.",
            "Opening a version by its time may be wrong by this much; report the writer.",
        )


def tokens_of(slot: Commit | Tombstone) -> list[str]:
    """Of the commit and of its transactions."""
    if isinstance(slot, Commit):
        return [slot.token, *(record.token for record in slot.records)]
    return [slot.token, *(token for token, _ in slot.transactions)]


def _check_tokens(tokens: array[int], versions: array[int], findings: Findings) -> None:
    """No commit and no transaction is twice in the log. Compared by 64 of 128 random bits."""
    if not tokens:
        return
    numbers, of = np.frombuffer(tokens, np.uint64), np.frombuffer(versions, np.int64)
    order = np.argsort(numbers, kind="stable")
    again = np.flatnonzero(numbers[order][1:] == numbers[order][:-1])
    for index in again.tolist():
        first, second = int(of[order[index]]), int(of[order[index + 1]])
        findings.add(
            FaultKind.CONTRADICTION,
            commit_key(second),
            f"{commit_key(second)} repeats a token, of its commit or of a transaction, of version {first}.",
            "Readers that replay both versions refuse a transaction that comes twice; restore an earlier "
            "copy, and report the writer.",
        )
