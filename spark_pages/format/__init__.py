"""The package format."""
