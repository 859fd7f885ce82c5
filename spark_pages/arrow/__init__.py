"""Operations on Arrow data that pyarrow lacks: casts, copies, joins, validation.

Pure. Imports `display`, errors and arguments, and nothing above them. Start with `types` (rewriting of
types), `join` (concatenation of chunks whose dictionaries differ) and `validate_array` (checks before a
buffer is used).
"""
