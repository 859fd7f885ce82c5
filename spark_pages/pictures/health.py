"""Whether a store is in order, in one table: what was found, and the command where something is to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spark_pages.display.markup import Markup, joined, table, tag
from spark_pages.display.text import count, size
from spark_pages.log.retention import oldest_readable
from spark_pages.query.table import Table
from spark_pages.store import Store

MANY_SMALL = 0.2
"""Share of small pages from which a table is worth compacting."""

FEW_SMALL = 8
"""So many small pages are never worth it."""

MANY_COMMITS = 1_000
"""Commits behind the newest checkpoint from which opening the store takes long."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table.

    Attributes
    ----------
    what, found
        What was examined, and what was found.
    remedy
        The command to run; empty if nothing is to do.
    """

    what: str
    found: str
    remedy: str = ""


def health(store: Store, tables: Sequence[Table], checkpoint: int | None, most_pages: int) -> Markup:
    """Say first whether the store is in order, and then why.

    Parameters
    ----------
    tables
        The tables to examine.
    checkpoint
        Version of the newest checkpoint, or None.
    most_pages
        Chains with more pages are left out: their descriptors are not loaded for this.

    Notes
    -----
    Reads the log and descriptors, and writes nothing.
    """
    findings = [
        _retained(store),
        _checkpointed(store, checkpoint),
        *(_small_pages(store, each, most_pages) for each in tables),
    ]
    todo = [each for each in findings if each.remedy]
    plan = f"`spark-pages vacuum {store.url}` tells what a vacuum would free."
    verdict = "The store is in order." if not todo else f"{count(len(todo), 'thing')} to do."
    rows = [[each.what, each.found, each.remedy or "nothing"] for each in findings]
    return joined(tag("p", tag("b", verdict), " ", plan), table(["examined", "found", "to do"], rows))


def _retained(store: Store) -> Finding:
    newest = store.snapshot()
    oldest = store.snapshot(version=oldest_readable(newest.log.state))
    told = f"{count(newest.version - oldest.version + 1, 'version')}, from version {oldest.version:,}"
    told += f" of {oldest.timestamp:%Y-%m-%d %H:%M:%S} UTC"
    return Finding("retained versions", told)


def _checkpointed(store: Store, checkpoint: int | None) -> Finding:
    behind = store.version - (-1 if checkpoint is None else checkpoint)
    told = "none" if checkpoint is None else f"version {checkpoint:,}"
    told += f", and {count(behind, 'commit')} since"
    return Finding(
        "last checkpoint", told, f"spark-pages checkpoint {store.url}" if behind > MANY_COMMITS else ""
    )


def _small_pages(store: Store, shown: Table, most_pages: int) -> Finding:
    """Count pages that hold less than a quarter of the rows of the fullest page of their column."""
    small = pages = 0
    for name in shown.columns:
        chain = shown.directory.chain(name)
        if chain.num_pages > most_pages:
            continue
        entries = np.diff(chain.prefix_entries.astype(np.int64), prepend=0)
        pages += len(entries)
        small += int(np.count_nonzero(entries[:-1] < entries.max(initial=0) / 4))
    many = pages and small > max(MANY_SMALL * pages, FEW_SMALL)
    remedy = f"spark-pages compact-pages {store.url} --table {shown.name}" if many else ""
    return Finding(f"small pages of {shown.name}", f"{small:,} of {count(pages, 'page')}", remedy)


def stored_bytes(shown: Table, most_pages: int) -> str:
    """Return the bytes of the pages of a table as text; ``–`` where there are too many pages to look at."""
    chains = [shown.directory.chain(name) for name in shown.columns]
    if sum(chain.num_pages for chain in chains) > most_pages:
        return "–"
    return size(sum(int(chain.all_pages().numbers("actual_len").sum()) for chain in chains))
