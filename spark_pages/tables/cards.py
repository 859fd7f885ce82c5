"""What store, snapshot and table look like in a notebook. Reads no page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_pages.errors import SparkPagesError
from spark_pages.model.chain_lane import lane_of
from spark_pages.show.chain_strip import table_strip
from spark_pages.show.markup import Markup, card, joined, table, tag
from spark_pages.show.text import count

if TYPE_CHECKING:
    from spark_pages.tables.snapshot import Snapshot
    from spark_pages.tables.store import Store
    from spark_pages.tables.table import Table

MOST_TABLES = 20
MOST_COLUMNS = 30
_LANES = 8


def store_card(store: Store) -> Markup:
    """Where the store is, what its newest version holds, and how its caches did.

    Notes
    -----
    One request for the newest version; then as `snapshot_card`.
    """
    heading = joined("store ", tag("b", store.url))
    try:
        snapshot = store.snapshot()
        tags = sorted(snapshot.log.state.tags.items())
        rows = [[name, version] for name, version in tags[:MOST_TABLES]]
        asked = store.cache_stats
        return card(
            heading,
            snapshot_card(snapshot),
            table(["tag", "version"], rows, len(tags) - len(rows)) if tags else "",
            asked.card if asked.hits + asked.misses else "",
        )
    except SparkPagesError as error:  # a notebook shows what is known, and does not fail for it
        return card(heading, f"cannot be read now: {error}")


def snapshot_card(snapshot: Snapshot) -> Markup:
    """Version, time, and the first tables with their rows.

    Notes
    -----
    The catalog, and for each of at most `MOST_TABLES` tables how many rows its first column has.
    """
    names = snapshot.tables()
    rows = []
    for name in names[:MOST_TABLES]:
        each = snapshot.table(name)
        rows.append([name, each.num_rows, len(each.columns)])
    heading = joined(
        tag("b", f"version {snapshot.version:,}"),
        f" · {snapshot.timestamp:%Y-%m-%d %H:%M:%S} UTC · {count(len(names), 'table')}",
    )
    return card(heading, table(["table", "rows", "columns"], rows, len(names) - len(rows)) if names else "")


def table_card(shown: Table) -> Markup:
    """Rows, columns with their types and pages, and a strip of the first chains as far as they are loaded.

    Notes
    -----
    How many pages each of at most `MOST_COLUMNS` columns has: the root of the checkpoint tells, and what it
    keeps of the tails.
    """
    schema = shown.schema
    chains = {name: shown.directory.chain(name) for name in schema.names[:MOST_COLUMNS]}
    rows = [
        [name, str(schema.field(name).type), "yes" if schema.field(name).nullable else "no", chain.num_pages]
        for name, chain in chains.items()
    ]
    heading = joined(
        tag("b", shown.name),
        f" · {count(shown.num_rows, 'row')} · {count(len(schema), 'column')}",
        "" if shown.version is None else f" · version {shown.version:,}",
    )
    columns = table(["column", "type", "nullable", "pages"], rows, len(schema) - len(rows))
    lanes = [lane_of(name, chain.pieces) for name, chain in list(chains.items())[:_LANES]]
    more = f", the first {_LANES} columns" if len(schema) > _LANES else ""
    return card(heading, columns, table_strip(f"pages{more}", lanes).image)
