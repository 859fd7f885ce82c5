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

from spark_pages.errors import InvalidInputError, SparkPagesError
from spark_pages.sql.relations import Relation

_NO_COLUMN = "nothing"
"""The one column of a table of which only the number of rows matters."""

_BATCH_ROWS = 1 << 16

_MOST_DIGITS = 38
"""Digits of DuckDB's widest decimal."""


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
        return pa.schema(
            [
                pa.field(label, held_by_duckdb(known.field(name).type, name), known.field(name).nullable)
                for label, name in self._names.items()
            ]
        )

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
        known = self._relation.schema
        if all(
            label == name and known.field(name).type == self.schema.field(label).type
            for label, name in self._names.items()
        ):
            wanted = _both(filter, self._hint)
            for batch in self._relation.scan(labels, wanted):
                yield batch.cast(schema) if batch.schema != schema else batch
            return
        # The filter speaks of labels and of other types: it is tested here, on whole columns.
        for batch in self._relation.scan(list(self._names.values()), self._hint):
            table = pa.table(batch.columns, names=list(self._names)).cast(self.schema)
            kept = table if filter is None else self._relation.passing(table, filter)
            yield from kept.select(labels).to_batches()


def held_by_duckdb(kind: pa.DataType, column: str) -> pa.DataType:
    """A type of the same values that DuckDB can hold.

    Raises
    ------
    InvalidInputError
        If there is none.
    """
    if pa.types.is_decimal(kind) and kind.scale < 0:
        if kind.precision - kind.scale > _MOST_DIGITS:
            raise InvalidInputError(
                f"Cannot query column {column!r}: DuckDB has decimals of up to {_MOST_DIGITS} digits, and "
                f"{kind} may have {kind.precision - kind.scale}.",
                hint="Read it with `Table.read`.",
            )
        return pa.decimal128(kind.precision - kind.scale, 0)
    if pa.types.is_struct(kind):
        if any("\0" in field.name for field in kind.fields):
            raise InvalidInputError(
                f"Cannot query column {column!r}: the name of a field holds NUL, which ends names in DuckDB.",
                hint="Read it with `Table.read`.",
            )
        alike = [name.lower() for name in kind.names]
        if len(set(alike)) < len(alike):
            raise InvalidInputError(
                f"Cannot query column {column!r}: names of its fields differ by case only, and DuckDB takes "
                f"the first for all of them.",
                hint="Read it with `Table.read`.",
            )
        return pa.struct([field.with_type(held_by_duckdb(field.type, column)) for field in kind.fields])
    if pa.types.is_map(kind):
        return pa.map_(held_by_duckdb(kind.key_type, column), held_by_duckdb(kind.item_type, column))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_value_field(kind, column), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(_value_field(kind, column))
    if pa.types.is_list(kind):
        return pa.list_(_value_field(kind, column))
    return kind


def _value_field(kind: pa.DataType, column: str) -> pa.Field:
    return kind.value_field.with_type(held_by_duckdb(kind.value_type, column))


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
