"""Claims of users: who works on which rows, so that others and page compaction leave them alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Protocol, Self

import pyarrow as pa

from spark_pages.arguments import MOST_NUMBER, as_duration, as_int, as_str
from spark_pages.boundary import guarded
from spark_pages.catalog.resolve import find_columns, show_name
from spark_pages.errors import CommitConflictError, InvalidInputError
from spark_pages.log.claims import is_live
from spark_pages.log.commit_times import MAX_TIME_US, bounded
from spark_pages.model.actions import Claim
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import FieldId, TableId
from spark_pages.query.snapshot import Snapshot
from spark_pages.runtime import Runtime, writer_name
from spark_pages.transaction.transaction import Transaction

CLAIMS_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("column", pa.string()),
        ("first_row", pa.int64()),
        ("end_row", pa.int64()),
        ("owner", pa.string()),
        ("fence", pa.int64()),
        ("expires_at", pa.timestamp("us", "UTC")),
        ("live", pa.bool_()),
    ]
)


class Claimable(Protocol):
    """A store, as far as claims use one."""

    _runtime: Runtime

    def snapshot(self) -> Snapshot:
        """See `Store.snapshot`."""

    def transaction(
        self, operation: str | None = None, *, parameters: Mapping[str, str] | None = None
    ) -> Transaction:
        """See `Store.transaction`."""


@guarded()
class RowClaim:
    """Rows that an owner has claimed; a context manager that releases them with its block.

    Attributes
    ----------
    owner
        Who holds them.
    claims
        One for each column, with its fencing number.
    """

    def __init__(self, store: Claimable, owner: str, claims: Sequence[Claim]) -> None:
        self.owner = owner
        self.claims = tuple(claims)
        self._store = store

    def __repr__(self) -> str:
        return f"RowClaim(owner {self.owner!r}, {len(self.claims)} columns)"

    def release(self) -> None:
        """Release the rows; releasing them twice is fine. Whoever has claimed them since keeps them."""
        _release(self._store, self.claims)

    def __enter__(self) -> Self:
        """Return the claim."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the rows."""
        self.release()


@guarded()
class ClaimVerbs:
    """What a store offers about claims."""

    def claim(
        self: Claimable,
        table: str,
        columns: Sequence[str] | None = None,
        start: int = 0,
        stop: int | None = None,
        *,
        owner: str,
        duration: timedelta = timedelta(minutes=10),
    ) -> RowClaim:
        """Claim rows for a while, so that others that claim rows, and page compaction, leave them alone.

        Parameters
        ----------
        columns
            Of these columns; of all by default.
        start, stop
            Rows [start, stop); up to the end of the table by default.
        owner
            Under which name. The same owner may claim its rows again, to hold them longer.
        duration
            After this long others may claim the rows.

        Raises
        ------
        CommitConflictError
            If another owner holds some of the rows: names that owner, also as ``error.context["owner"]``.

        Notes
        -----
        Advice: a claim keeps nobody from writing. One commit. The result is a context manager that releases.
        """
        return take_claim(self, self._runtime, table, columns, (start, stop), owner, duration)

    def claims(self: Claimable) -> pa.Table:
        """List claims, those of one table together.

        ``table``, ``column``, ``first_row``, ``end_row``, ``owner``, ``fence``, ``expires_at`` and ``live``.
        A claim that is not live keeps nobody away: it has expired, or its owner has died on this machine.
        """
        return claims_table(self, self._runtime)

    def release_claims(self: Claimable, owner: str) -> int:
        """Release all that an owner has claimed, whoever calls this; gives how many claims those were."""
        return release_owner(self, owner)


def claims_table(store: Claimable, runtime: Runtime) -> pa.Table:
    """List the claims of a store, in the order of tables and rows; see `Store.claims`."""
    log = store.snapshot().log
    now_us = runtime.now_us()
    names = {definition.table_id: definition for definition in log.tables()}
    rows = []
    for claim in sorted(log.state.claims, key=lambda each: (each.table_id, each.field_id, each.first_row)):
        definition = names.get(claim.table_id)
        fields = {} if definition is None else definition.field_ids
        columns = [name for name, field_id in fields.items() if field_id == claim.field_id]
        rows.append(
            {
                "table": None if definition is None else show_name(definition),
                "column": columns[0] if columns else None,
                "first_row": claim.first_row,
                "end_row": claim.end_row,
                "owner": claim.owner,
                "fence": claim.fence,
                "expires_at": bounded(claim.expires_at_us),
                "live": is_live(claim, now_us),
            }
        )
    return pa.Table.from_pylist(rows, CLAIMS_SCHEMA)


