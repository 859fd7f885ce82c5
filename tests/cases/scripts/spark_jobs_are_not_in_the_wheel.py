"""Run with the python of a venv with a plain `pip install '.[spark]' in a clone`: no job can be submitted, and the hint is to clone."""
import spark_pages as sp
from spark_pages.spark import submit
sp.create("store")
submit("verify", ["store"])  # MissingDependencyError: ... jobs come with the checkout, not with the package
