"""What a process of a medley does: transactions drawn at random, upkeep and reads, all of it noted.

A transaction is noted before its commit, with all that it changes, and what became of it afterwards. So
whoever is killed leaves word of what may have landed.
"""

from __future__ import annotations

import json
import random
import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import spark_pages as sp
from spark_pages.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    InvalidInputError,
    NotFoundError,
    ObjectNotFoundError,
    PageNotFoundError,
    SnapshotExpiredError,
    TableNotFoundError,
    VersionNotFoundError,
)
from spark_pages.log.checkpoint import writer as checkpoint_writer
from spark_pages.query.snapshot import Snapshot
from spark_pages.store import Store
from spark_pages.transaction.transaction import Transaction
from tests.crash.medley_model import fingerprint
from tests.crash.medley_program import Program
from tests.crash.storm import Place

TAGS = ["one", "two"]
THREADS = 2
_REFUSALS = (CommitConflictError, NotFoundError, AlreadyExistsError, InvalidInputError)
_NEVER = (ObjectNotFoundError, PageNotFoundError, VersionNotFoundError)
"""What a transaction is never told, expired versions apart."""

_ACTS = {
    "transact": 150,
    "read": 20,
    "restore": 1,
    "tag": 3,
    "delete_tag": 2,
    "checkpoint": 3,
    "compact_log": 3,
    "compact_pages": 6,
    "vacuum": 4,
    "lease": 1,
}


class Notes:
    """What one process has noted, a line of JSON each; a line that a kill cut short is none."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, **told: Any) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps(told).encode() + b"\n")

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """All of a file, oldest first."""
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]


def work(place: Place, who: str, life: int, notes: Path, seed: int, enough: Path) -> None:
    """Act in several threads on one store until there is a file that says that it is enough."""
    shrink_trees(seed)
    store = sp.open(place[0], storage_options=place[1])
    earlier = [note for note in Notes.read(notes) if "app" in note]
    failures: list[BaseException] = []

    def run(thread: int) -> None:
        app = f"{who}.{thread}"
        number = max((note["app"][1] for note in earlier if note["app"][0] == app), default=0)
        writer = Writer(
            store, f"{app}.{life}", app, number, Notes(notes), random.Random(f"{seed} {app} {life}")
        )
        try:
            while not enough.exists() and not failures:
                writer.act()
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            error.add_note(f"{writer.name} in {writer.doing}")
            failures.append(error)

    threads = [threading.Thread(target=run, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    store.close()


def shrink_trees(seed: int) -> None:
    """Checkpoints have few pages a segment and few segments a part, by two seeds of three."""
    if seed % 3:
        checkpoint_writer.PAGES_PER_SEGMENT = 4
        checkpoint_writer.SEGMENTS_PER_PART = 3
        checkpoint_writer._TABLES_PER_FILE = 2


def columns_of(snapshot: Snapshot) -> dict[str, str]:
    """A fingerprint of each table."""
    return {name: fingerprint(snapshot.table(name).read().to_pydict()) for name in snapshot.tables()}


class Writer:
    """One thread: draws what to do, does it and notes it."""

    def __init__(
        self, store: Store, name: str, app: str, number: int, notes: Notes, chance: random.Random
    ) -> None:
        self.store = store
        self.name = name
        self.doing = ""
        self._app, self._number = app, number
        self._notes = notes
        self._chance = chance
        self._count = 0
        self._held: Snapshot | None = None

    def act(self) -> None:
        """Do one thing."""
        self.doing = self._draw(_ACTS)
        try:
            getattr(self, self.doing)()
        except (CommitConflictError, SnapshotExpiredError, CommitUnknownError) as error:
            self._notes.write(refused=type(error).__name__, act=self.doing)
        except VersionNotFoundError as error:
            if "tag" not in self.doing:
                raise
            self._notes.write(refused=type(error).__name__, act=self.doing)
        except InvalidInputError as error:
            if self.doing != "restore" or "purged" not in str(error):
                raise

    def _draw(self, weights: dict[str, int]) -> str:
        return self._chance.choices(list(weights), list(weights.values()))[0]

    # upkeep and reads

    def read(self) -> None:
        """A version, a tag, or a snapshot that was opened earlier."""
        chance = self._chance.random()
        if chance < 0.4 or self._held is None:
            self._held = self.store.snapshot(version=self._some_version())
        if chance < 0.2:
            return
        snapshot = self._held if chance < 0.7 else self.store.snapshot()
        self._notes.write(saw=snapshot.version, tables=columns_of(snapshot))

    def _some_version(self) -> int:
        newest = self.store.snapshot().version
        return self._chance.randint(max(0, newest - 20), newest)

    def restore(self) -> None:
        then = self._some_version()
        self._notes.write(restored=then, version=self.store.restore(version=then))

    def tag(self) -> None:
        self.store.tag(self._chance.choice(TAGS), self._some_version(), replace=True)

    def delete_tag(self) -> None:
        self.store.delete_tag(self._chance.choice(TAGS))

    def checkpoint(self) -> None:
        self.store.checkpoint()

    def compact_log(self) -> None:
        self.store.compact_log()

    def compact_pages(self) -> None:
        names = self.store.snapshot().tables()
        if names:
            with suppress(TableNotFoundError):  # dropped meanwhile
                self.store.compact_pages(self._chance.choice(names))

    def vacuum(self) -> None:
        self.store.vacuum(retention=self._chance.randint(1, 30), orphans=self._chance.random() < 0.2)

    def lease(self) -> None:
        snapshot = self.store.snapshot(version=self._some_version())
        with snapshot.lease(timedelta(minutes=5)):
            for _ in range(3):
                self.transact()
            try:
                tables = columns_of(snapshot)
            except SnapshotExpiredError as error:
                raise AssertionError(f"version {snapshot.version} was leased") from error
        self._notes.write(saw=snapshot.version, tables=tables)

    # transactions

    def transact(self) -> None:
        """One transaction, whatever becomes of it."""
        self._count += 1
        name = f"{self.name}.{self._count}"
        chance = self._chance.random()
        app: tuple[str | None, int | None] = (None, None)
        if chance < 0.15:
            self._number += self._chance.random() < 0.8
            app = (self._app, max(self._number, 1))
        txn = self.store.transaction(
            operation="medley",
            parameters={"name": name},
            app_id=app[0],
            app_version=app[1],
            isolation="serializable" if self._chance.random() < 0.25 else "snapshot",
            memory_bytes=self._chance.choice([1, 256 << 20]),
        )
        try:
            program = Program(txn, name, self._chance)
            program.run()
            told = {"app": app} if app[0] else {}
            self._notes.write(planned=name, ops=program.ops, relied=sorted(program.relied), **told)
            for read, mark, found in program.reads:
                self._notes.write(within=name, version=read, table=mark, found=found)
            version = self._committed(txn)
        except _REFUSALS as error:
            txn.rollback()
            if isinstance(error, _NEVER) and not isinstance(error, SnapshotExpiredError):
                raise
            self._notes.write(refused=type(error).__name__, act="transact", name=name, why=str(error))
            return
        self._notes.write(acked=name, version=version, exact=txn.version_is_exact)

    def _committed(self, txn: Transaction) -> int:
        try:
            return txn.commit()
        except CommitUnknownError as error:
            return self.store.resume(error)
