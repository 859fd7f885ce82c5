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
# # Operating a store, with Spark where it is large
#
# Compaction, checkpoints, vacuum, verification. On one machine each is a method of the store; the jobs in
# `jobs/` do the same for stores that are too large for one process, by `spark-submit`. Needs `pip install
# "spark-pages[spark,demo]"` and Java 17.

# %%
import tempfile
from pathlib import Path

import spark_pages as sp
from spark_pages import pictures
from spark_pages.demo.flights import load_flights
from spark_pages.spark import session
from spark_pages.spark.compact import compact_pages, plan_compact_pages
from spark_pages.spark.reconstruct import reconstruct_snapshot

folder = tempfile.TemporaryDirectory(prefix="spark-pages-")
url = str(Path(folder.name) / "store")
flights = load_flights().tables["flights"]
store = sp.create(url)

# %% [markdown]
# ## A store that needs care
#
# Sixty small appends leave sixty runs of small pages.

# %%
with store.transaction("create table") as txn:
    txn.create_table("flights", flights.schema)
for batch in range(60):
    with store.transaction("ingest", parameters={"batch": str(batch)}) as txn:
        txn.append("flights", flights.slice(batch * 1_500, 1_500))

before = store.snapshot().table("flights")
before

# %% [markdown]
# ## Spark reads it
#
# The data source is plain Python: no JAR. Each task gets the descriptors of its own pages.

# %%
spark = session("operating")
frame = (
    spark.read.format("spark_pages")
    .option("table", "flights")
    .option("columns", "carrier,distance")
    .load(url)
)
frame.groupBy("carrier").count().orderBy("count", ascending=False).limit(3).collect()

# %% [markdown]
# The log and the descriptors are views of the same source:

# %%
pages = spark.read.format("spark_pages").option("table", "flights").option("view", "pages").load(url)
pages.groupBy("column").count().orderBy("column").limit(4).collect()

# %% [markdown]
# ## Compact pages
#
# First what would be done, then the deed. The driver plans and commits, executors write. From a shell:
#
# ```console
# spark-submit --properties-file conf/spark-defaults.conf jobs/compact_pages.py URL --table flights --dry-run
# ```

# %%
plan_compact_pages(url, "flights")

# %%
compact_pages(spark, url, "flights")

# %%
after = store.snapshot().table("flights")
pictures.compaction(before, after)

# %% [markdown]
# Not a row has changed, and the version before is still there:

# %%
after.read().equals(before.read())

# %%
pictures.chain(after, "distance", before=before)

# %% [markdown]
# ## Trust, and verify
#
# The job rebuilds the descriptors of a version from checkpoint and commits by a way of its own, and
# compares them with the local snapshot.

# %%
reconstruct_snapshot(spark, url)

# %%
store.verify(pages="all")

# %% [markdown]
# ## Checkpoint and vacuum
#
# A plan first: nothing is deleted before somebody says so.

# %%
store.checkpoint().version

# %%
pictures.log(store)

# %%
plan = store.vacuum_plan(retention=1)
plan

# %%
plan.execute()

# %%
store.repair_plan()

# %% [markdown]
# `spark-pages report URL --html report.html` writes all of these pictures to one page.

# %%
spark.stop()
store.close()
folder.cleanup()
