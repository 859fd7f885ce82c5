"""SQL: queries by DuckDB, DDL and INSERT by transactions.

Imports `maintenance` and everything below. Start with `sql_statements`, which runs a statement; `reader`
parses it by sqlglot, `resolver` replaces names by ids, `engine` runs queries in DuckDB, `ddl` and
`sql_changes` change the store.
"""
