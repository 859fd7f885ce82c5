"""Conditions on rows: SQL text, Arrow expressions or lists become one tree.

Start with `filters`, which accepts every form; `sql_filter` and `expression_tree` translate them,
`predicate` is the tree that statistics are tested against, `evaluate` tests rows exactly, `coerce` and
`numeric` bring operands to one type without rounding.
"""
