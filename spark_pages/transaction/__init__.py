"""What a transaction has staged, until it is the record that the log is told.

`staged_rows` takes rows, `workspace` holds all that was staged, `placing` gives each page its place.
"""
