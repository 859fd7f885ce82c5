"""Reading: snapshots, tables, scans, filters, aggregates, system tables.

Imports `changes` and everything below. Start with `snapshot` and `table`; `row_reader` goes from rows to
pages to values, `scan` does it window by window, `predicates` parses and evaluates filters, `pruning` skips
pages by statistics and bloom filters, `directory` is the page directory of seed 000.
"""
