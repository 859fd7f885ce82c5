"""What happened between two versions: rows, pages, transactions.

Imports `catalog`, `log` and `model`. Start with `row_changes`, which folds commits into changes of rows;
`page_changes` and `history` report the same commits by page and by transaction; `idempotency` finds the
commit of an application.
"""
