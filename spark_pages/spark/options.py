"""The options of the data source, read and checked. No pyspark here.

| option | of | meaning |
|---|---|---|
| ``path`` | all | address of the store, the argument of ``load``, ``save`` and ``start`` |
| ``profile`` | all | storage options by name, see `spark_pages.storage.profiles` |
| ``view`` | reading | ``rows`` (default) or another of `VIEW_NAMES`; of streams ``rows`` or ``changes`` |
| ``table`` | all but the views ``history`` and ``segments`` | the table |
| ``versionAsOf``, ``timestampAsOf``, ``tag`` | reading | which version; the newest by default |
| ``columns`` | view ``rows`` | names parted by commas, in backquotes where they hold one |
| ``filter`` | view ``rows`` | SQL text: a condition on the rows that are read |
| ``partitions`` | view ``rows`` | number of tasks |
| ``rowNumbers`` | view ``rows`` | ``true``: the last column, ``_row``, holds row numbers |
| ``nullability`` | view ``rows`` | ``declared`` (default) or ``inferred``: by what the version holds |
| ``granularity`` | ``changes`` | ``rows`` (default) or ``pages`` |
| ``values`` | ``changes`` of one table | ``true``: changed rows with their values |
| ``startingVersion``, ``endingVersion`` | ``changes`` | first and last version that is told |
| ``maxVersionsPerTrigger`` | streams | most versions of a micro-batch |
| ``createTable`` | writing | whether a table that is not there is made |
| ``tableProperties`` | writing | properties of a table that is made, as a JSON object |
| ``appId``, ``appVersion`` | writing | exactly once; a stream has its query's id and its batches' numbers |

An option that a use does not have is refused: one that is misspelled would be ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from spark_pages.changes.feed import check_version_range
from spark_pages.errors import InvalidInputError
from spark_pages.query.snapshot import Snapshot
from spark_pages.spark.feed import check_granularity
from spark_pages.spark.serialization import store_url
from spark_pages.store import Store

VIEW_NAMES = ("rows", "pages", "history", "tables", "columns", "chains", "segments", "changes")
_OF_THE_STORE = ("history", "segments")
"""A transaction and a segment may be of many tables."""

_EVERYWHERE = ("path", "profile", "serialization.format")
"""The last one Spark adds to views that SQL makes."""

_OF_A_VERSION = ("view", "table", "versionAsOf", "timestampAsOf", "tag")
_OF_VIEWS = {
    "rows": ("columns", "filter", "partitions", "nullability", "rowNumbers"),
    "changes": ("granularity", "values", "startingVersion", "endingVersion"),
}
_OF_USES = {
    "a stream that is read": (
        "view", "table", "granularity", "values", "startingVersion", "endingVersion", "maxVersionsPerTrigger",
    ),
    "a stream of rows": (
        "view", "table", "columns", "startingVersion", "endingVersion", "maxVersionsPerTrigger",
    ),
    "a write": ("table", "createTable", "tableProperties", "appId", "appVersion"),
    "a stream that is written": (
        "table", "createTable", "tableProperties", "checkpointLocation", "queryName", "outputMode",
    ),
}  # fmt: skip
STREAM_USES = {"changes": "a stream that is read", "rows": "a stream of rows"}
_NEWEST = "Rows are written on the newest version: leave it out."
_WHOLE_ROWS = "A write takes whole rows: write to the table itself, or to a view without this option."
_WHY_NOT = {
    ("a write", "versionasof"): _NEWEST,
    ("a write", "timestampasof"): _NEWEST,
    ("a write", "tag"): _NEWEST,
    ("a write", "columns"): _WHOLE_ROWS,
    ("a write", "filter"): _WHOLE_ROWS,
    (
        "a write",
        "mergeschema",
    ): "Add the columns first: transaction.add_column(…), or ALTER TABLE in store.sql.",
    ("a write", "overwriteschema"): "Drop the table and write with createTable, or alter its columns first.",
    ("a write", "replacewhere"): (
        "Replace the rows by Python, in one transaction: transaction.delete(table, where=…), then append."
    ),
    (
        "a write",
        "partitionoverwritemode",
    ): "Tables have no partitions: pages are skipped by their statistics.",
    ("a stream that is written", "appid"): (
        "A stream is known by the id of its query, which its checkpoint location keeps. Batches count from 0 "
        "in each location: under an id of yours those of a new one would be taken for repeated, and lost. "
        "Leave it out, or write by foreachBatch, with an appId for each location and the batch as appVersion."
    ),
}

_COLUMN = r"(?:\s*`(?:[^`]|``)+`\s*|[^`,]*)"
"""A column in the option ``columns``, quoted as in SQL or bare."""

_NUMBERS = (
    "versionAsOf",
    "partitions",
    "startingVersion",
    "endingVersion",
    "maxVersionsPerTrigger",
    "appVersion",
)


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """What of a view is asked for.

    Attributes
    ----------
    view, version
        One of `VIEW_NAMES`, and the version that it is shown as of.
    table
        Of this table only; None shows all.
    starting, ending, granularity, values
        Of ``changes``: versions, both inclusive, ``rows`` or ``pages``, and whether rows come with values.
    """

    view: str
    version: int
    table: str | None = None
    starting: int | None = None
    ending: int | None = None
    granularity: str = "rows"
    values: bool = False


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How rows are to be written.

    Attributes
    ----------
    table
        The table.
    create, properties
        Whether it is made if it is not there, and with which properties.
    operation
        For the history.
    app_id, app_version
        Exactly once, see `Store.transaction`; None for neither.
    engine
        Which engine reads the rows, for the history.
    """

    table: str
    create: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    operation: str = "spark write"
    app_id: str | None = None
    app_version: int | None = None
    engine: str = "spark"

    def check_pair(self) -> None:
        """Nothing, if application and number are both given, or neither.

        Raises
        ------
        InvalidInputError
            If one is missing: a stream has its own numbers, nothing else has.
        """
        if (self.app_id is None) != (self.app_version is None):
            raise InvalidInputError(
                f"Cannot use application {self.app_id!r} with number {self.app_version!r}: expected "
                "both or neither.",
                hint="Pass txnAppId and txnVersion, --app-id and --app-version on the command line.",
            )


