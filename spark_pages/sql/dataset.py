"""A table of the store as DuckDB reads it: as a data set of Arrow that is asked for columns and a filter.

DuckDB says what it needs when it begins to read, after it has moved conditions as close to the tables as it
can. It leaves to the data set what it has handed over, so the filter is exact. What it does not hand over
(comparisons of floating point numbers, where NaN is another thing to Arrow) it tests itself; for these there
is a `hint`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from spark_pages.errors import SparkPagesError
from spark_pages.sql.relations import Relation

_NO_COLUMN = "nothing"
"""The one column of a table of which only the number of rows matters."""

_BATCH_ROWS = 1 << 16


class RelationDataset(ds.Dataset):  # type: ignore[misc] # pyarrow ships no types
    """Some columns of a table under labels.

    Parameters
    ----------
    relation
        The table.
    labels
        Label of each column, by name; those that a query needs, and no more.
    hint
        A filter that every row meets which the query can use, or None.

    Attributes
    ----------
    failure
        What reading raised, which DuckDB tells as text only.
    """

    def __init__(
        self, relation: Relation, labels: Mapping[str, str], hint: pc.Expression | None = None
    ) -> None:
        # Dataset.__init__ refuses to be called; nothing of it is used but that DuckDB knows the class.
        self._relation = relation
        self._names = {label: name for name, label in labels.items()}
        self._hint = hint
        self.failure: SparkPagesError | None = None

    def __new__(cls, *_: Any) -> RelationDataset:
        """See the class."""
        made: RelationDataset = ds.Dataset.__new__(cls)
        return made

    @property
    def schema(self) -> pa.Schema:
        """The columns under their labels."""
        if not self._names:
            return pa.schema([(_NO_COLUMN, pa.bool_())])
        known = self._relation.schema
        return pa.schema([known.field(name).with_name(label) for label, name in self._names.items()])

    def scanner(
        self, columns: list[str] | None = None, filter: pc.Expression | None = None, **_: Any
    ) -> RelationScanner:
        """Called by DuckDB each time that it begins to read."""
        return RelationScanner(self, self.schema.names if columns is None else columns, filter)

    def batches(self, labels: list[str], filter: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        """The rows that pass the filter."""
        try:
            yield from self._read(labels, filter)
        except SparkPagesError as error:
            self.failure = error
            raise

    def _read(self, labels: list[str], filter: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        if not self._names:
            yield from _rows_only(self._relation.num_rows)
            return
        schema = pa.schema([self.schema.field(label) for label in labels])
        if all(label == name for label, name in self._names.items()):
            wanted = _both(filter, self._hint)
            for batch in self._relation.scan(labels, wanted):
                yield batch.cast(schema) if batch.schema != schema else batch
            return
        # The filter speaks of labels: it is tested here, and whole columns are read for it.
        for batch in self._relation.scan(list(self._names.values()), self._hint):
            table = pa.table(batch.columns, names=list(self._names))
            kept = table if filter is None else table.filter(filter)
            yield from kept.select(labels).cast(schema).to_batches()


class RelationScanner:
    """One reading of a data set: what DuckDB looks for in a scanner of Arrow."""

    def __init__(self, dataset: RelationDataset, labels: list[str], filter: pc.Expression | None) -> None:
        self._dataset = dataset
        self._labels = labels
        self._filter = filter

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns that are read."""
        schema = self._dataset.schema
        return pa.schema([schema.field(label) for label in self._labels])

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows, as a stream that begins now."""
        return pa.RecordBatchReader.from_batches(
            self.projected_schema, self._dataset.batches(self._labels, self._filter)
        )


def _both(filter: pc.Expression | None, hint: pc.Expression | None) -> pc.Expression | None:
    if filter is None or hint is None:
        return hint if filter is None else filter
    return filter & hint


def _rows_only(count: int) -> Iterator[pa.RecordBatch]:
    """So many rows of nothing; the values of all batches are the same."""
    values = pa.nulls(min(count, _BATCH_ROWS), pa.bool_())
    for start in range(0, count, _BATCH_ROWS):
        yield pa.record_batch([values.slice(0, min(_BATCH_ROWS, count - start))], names=[_NO_COLUMN])
