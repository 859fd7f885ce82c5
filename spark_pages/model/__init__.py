"""Values without I/O: page descriptors, column chains, actions, tables, identifiers.

Pure and immutable. Imports `arrow`, `display` and the foundations. Start with `chain`, the counted tree of
pages that finds the page of a row, and `actions`, the changes that a commit records.
"""
