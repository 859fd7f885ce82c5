"""Pictures of chains: where the pages of a column are, and what a compaction did to the pages of a table."""

from __future__ import annotations

from spark_pages.display.canvas import Picture
from spark_pages.display.chain_strip import chain_strip
from spark_pages.display.compaction_effect import ColumnEffect, compaction_effect
from spark_pages.model.chain_lane import lane_of
from spark_pages.query.table import Table


def chain(table: Table, column: str, before: Table | None = None) -> Picture:
    """The chain of a column: x is the row, each page a box, its colour the file that it is in.

    Parameters
    ----------
    table
        As of a version.
    before
        The same table as of another version, for a second lane; pages that it lacks are marked.

    Raises
    ------
    ColumnNotFoundError

    Notes
    -----
    Loads the descriptors of the whole chain, and no page. Of a chain with many pages what falls on a few
    pixels is drawn as one, so that the picture stays small.
    """
    shown = [table] if before is None else [table, before]
    lanes = [lane_of(_version(each), [each.directory.chain(column).all_pages()]) for each in shown]
    return chain_strip(f"{table.name}.{column}", lanes)


def compaction(before: Table, after: Table) -> Picture:
    """Pages and bytes of each column at two versions of a table.

    Notes
    -----
    Loads all descriptors of both versions, and no page.
    """
    then, now = _by_column(before), _by_column(after)
    effects = []
    for name, (pages, size_bytes) in now.items():
        pages_before, bytes_before = then.get(name, (0, 0))
        effects.append(ColumnEffect(name, pages_before, pages, bytes_before, size_bytes))
    return compaction_effect(f"{after.name}: {_version(before)} → {_version(after)}", effects)


def _by_column(table: Table) -> dict[str, tuple[int, int]]:
    """Pages and stored bytes of each column, in the order of the columns."""
    found = {}
    for name in table.columns:
        pages = table.directory.chain(name).all_pages()
        found[name] = (pages.num_pages, int(pages.numbers("actual_len").sum()))
    return found


def _version(table: Table) -> str:
    return "no version" if table.version is None else f"version {table.version:,}"
