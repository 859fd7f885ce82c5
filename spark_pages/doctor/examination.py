"""All checks, in the order in which a failure of one explains those after it."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from spark_pages.doctor.checks import Check, Status, failed, ok, warning
from spark_pages.doctor.probe import FORK_TIMEOUT_S
from spark_pages.doctor.races import race, start_probe
from spark_pages.errors import DamageError, ObjectNotFoundError, SparkPagesError, StoreNotFoundError
from spark_pages.log.commit_times import dated
from spark_pages.log.log import Log
from spark_pages.runtime import Runtime
from spark_pages.spark.session import find_java
from spark_pages.spark.versions import SPARK_SERIES
from spark_pages.storage import open_object_store
from spark_pages.storage.store import ObjectStore

_FOLDER = "_doctor/"


@dataclass(frozen=True, slots=True)
class Examination:
    """What the doctor found.

    Attributes
    ----------
    url
        Which storage.
    checks
        Every check.
    """

    url: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed; there may be warnings."""
        return all(check.status is not Status.FAILED for check in self.checks)


def examine(url: str, storage_options: Mapping[str, Any] | None = None) -> Examination:
    """Examine this machine and the storage at an address.

    Notes
    -----
    Writes some twenty small objects below ``_doctor/`` and removes them. A minute at most where storage
    answers; nothing of a store that is there is touched.
    """
    store = open_object_store(url, storage_options)
    shared = not store.url.startswith("memory://")
    found = examine_storage(store, Runtime(), url if shared else None, storage_options)
    _remove_folder(store, _FOLDER)
    return Examination(store.url, (*check_machine(), *found))


def examine_storage(
    store: ObjectStore,
    runtime: Runtime,
    address: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[Check]:
    """Examine storage only.

    Parameters
    ----------
    address, options
        How other processes reach the same storage; None where they cannot.
    """
    prefix = f"{_FOLDER}{runtime.token()}/"
    reach = check_reach(store, f"{prefix}object")
    checks = [reach]
    try:
        if reach.status is Status.OK:
            checks += race(store, prefix, address, options)
            checks += check_objects(store, f"{prefix}object")
            checks.append(check_clock(store, runtime, f"{prefix}time"))
            if address is not None:
                checks.append(check_fork(store, f"{prefix}fork", address, options))
            checks += check_store(store, runtime)
    finally:
        checks += _clean(store, prefix)
    return checks


def _clean(store: ObjectStore, prefix: str) -> list[Check]:
    try:
        for info in store.list(prefix):
            store.delete(info.key)
        left = len(store.list(prefix))
        _remove_folder(store, prefix)
    except SparkPagesError as error:
        return [warning("cleaning up", error.message, f"Remove what is below {prefix}.")]
    return (
        [warning("cleaning up", f"{left} objects stayed", f"Remove what is below {prefix}.")] if left else []
    )


def _remove_folder(store: ObjectStore, prefix: str) -> None:
    """Remove a local folder if it is empty."""
    path = store.local_path(f"{prefix}object")
    if path is not None:
        with suppress(OSError):
            os.rmdir(os.path.dirname(path))


OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
DELTA_OF_SPARK = {"4.2.": "4.4."}
"""The delta-spark series that goes with a pyspark series."""

_NEEDED = ("pyarrow", "numpy", "lz4", "fastavro", "obstore", "xxhash")
_WAIT_S = 20.0


def check_machine() -> list[Check]:
    """Everything about this machine."""
    return [check_python(), check_packages(), check_java(), check_spark(), check_pyspark_python()]


def check_python() -> Check:
    """Whether the interpreter is new enough."""
    found = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info < OLDEST_PYTHON:
        return failed("python", found, f"Use Python {'.'.join(map(str, OLDEST_PYTHON))} or later.")
    return ok("python", found)


def check_packages() -> Check:
    """Whether what a store needs is installed, and in which versions."""
    found = {name: _version(name) for name in ("spark-pages", *_NEEDED)}
    missing = [name for name, number in found.items() if number is None]
    shown = ", ".join(f"{name} {number}" for name, number in found.items() if number)
    if missing:
        return failed("packages", f"{', '.join(missing)} missing", "pip install spark-pages")
    return ok("packages", shown)


def check_java() -> Check:
    """Whether there is a Java that Spark can use; a store needs none."""
    java = find_java()
    if java is None:
        return warning(
            "java", "none", f"Install a JDK {OLDEST_JAVA} or later to use Spark; a store needs none."
        )
    told = _output([java, "-version"])
    number = re.search(r'version "(\d+)(?:\.(\d+))?', told)
    if number is None:
        return warning("java", "does not tell its version", "Check that `java -version` works.")
    major = int(number[2] or 0) if number[1] == "1" else int(number[1])
    if major < OLDEST_JAVA:
        return warning("java", f"version {major}", f"Spark needs Java {OLDEST_JAVA} or later.")
    return ok("java", f"version {major}")


def check_spark(installed: dict[str, str | None] | None = None) -> Check:
    """Whether pyspark and delta-spark go with this release and with each other."""
    found = installed or {name: _version(name) for name in ("pyspark", "delta-spark")}
    pyspark, delta = found["pyspark"], found["delta-spark"]
    if pyspark is None:
        return ok("spark", "pyspark is not installed; a store needs none")
    shown = f"pyspark {pyspark}, delta-spark {delta or 'not installed'}"
    remedy = 'pip install "spark-pages[spark]"'
    if not pyspark.startswith(SPARK_SERIES):
        return warning("spark", shown, f"pyspark {SPARK_SERIES}x is needed: {remedy}")
    wanted = DELTA_OF_SPARK[SPARK_SERIES]
    if delta is not None and not delta.startswith(wanted):
        return warning("spark", shown, f"delta-spark {wanted}x goes with this pyspark: {remedy}")
    return ok("spark", shown)


def check_pyspark_python() -> Check:
    """Whether Spark's workers would run the same Python as this process."""
    name = "PYSPARK_PYTHON"
    given = os.environ.get(name)
    if not given:
        return ok(name, "not set; sessions of spark_pages use this interpreter")
    python = shutil.which(given)
    if python is None:
        return warning(name, f"{given} is not there", "Unset it, or name an interpreter.")
    theirs = _output([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).strip()
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if theirs != ours:
        found = f"Python {theirs or 'that does not start'}, but this is {ours}"
        return warning(name, found, "Spark needs one minor version on both sides: unset it, or change it.")
    return ok(name, f"Python {theirs}, as this one")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java or Python
            command, capture_output=True, text=True, timeout=_WAIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


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
    """Check overwriting, listing, ranges and missing objects."""
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
    """Check the store at the address, and whether its newest commit lies in the future."""
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
