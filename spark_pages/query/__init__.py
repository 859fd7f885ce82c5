"""The package query."""
