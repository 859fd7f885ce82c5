"""Processes that are killed, disks that fill up or fail, and power that goes: no commit is lost."""
