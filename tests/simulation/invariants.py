"""What must hold after every step: a history that knows all that ever landed, and a plain model of it.

The model shares no code with the package: it keeps lists of pages and looks for runs in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from spark_pages.log.garbage import TreeWalker
from spark_pages.log.names import commit_key
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import Commit, IntentKind, Retention, Tombstone, TransactionRecord
from tests.simulation.values import Value, memory, standing

Page = tuple[int, int, int, str | None]
"""Id, rows, checksum and page file (None for an inline page)."""

ChainKey = tuple[int, int]

_SLOT = len("_log/") + 20
_models, _verified, _paths = memory(), memory(), memory()


class Violation(AssertionError):  # noqa: N818 - not an error of the code that raises it
    """An invariant does not hold.

    Attributes
    ----------
    rule
        Which one, in a few words; two schedules fail alike if it is the same.
    """

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(rule, what)
        self.rule = rule
        self.what = what

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


def holds(condition: object, rule: str, what: object = "") -> None:
    """Raise a `Violation` of the rule unless the condition is true."""
    if not condition:
        raise Violation(rule, str(what))


@dataclass(frozen=True)
class Model:
    """What is true after some commits, worked out the plain way."""

    version: int = -1
    chains: Mapping[ChainKey, tuple[Page, ...]] = field(default_factory=dict)
    names: Mapping[str, int] = field(default_factory=dict)
    apps: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    retention: Retention | None = None
    next_table_id: int = 1

    def after(self, commit: Commit) -> Model:
        """The model after one more commit."""
        model = replace(self, version=commit.version)
        for record in commit.records:
            model = model._after(record, commit.version)
        for table_id in {table for table, _ in model.chains}:
            rows = {sum(p[1] for p in pages) for key, pages in model.chains.items() if key[0] == table_id}
            holds(len(rows) == 1, "row counts", f"columns of table {table_id} hold {sorted(rows)} rows")
        return model

    def _after(self, record: TransactionRecord, version: int) -> Model:
        chains, names, apps = dict(self.chains), dict(self.names), dict(self.apps)
        next_table_id = self.next_table_id
        epoch = self.retention.min_epoch if self.retention else -1
        holds(
            record.read_version >= epoch,
            "epoch",
            f"version {version} read {record.read_version}, before the epoch {epoch}",
        )
        for intent in record.intents:
            if intent.kind is IntentKind.CREATE:
                holds(intent.name not in names, "names", f"version {version} creates {intent.name!r} again")
                holds(intent.table_id >= next_table_id, "names", f"table id {intent.table_id} is used twice")
                names[intent.name] = intent.table_id
                next_table_id = intent.table_id + 1
        columns = record.pages.to_pydict()
        for splice in record.splices:
            added = tuple(
                (
                    (version << 28) | (record.base_ordinal + row),
                    columns["entry_count"][row],
                    columns["checksum"][row],
                    columns["path"][row],
                )
                for row in range(splice.start, splice.stop)
            )
            key = splice.table_id, splice.field_id
            pages = chains.get(key, ())
            if not splice.removed:
                chains[key] = pages + added
                continue
            ids = [page[0] for page in pages]
            n = len(splice.removed)
            at = next((i for i in range(len(ids)) if tuple(ids[i : i + n]) == splice.removed), None)
            holds(
                at is not None,
                "lost update",
                f"version {version} replaces pages {splice.removed} of chain {key}, which holds {ids}",
            )
            assert at is not None
            old = pages[at : at + n]
            if record.operation == "count":
                holds(
                    added[0][2] == old[0][2] + 1,
                    "lost update",
                    f"version {version} counts from {old[0][2]} to {added[0][2]}",
                )
            chains[key] = pages[:at] + added + pages[at + n :]
        if record.app_id is not None and record.app_version is not None:
            landed = apps.get(record.app_id)
            holds(
                landed is None or landed[0] < record.app_version,
                "exactly once",
                f"version {version} brings {record.app_id} {record.app_version} again, after {landed}",
            )
            apps[record.app_id] = record.app_version, version
        retention = record.retention or self.retention
        return Model(self.version, chains, names, apps, retention, next_table_id)


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

    def copy(self) -> History:
        """A history that goes on by itself."""
        other = History()
        other.commits = list(self.commits)
        other.models = list(self.models)
        other.tokens = dict(self.tokens)
        return other

    @property
    def head(self) -> int:
        """The newest version that ever landed."""
        return len(self.commits) - 1

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
        self.commits.append(commit)
        for path in _paths_of(commit):
            holds(
                path in objects,
                "nothing live is deleted",
                f"commit {version} names {path}, which is not there",
            )

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

    def acknowledge(self, token: str, version: int) -> None:
        """A transaction was told that it is committed."""
        landed = self.tokens.get(token)
        holds(
            landed == version,
            "no lost commit",
            f"transaction {token} was acknowledged as version {version}, but it is in {landed}",
        )
        self.acknowledged[token] = version
        self.newest_acknowledged = max(self.newest_acknowledged, version)

    def acknowledge_pair(self, app_id: str | None, app_version: int | None, version: int) -> None:
        """A transaction was told that its exactly-once pair had landed as a version."""
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

    def saw(self, name: str, snapshot: LogSnapshot, floor: int) -> None:
        """A process was given a snapshot as the newest one; it asked when `floor` was acknowledged."""
        version = snapshot.state.version
        holds(
            version >= floor, "no lost commit", f"{name} got version {version} after {floor} was acknowledged"
        )
        holds(
            version >= self.seen.get(name, -1),
            "monotone",
            f"{name} got version {version} after {self.seen.get(name)}",
        )
        self.seen[name] = version
        self.check_state(snapshot)

    def check_state(self, snapshot: LogSnapshot) -> None:
        """The small parts of a snapshot are what the model says."""
        state = snapshot.state
        holds(0 <= state.version <= self.head, "prefix of history", f"version {state.version} never was")
        holds(
            state.digest == self.commits[state.version].digest,
            "prefix of history",
            f"version {state.version} is of another history",
        )
        model = self.models[state.version]
        told = dict(state.apps), state.retention, state.next_table_id
        holds(
            told == (dict(model.apps), model.retention, model.next_table_id),
            "prefix of history",
            f"version {state.version} says {told}",
        )

    def check_chain(self, snapshot: LogSnapshot, key: ChainKey) -> None:
        """A chain of a snapshot holds the pages that the model says."""
        pages = snapshot.chain(key).all_pages().pages
        told = list(
            zip(
                *(pages.column(name).to_pylist() for name in ("page_id", "entry_count", "checksum")),
                strict=True,
            )
        )
        expected = [page[:3] for page in self.models[snapshot.state.version].chains.get(key, ())]
        holds(told == expected, "prefix of history", f"chain {key} holds {told}, expected {expected}")

    def check_whole(self, snapshot: LogSnapshot, objects: Mapping[str, bytes], again: bool) -> None:
        """Everything of a snapshot is what the model says, and all objects that it is read from are there.

        Chains of a state that was looked at before are read `again` only where asked for: its objects are
        those that were read, unless storage has torn one.
        """
        state = snapshot.state
        self.check_state(snapshot)
        known = standing(state)
        needed = None if again else _verified.get(known)
        if needed is None:
            model = self.models[state.version]
            for key in model.chains:
                self.check_chain(snapshot, key)
            names = {definition.name: definition.table_id for definition in snapshot.tables()}
            holds(names == dict(model.names), "prefix of history", f"tables {names}, expected {model.names}")
            needed = _verified.keep(known, _objects_of(snapshot, model))
        gone = needed - objects.keys()
        holds(not gone, "nothing live is deleted", f"version {state.version} needs {sorted(gone)}: gone")


def _objects_of(snapshot: LogSnapshot, model: Model) -> frozenset[str]:
    """Page files that a snapshot names, and the objects of the checkpoint that it stands on."""
    chains = [snapshot.chain(key).all_pages().pages.column("path").to_pylist() for key in model.chains]
    paths = {path for of_chain in chains for path in of_chain if path is not None}
    if snapshot.checkpoint is None:
        return frozenset(paths)
    walker = TreeWalker(snapshot.checkpoint.tree, lambda work, items: [work(item) for item in items])
    return frozenset(paths | walker.kept([snapshot.checkpoint.ref]).keys())


def _paths_of(commit: Commit) -> list[str]:
    known = _paths.get(commit.digest)
    if known is None:
        batches = [record.pages.column("path").to_pylist() for record in commit.records]
        known = _paths.keep(commit.digest, [path for paths in batches for path in paths if path is not None])
    return known  # type: ignore[no-any-return]
