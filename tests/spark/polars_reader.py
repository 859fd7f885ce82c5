"""Polars reads published tables in the order of rows, put together as docs/delta-tables.md says."""

from __future__ import annotations

import polars as pl
from deltalake import DeltaTable

CHAIN = ["table_id", "field_id"]


def numbered(root: str, version: int, row: str) -> pl.LazyFrame:
    """The rows of a published table, with the name of their file, and a number that grows with the row."""
    files = DeltaTable(root, version=version).file_uris()
    frame = pl.scan_parquet(files, include_file_paths="file", row_index_name=row)
    return frame.with_columns(pl.col("file").str.extract(r"([^/]+)\.parquet$"))


def pages_in_order(store: str, version: int) -> pl.DataFrame:
    """Every page with the first row that it holds, chain by chain."""
    pages = numbered(f"{store}/_log/segments", version, "c")
    parts = numbered(f"{store}/_log/parts", version, "b").select("b", part="file", file="digest")
    roots = numbered(f"{store}/_log/checkpoints", version, "a").select("a", part="digest")
    placed = pages.join(parts, on="file").join(roots, on="part").sort(*CHAIN, "a", "b", "c")
    before = pl.col("entry_count").cum_sum() - pl.col("entry_count")
    return placed.with_columns(first_row=before.over(CHAIN)).collect()
