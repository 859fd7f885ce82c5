"""Names, definitions and table 0, the table in which the catalog keeps itself.

Imports `log`, `io` and what is below them. Start with `table_zero` (schema and rows), then
`resolve` (from what a user typed to a definition).
"""
