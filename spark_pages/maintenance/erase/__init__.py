"""Erase rows for good: find every object that holds their values, rewrite what is live, delete the rest.

`plan.py` plans and executes, `row_trace.py` finds the pages and objects, `page_moves.py` empties page files,
`proof.py` proves that nothing is left. Imports the rest of `maintenance`; start reading at `plan.py`.
"""
