"""A plain model of a store: what each version holds. It shares no code with the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from spark_pages.model.actions import Commit, IntentKind, Retention, TransactionRecord

Page = tuple[int, int, int, str | None]
"""Id, rows, checksum and page file (None for an inline page)."""

ChainKey = tuple[int, int]

MARKS = 0
"""Field id of the marks of deleted rows."""

BLANK = 1_000
"""Checksums from here on are of pages whose last row is blank."""


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
    dropped: Mapping[int, int] = field(default_factory=dict)
    """Tables that can come back, and the versions that dropped them."""
    tags: Mapping[str, int] = field(default_factory=dict)
    leases: Mapping[str, int] = field(default_factory=dict)
    """Versions by the names and ids of what holds them; no clock here ever passes a lease."""

    def after(self, commit: Commit) -> Model:
        """The model after one more commit."""
        model = replace(self, version=commit.version)
        for record in commit.records:
            model = model._after(record, commit.version)
        for table_id in {table for table, _ in model.chains}:
            chains = {key[1]: pages for key, pages in model.chains.items() if key[0] == table_id}
            marks = _ends(chains.pop(MARKS, ()))
            rows = {sum(page[1] for page in pages) for pages in chains.values()}
            holds(len(rows) == 1, "row counts", f"columns of table {table_id} hold {sorted(rows)} rows")
            told = f"marks of table {table_id} end at {marks}, its rows at {rows}"
            holds(not marks or marks[-1] <= min(rows), "marks", told)
            for pages in chains.values():
                ends = zip(pages, _ends(pages), strict=True)
                blank = {end for page, end in ends if page[2] >= BLANK}
                holds(blank <= {*marks}, "blank rows are dead", f"{blank}, and {told}")
        return model

    def _after(self, record: TransactionRecord, version: int) -> Model:
        chains, names, apps = dict(self.chains), dict(self.names), dict(self.apps)
        next_table_id, dropped = self.next_table_id, dict(self.dropped)
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
            elif intent.kind is IntentKind.DROP:
                holds(
                    names.pop(intent.name, None) == intent.table_id, "names", f"{intent.name!r} is not there"
                )
                dropped[intent.table_id] = version
            elif intent.kind in (IntentKind.UNDROP, IntentKind.PURGE):
                told = f"version {version} does {intent.kind.value} {intent.name!r}"
                since = dropped.pop(intent.table_id, None)
                holds(since is not None and intent.name not in names, "dropped tables", told)
                if intent.kind is IntentKind.UNDROP:
                    names[intent.name] = intent.table_id
                    continue
                readable = self.retention.min_readable if self.retention else -1
                holds(since is not None and since <= readable, "dropped tables", f"{told} of version {since}")
                chains.update({key: () for key in chains if key[0] == intent.table_id})
            elif intent.kind is IntentKind.TRUNCATE:
                chains.update({key: () for key in chains if key[0] == intent.table_id})
        listed = record.own.few or ()
        for splice in record.splices:
            added = tuple(
                (
                    (version << 28) | (record.base_ordinal + row),
                    listed[row].entry_count,
                    listed[row].checksum,
                    listed[row].path,
                )
                for row in range(splice.start, splice.stop)
            )
            key = splice.table_id, splice.field_id
            pages = chains.get(key, ())
            if not splice.removed:
                end = sum(page[1] for page in pages)
                told = f"version {version} lengthens marks at {splice.first_row}, which end at {end}"
                holds(key[1] != MARKS or splice.first_row == end, "marks", told)
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
        tags = {**self.tags, **{tag.name: tag.version for tag in record.tags if tag.version is not None}}
        leases = dict(self.leases)
        for lease in record.leases:
            leases[lease.lease_id] = lease.version
            if not lease.expires_at_us:
                del leases[lease.lease_id]
        for held in (*tags.values(), *leases.values()):
            holds(
                retention is None or held >= retention.min_readable,
                "what is held is kept",
                f"after version {version} version {held} is held, under {retention}",
            )
        return Model(self.version, chains, names, apps, retention, next_table_id, dropped, tags, leases)


def _ends(pages: tuple[Page, ...]) -> list[int]:
    """The row behind each page."""
    return [sum(page[1] for page in pages[: index + 1]) for index in range(len(pages))]