class SourceOptions:
    """The options of one source.

    Parameters
    ----------
    given
        By name, in any case.

    Raises
    ------
    InvalidInputError
        If one of them makes no sense.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        for option in _NUMBERS:
            self.number(option)
        if self.number("maxVersionsPerTrigger") == 0:
            raise InvalidInputError(
                "Cannot use 0 as maxVersionsPerTrigger: expected a number from 1.",
                hint="Pass a number such as 100, or leave the option out: no limit, `availableNow` reads "
                "all.",
            )
        starting, ending = self.number("startingVersion"), self.number("endingVersion")
        if starting is not None and ending is not None:
            check_version_range(starting, ending, ("startingVersion", "endingVersion"))
        self.query(0)
        self.filter()
        self.infers_nullability()

    def check_read(self) -> None:
        """Nothing, if the view that is asked for has all options, be it as a frame or as a stream.

        Raises
        ------
        InvalidInputError
        """
        if "provider" in self._given:  # Spark adds this one where SQL makes a table of its catalog
            raise InvalidInputError(
                "Cannot create a table by CREATE TABLE … USING spark_pages: nobody could read it, "
                "because Spark 4.2 passes none of its options to the source.",
                hint="`CREATE TEMPORARY VIEW … USING spark_pages OPTIONS (…)` passes them on.",
            )
        view = self.query(0).view
        known = [*_OF_A_VERSION, *_OF_VIEWS.get(view, ())]
        known += _OF_USES[STREAM_USES[view]] if view in STREAM_USES else ()
        self._check(f"the view {view!r}", known)

    def check_use(self, use: str) -> None:
        """Nothing, if a use (of `_OF_USES`) has all options.

        Raises
        ------
        InvalidInputError
        """
        self._check(use, _OF_USES[use])

    def _check(self, use: str, known: Iterable[str]) -> None:
        names = {name.lower(): name for name in (*_EVERYWHERE, *known)}
        for option in self._given:
            if option not in names:
                close = get_close_matches(option, names, n=1)
                meant = f"Did you mean {names[close[0]]}?" if close else f"It has {', '.join(sorted(known))}."
                raise InvalidInputError(
                    f"Cannot use option {option!r} of {use}: there is none of that name.",
                    hint=_WHY_NOT.get((use, option), meant),
                )

    def url(self) -> str:
        """Return the address of the store as executors need it."""
        url = self._text("path")
        if not url:
            raise InvalidInputError(
                "Cannot open a store: none was named.",
                hint="Pass its address, one, to `load(…)` or `save(…)`. Of tables of Spark's catalog, as "
                "`saveAsTable(…)` makes them, Spark 4.2 passes no address.",
            )
        return store_url(url, self._text("profile"))

    def snapshot(self, store: Store) -> Snapshot:
        """Open the requested version."""
        return store.snapshot(self.number("versionAsOf"), self._text("timestampAsOf"), self._text("tag"))

    def query(self, version: int) -> ViewQuery:
        """Return the requested view."""
        view = (self._text("view") or "rows").lower()
        if view not in VIEW_NAMES:
            raise InvalidInputError(
                f"Cannot read the view {view!r}: there is none of that name.",
                hint=f"Pass one of {', '.join(VIEW_NAMES)} as option view.",
            )
        if view in _OF_THE_STORE and self._text("table"):
            raise InvalidInputError(
                f"Cannot read the view {view!r} of one table: it is about the whole store.",
                hint="Leave the option `table` out.",
            )
        return ViewQuery(
            view,
            version,
            self._text("table"),
            self.number("startingVersion"),
            self.number("endingVersion"),
            check_granularity(self._text("granularity")),
            self._values(),
        )

    def _values(self) -> bool:
        """Whether changed rows are wanted with their values, of a table that is named."""
        if not self._flag("values"):
            return False
        if self._text("granularity") is not None:
            raise InvalidInputError(
                "Cannot use granularity together with values: rows come whole.",
                hint="Leave granularity out, or pass values=false.",
            )
        if not self._text("table"):
            raise InvalidInputError(
                "Cannot read changed values: no table was named.",
                hint='Name it with `.option("table", "…")`.',
            )
        return True

    def write(self, operation: str) -> WriteOptions:
        """How rows are to be written."""
        table = self._text("table")
        if not table:
            raise InvalidInputError(
                "Cannot write rows: no table was named.", hint='Name it with `.option("table", "…")`.'
            )
        return WriteOptions(
            table,
            self._flag("createTable"),
            self._properties(),
            operation,
            self._text("appId"),
            self.number("appVersion"),
        )

    def number(self, option: str) -> int | None:
        """Return a number from 0, or None."""
        text = self._text(option)
        if text is None:
            return None
        if not text.strip().isdecimal():
            raise InvalidInputError(
                f"Cannot use {text!r} as option {option}: expected a number from 0.",
                hint=f"Pass a number such as {option}=7.",
            )
        return int(text)

    def columns(self) -> list[str] | None:
        """Return the columns to read, or None for all.

        Raises
        ------
        InvalidInputError
            If a backquote is not where a name in backquotes begins or ends, or is doubled within.
        """
        given = self._text("columns") or ""
        if not re.fullmatch(f"{_COLUMN}(?:,{_COLUMN})*", given):
            raise InvalidInputError(
                f"Cannot use {given!r} as option columns: expected names parted by commas.",
                hint="Put a name that holds a comma or a backquote into backquotes, and double its own, "
                "as in SQL: `last, first`.",
            )
        names = (_bare(each.strip()) for each in re.findall(_COLUMN, given))
        return [name for name in names if name] or None

    def filter(self) -> str | None:
        """Return the condition on rows as SQL, or None for all rows.

        Raises
        ------
        InvalidInputError
            If the view is another one than ``rows``.
        """
        given = self._text("filter")
        if given is not None and self.query(0).view != "rows":
            raise InvalidInputError(
                "Cannot use the option filter here: it is for rows of a table.",
                hint="Filter the frame of another view by `where(…)`.",
            )
        return given

    def infers_nullability(self) -> bool:
        """Whether a column in which the version has no null comes as one that cannot have any.

        Raises
        ------
        InvalidInputError
        """
        given = self._text("nullability") or "declared"
        if given not in ("declared", "inferred"):
            raise InvalidInputError(
                f"Cannot use {given!r} as option nullability: expected declared or inferred.",
                hint="Pass nullability=declared or nullability=inferred.",
            )
        return given == "inferred"

    def numbers_rows(self) -> bool:
        """Whether rows come with their numbers."""
        return self._flag("rowNumbers")

    def _text(self, option: str) -> str | None:
        return self._given.get(option.lower()) or None

    def _flag(self, option: str) -> bool:
        text = (self._text(option) or "false").strip().lower()
        if text not in ("true", "false"):
            raise InvalidInputError(
                f"Cannot use {text!r} as option {option}: expected true or false.",
                hint=f"Pass {option}=true or {option}=false.",
            )
        return text == "true"

    def _properties(self) -> dict[str, str]:
        text = self._text("tableProperties") or "{}"
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
            raise InvalidInputError(
                f"Cannot use {text!r} as option tableProperties: expected a JSON object of texts.",
                hint='Write it like {"codec": "zstd"}.',
            )
        return found


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def quoted_columns(names: Iterable[str]) -> str:
    """Return the text for the option ``columns`` that names some columns."""
    return ",".join("`" + name.replace("`", "``") + "`" for name in names)
