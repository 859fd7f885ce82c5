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
# Compaction, checkpoints, vacuum, verification. On one machine each is a method of the store; the jobs do
# the same for stores that are too large for one process, by `spark-submit`. Needs `pip install
# "spark-pages[spark,demo]"` and Java 17.

# %%
import tempfile
from pathlib import Path

import spark_pages as sp
from spark_pages import pictures
from spark_pages.cli.demo.flights import load_flights
from spark_pages.spark import session
from spark_pages.spark.compact import compact_pages, plan_compact_pages
from spark_pages.spark.log_jobs import publish
from spark_pages.spark.reconstruct import reconstruct_snapshot
from spark_pages.spark.vacuum import vacuum
from spark_pages.spark.verify import verify

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
spark = session("operating", delta=True)
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
# spark-submit $(python -m spark_pages.spark.where) compact_pages URL --table flights --dry-run
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
# One job rebuilds the descriptors of a version from checkpoint and commits by a way of its own, and compares
# them with the local snapshot. The other reads every page that a kept version can reach, on executors, and
# compares it with what the log says of it: digests, statistics, sums.

# %%
reconstruct_snapshot(spark, url)

# %%
verify(spark, url, "all")

# %% [markdown]
# ## Publish
#
# Checkpoint segments are Parquet files, so a Delta table can be made of them without copying one. Any Delta
# client reads it, here that of Spark.

# %%
store.checkpoint().version

# %%
publish(url, spark)

# %%
descriptors = spark.read.format("delta").load(f"{url}/_log/segments")
descriptors.groupBy("table_id").count().orderBy("table_id").collect()

# %%
pictures.log(store)

# %% [markdown]
# ## Vacuum
#
# A plan first: nothing is deleted before somebody says so. With a session, executors look for orphans, too:
# what writers left that died before their commit.

# %%
store.object_store.put("pages/00000000000000000001-" + "ab" * 16 + "-0.pages", b"of a writer that died")
vacuum(spark, url, retention=1)

# %%
vacuum(spark, url, retention=1, apply=True)

# %%
store = sp.open(url)
store.history(limit=1).select(["operation", "writer", "parameters"]).to_pylist()

# %%
store.repair_plan()

# %% [markdown]
# `spark-pages report URL --html report.html` writes all of these pictures to one page.

# %%
spark.stop()
store.close()
folder.cleanup()
