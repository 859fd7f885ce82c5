"""From addresses and options to stores; what fails on the way."""
