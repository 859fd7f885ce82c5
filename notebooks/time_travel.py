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
# # Time travel and the change feed
#
# Every commit makes a version, and every version can be opened as long as retention keeps it. What each
# answer means is told in [docs/versions.md](../docs/versions.md).

# %%
import pyarrow as pa

import spark_pages as sp
from spark_pages import pictures

store = sp.create("memory://time-travel")
days = pa.schema([("day", pa.int32()), ("delay", pa.int64()), ("carrier", pa.string())])

with store.transaction("make") as txn:
    txn.create_table("flights", days)
for day in range(1, 8):
    n = 2_000
    rows = {
        "day": pa.array([day] * n, pa.int32()),
        "delay": pa.array([(i * day) % 61 - 10 for i in range(n)], pa.int64()),
        "carrier": ["UA" if i % 3 else "AA" for i in range(n)],
    }
    with store.transaction("ingest", parameters={"day": str(day)}, app_id="daily", app_version=day) as txn:
        txn.append("flights", pa.table(rows, schema=days))

store.snapshot()

# %% [markdown]
# ## Exactly once
#
# Day 7 is loaded again by mistake. The log holds this pair of application and version already, so nothing
# is committed.

# %%
with store.transaction("ingest", app_id="daily", app_version=7) as txn:
    txn.append("flights", pa.table(rows, schema=days))

txn.version, store.snapshot().table("flights").num_rows

# %% [markdown]
# ## A version by number, by time, by name

# %%
store.tag("first-week", 8)
with store.transaction("correct delays") as txn:
    txn.update_rows("flights", [11, 12, 9_000], {"delay": [0, 0, 0]})
with store.transaction("late flights") as txn:
    txn.append("flights", pa.table(rows, schema=days).slice(0, 3))

newest = store.snapshot()
week = store.snapshot(tag="first-week")
same = store.snapshot(timestamp=week.timestamp)
week.version, same.version, newest.version

# %%
[each.table("flights").take([11], ["delay"]).to_pylist() for each in (week, newest)]

# %% [markdown]
# Both versions share the pages that no commit touched in between:

# %%
pictures.chain(newest.table("flights"), "delay", before=week.table("flights"))

# %% [markdown]
# ## What changed
#
# By rows: the difference between two versions, as ranges of each column.

# %%
feed = store.changes(week.version + 1, newest.version, table="flights", granularity="rows")
feed.select(["column", "change", "first_row", "end_row"]).to_pylist()

# %% [markdown]
# By pages: what each commit did. The old pages went, new ones stand in their place.

# %%
by_pages = store.changes(week.version + 1, newest.version, table="flights", granularity="pages")
by_pages.group_by(["version", "change"]).aggregate([("page_id", "count")]).to_pylist()

# %% [markdown]
# ## Who wrote this row?

# %%
store.blame("flights", "delay", 11), store.blame("flights", "delay", 13)

# %% [markdown]
# ## Go back
#
# `restore` is a new commit, so what is undone can be read at its version, and restored in turn.

# %%
restored = store.restore(tag="first-week")
table = store.snapshot().table("flights")
restored, table.num_rows, table.read().equals(week.table("flights").read())

# %% [markdown]
# ## Two writers at once
#
# Both began on the same version. The one that comes second is rebased over the other, without being run
# again: the arc shows what it had read.

# %%
slow = store.transaction("slow")
slow.append("flights", pa.table(rows, schema=days).slice(0, 5))
for _ in range(3):
    with store.transaction("quick") as txn:
        txn.append("flights", pa.table(rows, schema=days).slice(0, 1))
slow.commit()

store.history(limit=4).select(["version", "operation", "read_version", "rows_added"]).to_pylist()

# %%
pictures.log(store)

# %% [markdown]
# ## How long does a version live?
#
# Until a vacuum takes it. The plan says what would go; what a tag names stays, and all that came after
# it.

# %%
store.vacuum_plan(retention=1)

# %%
store.delete_tag("first-week")
store.vacuum_plan(retention=1)
