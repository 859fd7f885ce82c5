"""Who may claim which rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spark_pages.display.text import moment
from spark_pages.errors import CommitConflictError
from spark_pages.log.commit_times import bounded
from spark_pages.model.actions import Claim
from spark_pages.runtime import has_ended


def is_live(claim: Claim, now_us: int) -> bool:
    """Check whether a claim keeps others away: it has not expired, and its owner has not died here."""
    writer, _, _ = claim.owner.rpartition(" ")
    return claim.expires_at_us > now_us and not has_ended(writer)


def check_free(
    claims: Iterable[Claim],
    held: Iterable[Claim],
    now_us: int,
    named: Callable[[int, int | None], str],
) -> None:
    """Raise CommitConflictError if one of the claims is of rows that another live owner holds.

    Parameters
    ----------
    claims
        New ones and, with expiry 0, released ones, in order.
    held
        Those of the newest version.
    named
        Names a table or column by its ids.
    """
    standing = list(held)
    for claim in claims:
        key = (claim.table_id, claim.field_id)
        if not claim.expires_at_us:
            standing = [
                each
                for each in standing
                if (each.owner, each.fence) != (claim.owner, claim.fence)
                or not each.overlaps(key, claim.first_row, claim.end_row)
            ]
            continue
        for other in standing:
            if (
                other.owner != claim.owner
                and is_live(other, now_us)
                and other.overlaps(key, claim.first_row, claim.end_row)
            ):
                rows = f"rows {claim.first_row} to {claim.end_row} of {named(*key)}"
                theirs = f"rows {other.first_row} to {other.end_row}"
                until = moment(bounded(other.expires_at_us))
                raise CommitConflictError(
                    f"Cannot claim {rows}: {other.owner!r} holds {theirs} until {until} UTC.",
                    hint="Wait until they are released or expire; `store.claims()` lists who holds what.",
                    owner=other.owner,
                )
        standing.append(claim)
