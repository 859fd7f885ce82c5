"""Moving between versions: restore, blame, tags, leases.

Imports `transaction` and everything below. Start with `restore`, which commits the plan of `restore_plan`,
and `blame`, which finds the commit that wrote a row.
"""
