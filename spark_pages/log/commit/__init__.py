"""The commit rule, its conflicts, and how writers wait for each other.

`protocol` is the rule and does no I/O, `driver` performs what it asks for, `group` brings threads together.
"""
