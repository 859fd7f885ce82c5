"""Tables, columns, namespaces, types and constraints that come, change and go; the tables that tell of them.

Start at `catalog_verbs`.
"""
