"""The nouns of the log and what can be computed of them without any I/O.

Start with `page.PageDescriptor`, then `run.PageRun` (many pages as Arrow
columns), `chain.ColumnChain` (the pages of a column in row order) and `actions.Commit`.
"""