def take_claim(
    store: Claimable,
    runtime: Runtime,
    table: str,
    columns: Sequence[str] | None,
    rows: tuple[int, int | None],
    owner: str,
    duration: timedelta,
) -> RowClaim:
    """Claim rows of all columns named, or of none; see `Store.claim`."""
    lasting = as_duration(duration, "duration")
    if not as_str(owner, "owner"):
        raise InvalidInputError(
            "Cannot claim rows: the owner has no name.",
            hint="Give one by `owner`, --owner on the command line, that others will know.",
        )
    table = as_str(table, "the name of a table")
    txn = store.transaction(operation="claim rows", parameters={"table": table, "owner": owner})
    shown = txn.snapshot.table(table)
    table_id, fields = shown.definition.table_id, shown.definition.field_ids
    columns = find_columns(shown.definition, columns)
    start = as_int(rows[0], "start")
    stop = shown.end_row if rows[1] is None else as_int(rows[1], "stop", most=MOST_NUMBER)
    expires_us = runtime.now_us() + lasting // timedelta(microseconds=1)
    if not 0 <= start < stop or lasting <= timedelta(0) or expires_us > MAX_TIME_US:
        raise InvalidInputError(
            f"Cannot claim rows {start} to {stop} for {lasting}: expected rows, and an end up to year 9999.",
            hint="Give rows from 0 to below the end, such as (0, 1000), and a `duration` such as "
            "`timedelta(hours=1)`.",
        )
    fences = [claim.fence for claim in txn.snapshot.log.state.claims]
    fence = 1 + max([txn.snapshot.version, *fences])
    taken = [
        Claim(table_id, FieldId(fields[name]), start, stop, owner, fence, expires_us)
        for name in (columns or shown.columns)
    ]
    mine = [claim for claim in txn.snapshot.log.state.claims if claim.owner == owner]
    for claim in mine:  # taken again: the new claims take the place of those that they cover
        if any(
            each.overlaps((claim.table_id, claim.field_id), claim.first_row, claim.end_row)
            and each.first_row <= claim.first_row
            and claim.end_row <= each.end_row
            for each in taken
        ):
            txn.claim(replace(claim, expires_at_us=0))
    for claim in taken:
        txn.claim(claim)
    txn.commit()
    return RowClaim(store, owner, taken)


def release_owner(store: Claimable, owner: str) -> int:
    """Release all that an owner has claimed; gives how many claims those were."""
    owner = as_str(owner, "owner")
    held = [claim for claim in store.snapshot().log.state.claims if claim.owner == owner]
    _release(store, held)
    return len(held)


def _release(store: Claimable, claims: Sequence[Claim]) -> None:
    standing = set(store.snapshot().log.state.claims)
    ours = [claim for claim in claims if claim in standing]
    if ours:
        with store.transaction(operation="release claims") as txn:
            for claim in ours:
                txn.claim(replace(claim, expires_at_us=0))


# Claims: a maintenance job says which rows it works on, so that another one leaves them.
#
# A claim (seed 001, ``locked_by``) is advice. It expires by the clock, or when its owner is seen to have died
# on this machine. Nothing is wrong where two jobs do the same work all the same: the second one's commit
# conflicts, and only its work is lost.

CLAIM_SECONDS = 600.0
_TRIES = 5

RowRange = tuple[int, int]


def claim_rows(
    begin: Callable[[], Transaction],
    wanted: Mapping[ChainKey, RowRange],
    owner: str,
    runtime: Runtime,
    seconds: float = CLAIM_SECONDS,
) -> list[Claim]:
    """Those of the wanted row ranges that nobody else holds are the owner's for a while.

    Parameters
    ----------
    begin
        Opens a transaction.
    wanted
        For each chain, rows [first, end).
    owner
        Tells this job from every other; see `new_owner`.
    seconds
        After this long others may take the rows.

    Returns
    -------
    list of Claim
        May be empty. Each has a fencing number larger than that of any claim of its chain that was there
        before, released ones included: it is larger than the version that this one stands on. So of two
        claims with a row in common, which are never taken on one version, the later has the larger number.
        Claims of different rows that were taken at the same moment may have the same one: a number orders
        those who held the same rows, and nobody compares it with that of other rows.

    Notes
    -----
    One commit, or none where nothing is free; tried again where others claim at the same moment.
    """
    for _ in range(_TRIES):
        txn = begin()
        now = runtime.now_us()
        known: dict[ChainKey, list[Claim]] = {}
        for claim in txn.snapshot.log.state.claims:
            known.setdefault((claim.table_id, claim.field_id), []).append(claim)
        taken = []
        for key, (first, end) in wanted.items():
            near = [c for c in known.get(key, []) if c.overlaps(key, first, end)]
            if any(is_live(claim, now) and claim.owner != owner for claim in near):
                continue
            for stale in near:
                txn.claim(replace(stale, expires_at_us=0))
            fence = 1 + max([txn.snapshot.version, *(claim.fence for claim in known.get(key, []))])
            expires = now + int(seconds * 1e6)
            taken.append(Claim(TableId(key[0]), FieldId(key[1]), first, end, owner, fence, expires))
            txn.claim(taken[-1])
        try:
            txn.commit()
        except CommitConflictError:
            continue
        return taken
    return []


def new_owner(runtime: Runtime) -> str:
    """Create a unique name for a job of this process."""
    return f"{writer_name()} {runtime.token()[:8]}"


def release_claims(txn: Transaction, claims: Sequence[Claim]) -> None:
    """From the commit of this transaction on, the owner of these claims holds nothing by them.

    Whoever has claimed the rows since they expired keeps them.
    """
    for claim in claims:
        txn.claim(replace(claim, expires_at_us=0))
