"""The jobs, as ``spark-submit`` runs them: arguments by argparse, one line of JSON on stdout, an exit code.

Start at `__main__`, the entry that takes the name of a job; ``python -m spark_pages.spark.where`` prints its
path. Each module reads the arguments of one job and calls the function that does the work, which the verb of
the same name calls too. The frame that they share is `spark_pages.spark.job`.
"""
