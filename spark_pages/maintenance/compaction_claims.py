"""Claims: a maintenance job says which rows it works on, so that another one leaves them.

A claim (seed 001, ``locked_by``) is advice. It expires by the clock, or when its owner is seen to have died
on this machine. Nothing is wrong where two jobs do the same work all the same: the second one's commit
conflicts, and only its work is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from spark_pages.errors import CommitConflictError
from spark_pages.log.claims import is_live
from spark_pages.model.actions import Claim
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import FieldId, TableId
from spark_pages.runtime import Runtime, writer_name
from spark_pages.transaction.transaction import Transaction

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
    """A name for a job of this process that no other job has."""
    return f"{writer_name()} {runtime.token()[:8]}"


def release_claims(txn: Transaction, claims: Sequence[Claim]) -> None:
    """From the commit of this transaction on, the owner of these claims holds nothing by them.

    Whoever has claimed the rows since they expired keeps them.
    """
    for claim in claims:
        txn.claim(replace(claim, expires_at_us=0))
