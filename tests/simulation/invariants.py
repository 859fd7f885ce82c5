"""What must hold after every step: a history that knows all that ever landed, and a plain model of it.

The model shares no code with the package: it keeps lists of pages and looks for runs in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_pages.format.names import commit_key
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.vacuum.reachability import TreeWalker
from spark_pages.model.actions import Commit, Retention, Tombstone, TransactionRecord
from tests.simulation.model import ChainKey, Model, Violation, holds
from tests.simulation.values import Value, memory, standing

_SLOT = len("_log/") + 20
_models, _verified, _paths = memory(), memory(), memory()


@dataclass(frozen=True, eq=False, slots=True)
class Seen:
    """What a process was shown of a snapshot, chains apart."""

    version: int
    digest: str
    apps: Mapping[str, tuple[int, int]]
    retention: Retention | None
    next_table_id: int


Pair = tuple[str | None, int | None]
"""An exactly-once pair."""


class History:
    """Every commit that ever was in a slot, and what processes were told."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.models: list[Model] = []
        self.tokens: dict[str, int] = {}
        self.acknowledged: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self.relied: dict[str, tuple[int, frozenset[int]]] = {}
        self.seen: dict[str, int] = {}
        self.newest_acknowledged = -1
        self.floors: dict[str, int] = {}

    def copy(self) -> History:
        """A history that goes on by itself."""
        other = History()
        other.commits = list(self.commits)
        other.models = list(self.models)
        other.tokens = dict(self.tokens)
        return other

    def fork(self) -> History:
        """The same history, what processes were told included."""
        other = self.copy()
        other.acknowledged = dict(self.acknowledged)
        other.refused = dict(self.refused)
        other.relied = dict(self.relied)
        other.seen = dict(self.seen)
        other.newest_acknowledged = self.newest_acknowledged
        other.floors = dict(self.floors)
        return other

    @property
    def head(self) -> int:
        """The newest version that ever landed."""
        return len(self.commits) - 1

    def held(self) -> frozenset[int]:
        """The versions that tags and leases hold by now; where retention has moved, its oldest one too."""
        newest = self.models[-1]
        moved = frozenset({newest.retention.min_readable}) if newest.retention else frozenset()
        return moved.union(newest.tags.values(), newest.leases.values())

    # storage

    def created(self, key: str, data: bytes, objects: Mapping[str, bytes]) -> None:
        """An object has come into being."""
        if len(key) != _SLOT + 5 or not key.startswith("_log/"):
            return
        version = int(key[5:_SLOT])
        holds(isinstance(data, Value), "slots", f"{key} holds something else than a commit")
        commit = data.value  # type: ignore[attr-defined]
        holds(isinstance(commit, Commit), "slots", f"{key} was created as a {type(commit).__name__}")
        if version <= self.head:
            raise Violation(
                "one version, one content",
                f"slot {version} held commit {self.commits[version].token} and was taken by {commit.token}",
            )
        holds(version == self.head + 1, "slots contiguous", f"slot {version} was taken after {self.head}")
        before = self.models[-1] if self.models else Model()
        parent = self.commits[-1].digest if self.commits else ""
        holds(commit.parent_digest == parent, "hash chain", f"commit {version} names another parent")
        for record in commit.records:
            self._record_landed(record, version)
        known = _models.get(commit.digest)
        self.models.append(known if known else _models.keep(commit.digest, before.after(commit)))
        for record in commit.records:
            if record.operation == "restore rows":
                self._check_restored(self.models[-1], self.models[int(record.parameters["version"])], version)
        self.commits.append(commit)
        for path in _paths_of(commit):
            holds(
                path in objects,
                "nothing live is deleted",
                f"commit {version} names {path}, which is not there",
            )

    @staticmethod
    def _check_restored(now: Model, then: Model, version: int) -> None:
        """Every chain of the table of rows holds what it held at the version that was restored."""
        for key in (now.chains.keys() | then.chains.keys()) - {(2, 1)}:
            told, was = ([page[1:3] for page in each.chains.get(key, ())] for each in (now, then))
            holds(told == was, "restored rows", f"version {version} restores {key} as {told}, it was {was}")

    def _record_landed(self, record: TransactionRecord, version: int) -> None:
        token = record.token
        if token in self.tokens:
            raise Violation(
                "exactly once", f"transaction {token} is in versions {self.tokens[token]} and {version}"
            )
        if token in self.refused:
            raise Violation(
                "no ghost", f"transaction {token} lands as version {version}, but {self.refused[token]}"
            )
        self.tokens[token] = version
        if token in self.relied:
            read, tables = self.relied[token]
            for commit in self.commits[read + 1 :]:
                for other in commit.records:
                    changed = {s.table_id for s in other.splices if s.data_change} & tables
                    holds(not changed, "serializable", f"version {version} relied on {changed} as of {read}")

    def overwritten(self, key: str, data: bytes, objects: Mapping[str, bytes]) -> None:
        """An object has taken the place of whatever was there."""
        if len(key) != _SLOT + 5 or not key.startswith("_log/"):
            return
        version = int(key[5:_SLOT])
        tombstone = data.value if isinstance(data, Value) else None
        holds(isinstance(tombstone, Tombstone), "one version, one content", f"slot {version} was overwritten")
        assert isinstance(tombstone, Tombstone)
        holds(version <= self.head, "tombstones", f"slot {version} is cleaned, but it was never taken")
        commit = self.commits[version]
        told = tombstone.version, tombstone.timestamp_us, tombstone.token, tombstone.digest
        was = commit.version, commit.timestamp_us, commit.token, commit.digest
        holds(
            told == was, "one version, one content", f"the tombstone of {version} says {told}, it was {was}"
        )
        transactions = tuple((record.token, "committed") for record in commit.records)
        holds(tombstone.transactions == transactions, "tombstones", f"{version} forgets transactions")
        holds(tombstone.checkpoint.version >= version, "tombstones", f"{version} names an older checkpoint")

    def power_cut(self, gone: Mapping[str, bytes]) -> None:
        """Objects that were not durable are gone, and everybody who saw them is dead."""
        for key in sorted(gone, reverse=True):
            if key == commit_key(self.head):
                commit = self.commits.pop()
                self.models.pop()
                for record in commit.records:
                    told = self.acknowledged.get(record.token)
                    holds(
                        told is None,
                        "no lost commit",
                        f"version {told} was acknowledged, and a power cut took it",
                    )
                    del self.tokens[record.token]
        self.seen.clear()

    # what processes were told

    def key(self) -> tuple[object, ...]:
        """What of it tells one state of a world from another, beside storage."""
        told = frozenset(self.acknowledged.items()), frozenset(self.refused)
        return (*told, tuple(sorted(self.floors.items())))

    def acknowledge(self, token: str, version: int, pair: Pair | None = None) -> None:
        """A transaction was told that it is committed, or that its exactly-once pair had landed before."""
        landed = self.tokens.get(token)
        if pair is not None and landed is None:
            self._acknowledge_pair(*pair, version)
            return
        holds(
            landed == version,
            "no lost commit",
            f"transaction {token} was acknowledged as version {version}, but it is in {landed}",
        )
        self.acknowledged[token] = version
        self.newest_acknowledged = max(self.newest_acknowledged, version)

    def _acknowledge_pair(self, app_id: str | None, app_version: int | None, version: int) -> None:
        landed = self.models[version].apps.get(app_id or "", (-1, -1)) if version <= self.head else None
        holds(
            landed is not None and landed[0] >= (app_version or 0) and landed[1] == version,
            "exactly once",
            f"{app_id} {app_version} was told to be in version {version}, which says {landed}",
        )

    def refuse(self, token: str, why: str) -> None:
        """A transaction was told that nothing of it is committed."""
        holds(
            token not in self.tokens,
            "no ghost",
            f"transaction {token} is version {self.tokens.get(token)}, but {why}",
        )
        self.refused[token] = why

    def relies(self, token: str, read: int, tables: frozenset[int]) -> None:
        """A transaction is to be committed only if these tables are as it has read them."""
        self.relied[token] = read, tables

    def forget_process(self, name: str) -> None:
        """A process has died, and what it saw with it."""
        self.seen.pop(name, None)

    def expired(self, version: int) -> None:
        """A version was refused as cleaned away."""
        retention = self.models[-1].retention
        holds(
            retention is not None and version < retention.min_readable,
            "readable",
            f"version {version} was refused as expired, under {retention}",
        )

    def missed(self, what: str) -> None:
        """A process did not find what it was looking for: where no vacuum passed, that is a fault."""
        holds(self.models[-1].retention is not None, "unexpected error", what)

    def broken(self, what: str) -> None:
        """Shipped code raised what it must not raise."""
        raise Violation("unexpected error", what)

    def asks(self, name: str) -> None:
        """A process asks for the newest snapshot: what is acknowledged by now must be in it."""
        self.floors[name] = self.newest_acknowledged

    def saw(self, name: str, found: Seen) -> None:
        """A process was given a snapshot as the newest one."""
        version, floor = found.version, self.floors[name]
        holds(
            version >= floor, "no lost commit", f"{name} got version {version} after {floor} was acknowledged"
        )
        holds(
            version >= self.seen.get(name, -1),
            "monotone",
            f"{name} got version {version} after {self.seen.get(name)}",
        )
        self.seen[name] = version
        self.check_seen(found)

    def check_seen(self, found: Seen) -> None:
        """The small parts of a snapshot are what the model says."""
        version = found.version
        holds(0 <= version <= self.head, "prefix of history", f"version {version} never was")
        holds(
            found.digest == self.commits[version].digest,
            "prefix of history",
            f"version {version} is of another history",
        )
        model = self.models[version]
        told = found.apps, found.retention, found.next_table_id
        holds(
            told == (model.apps, model.retention, model.next_table_id),
            "prefix of history",
            f"version {version} says {told}",
        )

    def check_pages(self, version: int, key: ChainKey, told: Sequence[tuple[int, int, int]]) -> None:
        """A chain of a snapshot holds the pages that the model says."""
        expected = [page[:3] for page in self.models[version].chains.get(key, ())]
        holds(told == expected, "prefix of history", f"chain {key} holds {told}, expected {expected}")

    def check_whole(self, snapshot: LogSnapshot, objects: Mapping[str, bytes], again: bool) -> None:
        """Everything of a snapshot is what the model says, and all objects that it is read from are there.

        Chains of a state that was looked at before are read `again` only where asked for: its objects are
        those that were read, unless storage has torn one.
        """
        state = snapshot.state
        self.check_seen(seen(snapshot))
        known = standing(state)
        needed = None if again else _verified.get(known)
        if needed is None:
            model = self.models[state.version]
            for key in model.chains:
                self.check_pages(state.version, key, pages_of(snapshot, key))
            names = {definition.name: definition.table_id for definition in snapshot.tables()}
            holds(names == dict(model.names), "prefix of history", f"tables {names}, expected {model.names}")
            needed = _verified.keep(known, _objects_of(snapshot, model))
        gone = needed - objects.keys()
        holds(not gone, "nothing live is deleted", f"version {state.version} needs {sorted(gone)}: gone")


