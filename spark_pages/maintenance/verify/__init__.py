"""Looking after a store: `verify` reads and names every fault, `repair` plans and mends what it can.

Start with `verify.py` (the order of the checks), then `slots.py`, `trees.py` and `pages.py` (the checks),
`repair.py` (the plan) and `remake.py` (lost objects made again, byte for byte). Imports `catalog`, `log`,
`io` and what is below them; `tables` offers it as methods of a store.
"""
