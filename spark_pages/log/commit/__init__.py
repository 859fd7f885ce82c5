"""Commits: the protocol, its conflict rules, and groups of threads that commit together.

Imports the log below it: slots, replay, state. Start with `protocol`, a generator without I/O; `conflict`
decides whether two transactions conflict, `driver` performs the requests of the protocol and backs off,
`group` joins transactions of several threads, `errors` words the outcomes.
"""
