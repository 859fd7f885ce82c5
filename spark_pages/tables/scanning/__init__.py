"""Scans: windows of rows, read ahead of the caller in bounded memory. Start at `scan`."""
