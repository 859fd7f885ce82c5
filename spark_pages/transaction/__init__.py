"""One transaction, from the first call to the commit.

Imports `query` and everything below. Start with `transaction`, the public class, and `committer`, which
validates, places pages, commits, and rebases after a conflict. `staged` holds the changes that are not
committed yet, `ingest` and `page_writer` turn rows into pages, `update_buffer` and `spill` hold updates,
`ddl` has the verbs of the catalog.
"""