def seen(snapshot: LogSnapshot) -> Seen:
    """The small parts of a snapshot."""
    state = snapshot.state
    return Seen(state.version, state.digest, dict(state.apps), state.retention, state.next_table_id)


def pages_of(snapshot: LogSnapshot, key: ChainKey) -> list[tuple[int, int, int]]:
    """Id, rows and checksum of the pages of a chain."""
    pages = snapshot.chain(key).all_pages().pages
    columns = [pages.column(name).to_pylist() for name in ("page_id", "entry_count", "checksum")]
    return list(zip(*columns, strict=True))


def _objects_of(snapshot: LogSnapshot, model: Model) -> frozenset[str]:
    """Page files that a snapshot names, and the objects of the checkpoint that it stands on."""
    chains = [snapshot.chain(key).all_pages().pages.column("path").to_pylist() for key in model.chains]
    paths = {path for of_chain in chains for path in of_chain if path is not None}
    if snapshot.checkpoint is None:
        return frozenset(paths)
    walker = TreeWalker(snapshot.checkpoint.tree, lambda work, items: [work(item) for item in items])
    return frozenset(paths | walker.reachable([snapshot.checkpoint.ref]).keys())


def _paths_of(commit: Commit) -> list[str]:
    known = _paths.get(commit.digest)
    if known is None:
        named = [path for record in commit.records for path in record.own.paths()]
        known = _paths.keep(commit.digest, named)
    return known  # type: ignore[no-any-return]
