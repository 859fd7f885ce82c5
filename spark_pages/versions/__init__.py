"""What happened from version to version, who needs which of them, and the way back to one.

Start at `changes` for the change feed, at `restore` for the way back.
"""
