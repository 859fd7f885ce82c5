"""SQL on a store: queries, and statements that change something. Start at `sql_statements`."""
