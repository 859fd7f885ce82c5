"""Commits and tombstones as bytes, and whether what they say can be true. Start at `commit_codec`."""
