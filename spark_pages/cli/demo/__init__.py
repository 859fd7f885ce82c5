"""The guided tour: the whole idea on real flights, each answer compared with the source.

Start with `run_demo` in `tour.py`; `steps.py` holds the steps that need no Spark, `spark_step.py` the one
that does, `flights.py` the data, `folder.py` what may be removed, `report.py` what is shown and counted.
May import everything but `cli`.
"""

from spark_pages.cli.demo.tour import run_demo

__all__ = ["run_demo"]
