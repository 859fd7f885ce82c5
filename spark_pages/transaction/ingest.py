"""Rows on their way into pages: cut when there are enough for a page, kept as they are until then.

`TableIngest.add` takes rows of a table. So many small appends of one transaction make full pages, and a
stream of any length makes the pages that one large table would make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arguments import check_names_once
from spark_pages.arrow.columns import has_dictionary
from spark_pages.arrow.compact import owned_copy
from spark_pages.arrow.join import DoesNotFitError, copied, empty_array, join
from spark_pages.arrow.nested import null_column, null_scalar
from spark_pages.catalog.page_options import PageOptions
from spark_pages.catalog.resolve import check_available
from spark_pages.errors import SchemaMismatchError
from spark_pages.format.values import RowStream, cast_chunks
from spark_pages.io import Codec, plan_pages
from spark_pages.model.immutable import IdentityCache
from spark_pages.model.names import match_name
from spark_pages.model.table import TableDefinition
from spark_pages.query.page_metadata import NO_META, PageMeta
from spark_pages.transaction.constraints import RowTests
from spark_pages.transaction.page_writer import StagedPage, stage_constant, stage_pages
from spark_pages.transaction.placement import StagedSplice


@dataclass(frozen=True, eq=False, slots=True)
class ToEncode:
    """Values of one column, and where they are cut.

    Attributes
    ----------
    values
        Whole pages of them.
    bounds : int64, shape (n_pages + 1,)
        First row of each page, and the number of rows last.
    codec
        How the pages are compressed.
    bloom
        Share of false positives of their bloom filters; None for none.
    meta
        What the values have beside them.
    """

    values: pa.Array
    bounds: NDArray[np.int64]
    codec: Codec
    bloom: float | None = None
    meta: PageMeta = NO_META


def encode_columns(columns: Sequence[ToEncode]) -> list[list[StagedPage]]:
    """Encode the pages of every column, in order."""
    return [stage_pages(each.values, each.bounds, each.codec, each.bloom, each.meta) for each in columns]


_LOOK_AHEAD_ROWS = 1 << 17

FRAME_BYTES = 300
"""Bytes of a small page beside its values, about; rather too many."""

NOTHING_BESIDE: Mapping[str, PageMeta] = {}

Full = ToEncode | StagedPage
"""Values that are to become pages, or a page that needs no work."""


@dataclass(eq=False, slots=True)
class ColumnIngest:
    """Rows of one column behind those that it has.

    Attributes
    ----------
    wanted, codec, page_bytes, bloom
        The column, and how its pages are written.
    splice
        The append with the pages that are there already.
    waiting, meta
        Rows that do not fill a page yet, and what they have beside them.
    nulls
        Behind these, rows of appends that left the column out.
    """

    wanted: pa.Field
    codec: Codec
    page_bytes: int
    splice: StagedSplice
    waiting: pa.Array
    nulls: int = 0
    bloom: float | None = None
    meta: PageMeta = NO_META

    @property
    def waiting_bytes(self) -> int:
        """Bytes that a page of what waits takes, about; rather too many."""
        beside = 0 if self.meta is NO_META else self.meta.size_bytes
        return int(self.waiting.get_total_buffer_size()) + beside + FRAME_BYTES  # `nbytes` takes 10 µs

    @property
    def waiting_rows(self) -> int:
        """Rows that are in no page yet."""
        return len(self.waiting) + self.nulls

    def add(self, chunks: Sequence[pa.Array], meta: PageMeta = NO_META) -> list[Full]:
        """Add rows, and return the pages that are full; the rest waits.

        Parameters
        ----------
        meta
            What the rows have beside them. Those that share a page have the same metadata of it.

        Notes
        -----
        Copies what does not lie behind each other: that takes less time than pages that are encoded alone. Of
        a dictionary column no more than one page of each chunk, whose dictionary stays its own.
        """
        found = self.rest() if self.nulls or self.meta.page != meta.page else []
        if not (meta.is_nothing and self.meta.is_nothing):
            first = 0
            for chunk in chunks:
                found += self._add_beside(chunk, meta.slice(first, first + len(chunk)))
                first += len(chunk)
            return found
        if len(self.waiting) + len(chunks) > 1 and not has_dictionary(self.wanted.type):
            chunks = self._joined(chunks)
        for chunk in chunks:
            found += self._add(chunk)
        return found

    def _joined(self, chunks: Sequence[pa.Array]) -> Sequence[pa.Array]:
        """Join the waiting rows and the chunks, if possible; then none waits."""
        try:
            joined = join([self.waiting, *chunks], self.wanted.type)
        except DoesNotFitError:
            return chunks
        self.waiting = empty_array(self.wanted.type)
        return [joined]

    def _add(self, chunk: pa.Array) -> list[Full]:
        if not len(chunk):
            return []
        if not len(self.waiting):
            return self._cut(chunk)
        ahead = plan_pages(chunk.slice(0, _LOOK_AHEAD_ROWS), self.page_bytes)
        head = int(ahead[min(2, len(ahead) - 1)])
        try:
            joined = join([self.waiting, chunk.slice(0, head)], self.wanted.type)
        except DoesNotFitError:
            return [*self.rest(), *self._cut(chunk)]
        bounds = plan_pages(joined, self.page_bytes)
        first = int(bounds[1])
        used = first - len(self.waiting)
        if len(bounds) < 3 or used < 0:  # no page is full yet, or it was larger than others
            rest = chunk.slice(head)
            return [*self._cut(joined), *(self._add(rest) if len(rest) else [])]
        page = ToEncode(joined.slice(0, first), bounds[:2], self.codec, self.bloom)
        return [page, *self._cut(chunk.slice(used))]

    def _cut(self, values: pa.Array) -> list[Full]:
        """Split values into full pages; the last page waits, full or not."""
        self.waiting = values
        if self.waiting_bytes <= self.page_bytes:
            return []
        bounds = plan_pages(values, self.page_bytes)
        last = int(bounds[-2]) if len(bounds) > 1 else 0
        self.waiting = owned_copy(values.slice(last))
        return [ToEncode(values.slice(0, last), bounds[:-1], self.codec, self.bloom)] if last else []

    def _add_beside(self, chunk: pa.Array, meta: PageMeta) -> list[Full]:
        """As `_add`, where rows have something beside them."""
        if not len(chunk):
            return []
        full: list[Full] = []
        values = chunk
        if len(self.waiting):
            try:
                values = join([self.waiting, chunk], self.wanted.type)
                meta = PageMeta.joined([(self.meta, len(self.waiting)), (meta, len(chunk))])
            except DoesNotFitError:
                full, values = self.rest(), chunk
        bounds = plan_pages(meta.join_with(values), self.page_bytes)
        last = int(bounds[-2])
        self.waiting, self.meta = owned_copy(values.slice(last)), meta.slice(last, len(values))
        if last:
            first = values.slice(0, last), bounds[:-1], self.codec, self.bloom, meta.slice(0, last)
            full.append(ToEncode(*first))
        return full

    def add_nulls(self, count: int) -> list[Full]:
        """Add nulls, which wait, and return the pages that are full before them."""
        full = self.rest() if len(self.waiting) else []
        self.nulls += count
        return full

    def rest(self) -> list[Full]:
        """Everything that waits; nothing waits any more."""
        found: list[Full] = []
        if len(self.waiting):
            bounds = np.array([0, len(self.waiting)], np.int64)
            found.append(ToEncode(self.waiting, bounds, self.codec, self.bloom, self.meta))
        if self.nulls:
            found.append(stage_constant(null_scalar(self.wanted.type), self.nulls))
        self.waiting, self.meta, self.nulls = empty_array(self.wanted.type), NO_META, 0
        return found


@dataclass(frozen=True, slots=True)
class _Mark:
    """Where the ingest of a column stood."""

    pages: Sequence[Any]
    waiting: pa.Array
    meta: PageMeta
    nulls: int
    touched: tuple[tuple[int, int], ...]


_fields_of = IdentityCache[TableDefinition, dict[int, tuple[pa.Field, str, pa.DataType]]](
    lambda definition: {
        definition.field_ids[each.name]: (each, each.name, each.type) for each in definition.bare_schema
    }
)


def spelled_columns(definition: TableDefinition, columns: Sequence[str]) -> Sequence[str]:
    """Return the names of data columns as the table spells them; one that it does not have stays.

    Raises
    ------
    InvalidInputError
        If several columns of the table differ from a name by case only.
    """
    has = definition.field_ids
    return [name if name in has else match_name(name, has) or name for name in columns]


def misfit(definition: TableDefinition, columns: Sequence[str]) -> str | None:
    """Why rows of these columns cannot be of the table; None if they can.

    Raises
    ------
    InvalidInputError
        If two columns have one name.
    """
    has = definition.field_ids
    if has.keys() == set(columns) and len(has) == len(columns):
        return None
    columns = spelled_columns(definition, columns)
    check_names_once(columns, f"append to {definition.name!r}")
    if not definition.aligned:
        return None
    unknown = sorted(set(columns) - has.keys())
    if unknown:
        return (
            f"Cannot append to {definition.name!r}: it has no column {', '.join(map(repr, unknown))}; it has "
            f"{', '.join(has)}."
        )
    for column in definition.bare_schema:
        if column.name not in columns and not column.nullable:
            return (
                f"Cannot append to {definition.name!r}: column {column.name!r} is missing and not nullable."
            )
    return None


class TableIngest:
    """The rows that a transaction appends to a table.

    Parameters
    ----------
    definition
        The table.
    options
        How its pages are written.
    splices
        An append without pages for every column, which the pages are put into.
    """

    def __init__(
        self, definition: TableDefinition, options: PageOptions, splices: Sequence[StagedSplice]
    ) -> None:
        self.definition = definition
        self._tests = RowTests.of(definition)
        self._rows = 0
        fields = _fields_of(definition)
        self.columns = [
            ColumnIngest(
                field,
                options.codec_for(name),
                options.bytes_for(name),
                splice,
                empty_array(kind),
                bloom=options.bloom_for(name),
            )
            for splice in splices
            for field, name, kind in (fields[splice.field_id],)
        ]

    def check(self, rows: RowStream) -> None:
        """Nothing, if these rows can be of this table at all.

        Raises
        ------
        SchemaMismatchError
            If a column is unknown, or missing though not nullable.
        """
        check_available(self.definition, rows.columns)
        wrong = misfit(self.definition, rows.columns)
        if wrong is not None:
            raise SchemaMismatchError(
                wrong, hint=f"Give rows of columns {', '.join(self.definition.field_ids)}."
            )

    @property
    def num_rows(self) -> int:
        """How many rows were appended."""
        touched = self.columns[0].splice.touched if self.columns else ()
        return sum(end - first for first, end in touched)

    def mark(self) -> list[_Mark]:
        """Where it stands, for `rewind`."""
        return [
            _Mark(each.splice.pages, each.waiting, each.meta, each.nulls, each.splice.touched)
            for each in self.columns
        ]

    def rewind(self, marks: Sequence[_Mark]) -> None:
        """Discard the rows added since."""
        for column, mark in zip(self.columns, marks, strict=True):
            column.splice.pages, column.splice.touched = mark.pages, mark.touched
            column.waiting, column.meta, column.nulls = mark.waiting, mark.meta, mark.nulls

    def add(self, rows: pa.Table, metas: Mapping[str, PageMeta] = NOTHING_BESIDE) -> int:
        """Append the rows, and return the bytes of the pages that they filled.

        Parameters
        ----------
        metas
            What the rows have beside them, by column.

        Raises
        ------
        SchemaMismatchError, ConstraintError
            If values do not fit their column, or break a rule; then no column has got any.
        """
        name = self.definition.name
        by_name = dict(
            zip(rows.column_names, rows.columns, strict=True)
        )  # a look-up by Arrow takes linear time
        given = {
            column.wanted.name: cast_chunks(by_name[column.wanted.name], column.wanted, name)
            for column in self.columns
            if column.wanted.name in by_name
        }
        if self._tests.tests:
            self._test(given, rows.num_rows)
        full: list[list[Full]] = []
        for column in self.columns:
            chunks = given.get(column.wanted.name)
            if chunks is not None:
                full.append(column.add(chunks, metas.get(column.wanted.name, NO_META)))
            else:
                full.append(column.add_nulls(rows.num_rows) if self.definition.aligned else [])
                if not self.definition.aligned:
                    continue
            first, end = column.splice.touched[0] if column.splice.touched else (column.splice.first_row,) * 2
            column.splice.touched = ((first, end + rows.num_rows),)
        return self._encode(full)

    def _test(self, given: Mapping[str, Sequence[pa.Array]], count: int) -> None:
        """Refuse rows that break a rule of the table; columns that are left out are null."""
        wanted = {each.wanted.name: each.wanted.type for each in self.columns}
        tests = self._tests if self.definition.aligned else self._tests.about(set(given))
        columns = {}
        for name in sorted(tests.columns):
            kind = wanted[name]
            columns[name] = pa.chunked_array(given[name], kind) if name in given else null_column(kind, count)
        tests.check(pa.table(columns), self._rows)
        self._rows += count

    def own(self) -> None:
        """Copy waiting rows, because the caller may change what was given."""
        for column in self.columns:
            if len(column.waiting):
                column.waiting = copied(column.waiting)
                column.meta = column.meta if column.meta.is_nothing else column.meta.copied()

    def splices(self) -> list[StagedSplice]:
        """Return the splices that have pages."""
        return [column.splice for column in self.columns if column.splice.pages]

    def finish(self) -> int:
        """Everything is in pages, or waits as before if that fails; gives the bytes of those that are new."""
        marks = self.mark()
        try:
            return self._encode([column.rest() for column in self.columns])
        except BaseException:
            self.rewind(marks)
            raise

    def _encode(self, full: Sequence[Sequence[Full]]) -> int:
        encoded = iter(encode_columns([one for each in full for one in each if isinstance(one, ToEncode)]))
        size_bytes = 0
        for column, each in zip(self.columns, full, strict=True):
            pages: list[StagedPage] = []
            for one in each:
                pages += next(encoded) if isinstance(one, ToEncode) else [one]
            if pages:
                column.splice.pages = [*column.splice.pages, *pages]
                size_bytes += sum(page.encoded.actual_len for page in pages)
        return size_bytes
