"""What Spark costs here: reconstruction, reading rows, page compaction, publishing; each beside what it is
held to.
"""
