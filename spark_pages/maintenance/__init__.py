"""The package maintenance."""
