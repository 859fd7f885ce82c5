"""The package arrow."""
