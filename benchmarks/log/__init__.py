"""Figures of the log. Each module makes one table; run it from the root of the checkout.

| command | table |
|---|---|
| `python -m benchmarks.log.open` | open cold, locate one row: requests, depth, bytes, memory |
| `python -m benchmarks.log.locate` | locate rows in what is loaded |
| `python -m benchmarks.log.checkpoint` | bytes that a checkpoint writes, by what was changed |
| `python -m benchmarks.log.memory` | bytes of a descriptor at rest and in memory |
| `python -m benchmarks.log.commit` | durable commits beside bare durable puts |
| `python -m benchmarks.log.writers` | many writers at once |
| `python -m benchmarks.log.peers` | the same work by other systems, in the same run |

Requests and bytes are exact. Times mean something as ratios within one run.
"""
