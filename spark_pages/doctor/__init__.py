"""Examination of a machine and a storage: ``spark-pages doctor``.

Imports everything below the command line. Start with `examination`; `races` tests conditional puts under
contention, `probe` is the program that its processes run.
"""
