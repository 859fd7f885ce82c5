"""Changed rows with their values as tasks read them, version by version. No pyspark here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.changes.feed import iterate_commits, version_before
from spark_pages.log.log import Log
from spark_pages.log.replay import replay
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.actions import Commit
from spark_pages.model.table import TableDefinition
from spark_pages.query.snapshot import Snapshot
from spark_pages.query.value_feed import CHANGE_SCHEMA, ValueFeed, feed_fields
from spark_pages.runtime import Runtime
from spark_pages.spark.serialization import objects_of, pages_of

INSERT = "insert"
_ROW = CHANGE_SCHEMA.get_field_index("_row")
_CHANGE = CHANGE_SCHEMA.set(_ROW, pa.field("_row", pa.int64()))  # Spark has no unsigned numbers


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Changed rows of a table, each version compared with the one before.

    Attributes
    ----------
    url
        The store.
    definition
        The table at the version that was pinned, which names the columns.
    inserted_only
        Whether inserted rows alone are read.
    """

    url: str
    definition: TableDefinition
    inserted_only: bool = False

    @property
    def schema(self) -> pa.Schema:
        """Columns of the batches."""
        return pa.schema([*_CHANGE, *feed_fields(self.definition).values()])

    def batches(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Read what each commit from version `start` to `end`, both included, changed.

        Raises
        ------
        SnapshotExpiredError

        Notes
        -----
        Reads the commits once, and of each version the pages that hold touched rows.
        """
        log = Log(objects_of(self.url), Runtime())
        fields, schema = feed_fields(self.definition), self.schema
        then = version_before(log, start)
        for commit in iterate_commits(log, start, end + 1):
            now = log.open(replay(then.state, [commit], log.load_manifest), then) if then else log.snapshot(0)
            if self._touched_by(commit):
                versions = None if then is None else self._opened(log, then), self._opened(log, now)
                for batch in ValueFeed(*versions, [commit], self.definition, fields).batches():
                    yield self._selected(batch).cast(schema)
            then = now

    def _opened(self, log: Log, version: LogSnapshot) -> Snapshot:
        return Snapshot(version, pages_of(self.url), open_again=log.reopen)

    def _touched_by(self, commit: Commit) -> bool:
        table_id = self.definition.table_id
        return any(
            table_id in [splice.table_id for splice in record.splices]
            or table_id in [intent.table_id for intent in record.intents]
            for record in commit.records
        )

    def _selected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pc.equal(batch.column(0), INSERT)) if self.inserted_only else batch
