"""What users hold in their hands: Store, Transaction, Snapshot, Table, PageDirectory.

Start with `store.Store`, then `table.Table` for a read and `transaction.Transaction` for a commit; the rooms
hold what these do. Imports everything below it; Spark and the command line stand on it.
"""
