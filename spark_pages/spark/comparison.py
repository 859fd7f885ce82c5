"""A reconstruction beside the local snapshot, descriptor by descriptor. No pyspark here."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.page_schema import LOCATION_COLUMNS, STATS_SCHEMA
from spark_pages.spark.tasks import DESCRIPTOR

ORDER = ["table_id", "field_id", "first_row", "has_rows", "place"]
"""Pages without rows stand before the page that begins at the same row; among themselves, by place."""

COMPARED = ["page_id", *(f.name for f in DESCRIPTOR if f.name not in ("page_id", *LOCATION_COLUMNS))]
"""All of a descriptor but where the page is."""


def differences(found: pa.Table, local: LogSnapshot, chains: Iterable[ChainKey]) -> list[str]:
    """Chains whose descriptors, or whose order or first rows, are not those of the local snapshot."""
    found = found.combine_chunks().sort_by([(name, "ascending") for name in ORDER])
    keys = (found.column("table_id").to_numpy() << 32) | found.column("field_id").to_numpy()
    differing = []
    expected_keys = sorted({*local.chain_keys(), *chains})
    for table_id, field_id in expected_keys:
        key = (table_id << 32) | field_id
        start, stop = np.searchsorted(keys, key, "left"), np.searchsorted(keys, key, "right")
        mine = found.slice(start, stop - start)
        run = local.chain((table_id, field_id)).all_pages()
        theirs = {
            name: (run.stats if name in STATS_SCHEMA.names else run.pages).column(name) for name in COMPARED
        }
        theirs["first_row"] = pa.array(run.prefix_entries.astype(np.int64) - run.numbers("entry_count"))
        if not all(mine.column(name).combine_chunks().equals(theirs[name]) for name in theirs):
            differing.append(f"table {table_id} field {field_id}: {mine.num_rows} and {run.num_pages} pages")
    if found.num_rows != sum(local.chain(key).num_pages for key in expected_keys):
        differing.append("pages of chains that are not live")
    return differing
