"""Figures of pages. Each module makes one table; run it from the root of the checkout.

| command | table |
|---|---|
| `python -m benchmarks.pages.ingest` | ten mixed columns into pages and into Parquet: time, sizes |
| `python -m benchmarks.pages.small_appends` | appends of one row: objects, bytes, what is left |
| `python -m benchmarks.pages.updates` | updates of some rows and of all: time, and what readers pay |
| `python -m benchmarks.pages.fetch` | pages from disk, caches and object stores, beside bare system calls |
| `python -m benchmarks.pages.caches` | hit rate of point reads beside a scan |
| `python -m benchmarks.pages.reads` | rows by this project and its peers |
| `python -m benchmarks.pages.ways` | single rows of pages that the operating system caches, by three ways |
| `python -m benchmarks.pages.statistics` | what statistics and bloom filters cost and save |

`mixed_table` makes the rows. Sizes and counts are exact; times mean something as ratios within one run.
"""
