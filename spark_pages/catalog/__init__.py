"""Namespaces, tables, columns, types and constraints: names, definitions and table 0.

Imports `log`, `format` and `model`. Start with `table_zero` (the table that stores the catalog) and
`resolve` (from a name to a definition). Mostly pure: transactions stage the changes that this package
describes.
"""
