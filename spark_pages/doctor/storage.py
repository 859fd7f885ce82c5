"""What a store asks of its storage beside conditional puts, tried on keys of the doctor's own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from spark_pages.doctor.checks import Check, failed, ok, warning
from spark_pages.doctor.probe import FORK_TIMEOUT_S
from spark_pages.doctor.races import start_probe
from spark_pages.errors import DamageError, ObjectNotFoundError, SparkPagesError, StoreNotFoundError
from spark_pages.log.log import Log
from spark_pages.log.times import dated
from spark_pages.runtime import Runtime
from spark_pages.storage.store import ObjectStore

MAX_SKEW_US = 60 * 1_000_000
"""A clock that is further off than this is told."""

_WRONG = "Do not keep a store here: this storage does not do what it must."


def check_reach(store: ObjectStore, key: str) -> Check:
    """Whether storage can be written to and read from at all; the object stays for the other checks."""
    try:
        store.put(key, b"first")
        found = store.get(key)
    except SparkPagesError as error:
        return failed("reach", error.message, error.hint or "Check address, network and credentials.")
    if found != b"first":
        return failed("reach", f"wrote 5 bytes and read {len(found)} others back at once", _WRONG)
    return ok("reach", f"{store.url} can be written to and read from")


def check_objects(store: ObjectStore, key: str) -> list[Check]:
    """Overwriting, listing, ranges and missing objects."""
    checks = []
    for name, run in (
        ("overwrite", _overwrite),
        ("listing", _listing),
        ("ranges", _ranges),
        ("missing objects", _missing),
    ):
        try:
            problem = run(store, key)
        except SparkPagesError as error:
            problem = error.message
        checks.append(failed(name, problem, _WRONG) if problem else ok(name, "as promised"))
    return checks


def _overwrite(store: ObjectStore, key: str) -> str | None:
    store.put(key, b"second, which is longer")
    found = store.get(key)
    return None if found == b"second, which is longer" else "an object that was overwritten reads as before"


def _listing(store: ObjectStore, key: str) -> str | None:
    found = {info.key: info.size_bytes for info in store.list(key)}
    if key not in found:
        return "a listing does not show an object that is there"
    size = store.size(key)
    return None if found[key] == size else f"a listing tells {found[key]} bytes of an object of {size}"


def _ranges(store: ObjectStore, key: str) -> str | None:
    size = store.size(key)
    if store.get_range(key, 2, 5) != store.get(key)[2:7]:
        return "a range holds other bytes than the object"
    for offset in (size - 1, size, size + 10):
        try:
            found = store.get_range(key, offset, 10)
        except DamageError:
            continue
        return f"10 bytes from {offset} on of an object of {size} gave {len(found)} bytes and no error"
    return None


def _missing(store: ObjectStore, key: str) -> str | None:
    for read in (store.get, store.size):
        try:
            read(f"{key}-missing")
        except ObjectNotFoundError:
            continue
        return "an object that was never there can be read"
    store.delete(f"{key}-missing")
    store.put(f"{key}-gone", b"x")
    store.delete(f"{key}-gone")
    try:
        store.get(f"{key}-gone")
    except ObjectNotFoundError:
        return None
    return "an object can be read after it was deleted"


def check_clock(store: ObjectStore, runtime: Runtime, key: str) -> Check:
    """How far this machine's clock is from the storage's: as it tells, or by the time of a new object."""
    before_us = runtime.now_us()
    try:
        store.put(key, b"what time is it")
        after_us = runtime.now_us()
        theirs = store.now_us()
        if theirs is None:
            theirs = next(info.modified_at_us for info in store.list(key) if info.key == key)
    except (SparkPagesError, StopIteration) as error:
        return warning("clock of the storage", f"cannot be told: {type(error).__name__}", "Mend this first.")
    ours = (before_us + after_us) // 2
    skew_us = max(abs(ours - theirs) - 1_000_000 - (after_us - before_us), 0)  # listings know whole seconds
    found = f"{(ours - theirs) / 1e6:+.1f} s against the storage"
    if skew_us > MAX_SKEW_US:
        return warning("clock of the storage", found, "Set the clock: opening by time would mislead.")
    return ok("clock of the storage", found)


def check_store(store: ObjectStore, runtime: Runtime) -> list[Check]:
    """What store is there, and whether its newest commit is of the future."""
    try:
        state = Log(store, runtime).refresh().state
    except StoreNotFoundError:
        return [ok("store", f"none yet at {store.url}")]
    except SparkPagesError as error:
        return [failed("store", error.message, error.hint or "Run `spark-pages verify URL`.")]
    ahead_us = dated(state.properties, state.version, state.timestamp_us) - runtime.now_us()
    checks = [ok("store", f"version {state.version}")]
    if ahead_us > MAX_SKEW_US:
        remedy = "Set the clock that is wrong; if it was the writer's, run `spark-pages reset-clock URL`."
        return [*checks, warning("newest commit", f"is {ahead_us / 1e6:.0f} s ahead of this clock", remedy)]
    return [*checks, ok("newest commit", f"{-ahead_us / 1e6:.0f} s ago by this clock")]


def check_fork(store: ObjectStore, key: str, address: str, options: Mapping[str, Any] | None) -> Check:
    """Whether a child forked after the storage was used works, or is at least refused instead of hanging."""
    name = "fork"
    try:
        store.put(key, b"read by parent and child")
    except SparkPagesError as error:
        return failed(name, error.message, error.hint or "")
    process = start_probe({"role": "fork", "url": address, "options": dict(options or {}), "key": key})
    try:
        answer, _ = process.communicate(timeout=FORK_TIMEOUT_S + 20)
        word = json.loads(answer) if answer else "dies"
    except (subprocess.TimeoutExpired, ValueError):
        word = "hangs"
    finally:
        process.kill()
        process.communicate()
    if word == "works":
        return ok(name, "a forked child can read")
    if word == "refused":
        return ok(name, "a forked child is refused at once, as it must be; start processes by 'spawn'")
    return failed(name, f"a forked child {word}", "Start processes by 'spawn'; report this.")
