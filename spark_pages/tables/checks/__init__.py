"""Rows against the rules of their table: checks, domains, primary keys."""
