"""One transaction, from the first call to the commit.

Imports `query` and everything below. Start with `transaction`, the public class. `state` has the value that
every function here is given, `TransactionState`: `staging` puts rows and updates into it, `table_ddl` and
`object_ddl` changes of the catalog, and `staged_tables` shows tables with them. `committer` validates the
changes, places pages, commits a `record`, and rebases after a conflict.
"""
