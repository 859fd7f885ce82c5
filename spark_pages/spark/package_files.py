"""Files of the package that Spark takes by their paths: the entry of the jobs, and profiles of properties."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent

ENTRY = _HERE / "jobs" / "__main__.py"
"""What ``spark-submit`` runs; its first argument is the name of a job."""

CONF = _HERE / "conf"
"""A folder for ``SPARK_CONF_DIR``, and of profiles for ``--properties-file``."""

DEFAULTS = CONF / "spark-defaults.conf"
LOGGING = CONF / "log4j2.properties"
