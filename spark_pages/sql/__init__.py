"""SQL: text in, values out. Statements as frozen dataclasses, queries with every name resolved.

Imports `catalog`, `model` and what is below them; what a table is, and how one is changed, comes from
`spark_pages.tables`, which is above and carries statements out. sqlglot parses; DuckDB runs what is selected.
Start with `statements.py` (what there is), then `resolver.py` (names) and `engine.py` (DuckDB).
"""
