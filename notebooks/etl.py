# ---
# jupyter:
#   jupytext:
#     formats: py:percent,ipynb
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Reading from ETL and from training
#
# `scan` gives a stream of Arrow batches, which DuckDB, Polars and pandas take without a copy; `take`
# gives any rows, in any order, and reads one page for each place. Needs `pip install
# "spark-pages[demo,sql]" polars`.

# %%
from dataclasses import dataclass

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

import spark_pages as sp
from spark_pages import pictures
from spark_pages.cli.demo.flights import load_flights

source = load_flights()
store = sp.create("memory://etl")
with store.transaction("ingest") as txn:
    for name in ("flights", "airlines"):
        txn.create_table(name, source.tables[name].schema)
        txn.append(name, source.tables[name])

snapshot = store.snapshot()
flights, airlines = snapshot.table("flights"), snapshot.table("airlines")
snapshot

# %% [markdown]
# ## DuckDB
#
# The query sees a stream: two columns, July alone. Pages that cannot hold a flight of July are never
# read.

# %%
july = flights.scan(["carrier", "dep_delay"], filter="month = 7")
names = airlines.read()
duckdb.sql(
    """
    select name, count(*) as flights, round(avg(dep_delay), 1) as delay
    from july join names using (carrier)
    group by name order by delay desc limit 5
    """
).fetchall()

# %% [markdown]
# A stream can be read once; ask for another one to read again. Both are of the version that the snapshot
# is of, whatever is committed meanwhile.

# %% [markdown]
# ## Polars

# %%
frame = pl.from_arrow(flights.read(["origin", "distance", "air_time"], filter="distance > 2000"))
(
    frame.drop_nulls()
    .group_by("origin")
    .agg(
        pl.len().alias("flights"), (pl.col("distance") / pl.col("air_time") * 60).mean().round(0).alias("mph")
    )
    .sort("origin")
)

# %% [markdown]
# ## Statistics instead of rows
#
# Least, greatest, counts: told by what pages say of themselves.

# %%
flights.aggregate("distance", start=1_000, stop=300_000)

# %% [markdown]
# ## Sampling for training
#
# PyTorch's `DataLoader` wants a thing with a length that gives items by number; if it has `__getitems__`,
# a whole batch is asked for at once. That is `take`: the rows of a batch in one call, each page once. The
# table is pickled to workers as its address and version, so every worker, and every epoch, sees the same
# rows. This needs no PyTorch itself: `DataLoader(Flights(flights), batch_size=256, shuffle=True,
# num_workers=4)` is all there is to add.


# %%
@dataclass(frozen=True)
class Flights:
    """Flights by number, for training."""

    table: sp.Table
    features: tuple[str, ...] = ("distance", "hour", "month")
    label: str = "dep_delay"

    def __len__(self) -> int:
        return self.table.num_rows

    def __getitem__(self, row: int) -> dict[str, float]:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: list[int]) -> list[dict[str, float]]:
        return self.table.take(rows, [*self.features, self.label]).to_pylist()


dataset = Flights(flights)
len(dataset), dataset[123_456]

# %% [markdown]
# An epoch of shuffled batches. The first ones read from storage; the caches fill, and soon most pages are
# there.

# %%
order = np.random.default_rng(0).permutation(len(dataset))
calls = []
for first in range(0, 40 * 32, 32):
    before = store.cache_stats
    batch = dataset.__getitems__(order[first : first + 32].tolist())
    calls.append(store.cache_stats - before)

pictures.cache(calls, "40 batches of 32 flights, shuffled")

# %% [markdown]
# Where order matters less than speed, shuffle by blocks: pick the blocks at random, and the rows within
# each. Then each page is read once an epoch, and the memory is that of one block.

# %%
block = 8_192
starts = np.random.default_rng(1).permutation(np.arange(0, len(dataset), block))
start = int(starts[0])
rows = flights.read(["distance", "dep_delay"], start, min(start + block, len(dataset)))
shuffled = rows.take(pa.array(np.random.default_rng(2).permutation(rows.num_rows)))
shuffled.num_rows, store.cache_stats.requests
