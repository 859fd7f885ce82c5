"""Work on a store as a whole: page compaction, vacuum, purge, claims, verification, repair.

Imports `transaction` and everything below. Start with `vacuum` and `compact`; `verify` reads a whole store
and names every fault, `repair` plans and repairs. Nothing here runs by itself.
"""
