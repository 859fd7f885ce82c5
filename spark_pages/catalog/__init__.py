"""Names, definitions and table 0, the table in which the catalog keeps itself.

Imports `log`, `io` and what is below them. Start with `table_zero` (schema and rows) and `migration` (whether
a store describes itself as expected), then `resolve` (from what a user typed to a definition). How
definitions change is in `evolution` and `widening`; `namespaces`, `types` and `constraints` say what these
are, and `facts` where it is kept.
"""
