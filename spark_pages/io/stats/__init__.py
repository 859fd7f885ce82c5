"""Statistics and bloom filters of pages, from values to the bytes that ``docs/format.md`` describes."""
