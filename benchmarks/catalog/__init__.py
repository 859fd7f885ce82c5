"""What the catalog costs."""
