"""The package changes."""
