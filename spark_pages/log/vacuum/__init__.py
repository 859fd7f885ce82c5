"""Vacuum of the log: finds, plans and deletes objects that no retained version refers to.

Imports the log. Start with `planner`, which computes a `plan`; `reachability` walks checkpoints and commits,
`orphans` finds page files of writers that died, `executor` records and deletes.
"""
