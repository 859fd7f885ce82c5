"""SQL: queries by DuckDB, DDL and INSERT by transactions.

Imports `maintenance` and everything below. Start with `execution`, which runs a statement; `statement_parser`
makes values of `statements` from text, `schema_changes` applies those that change the store, `resolver`
replaces names by ids, `engine` runs queries in DuckDB.
"""
