"""Types of pages, as far as their statistics prove them: without a byte of the pages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_pages.arrow.types import cast_to_column, holds_all, storage_of
from spark_pages.catalog.evolution import stored_types
from spark_pages.errors import DamageError
from spark_pages.format.bounds import bound_width, decode_bounds, is_bytes, plain_type
from spark_pages.model.page import STATISTIC_MAX_BYTES
from spark_pages.model.run import PageRun

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class TypeEvidence:
    """What statistics say of the types of some pages.

    Attributes
    ----------
    wrong : bool, shape (n_pages,)
        Pages whose values cannot be values of the column.
    open : bool, shape (n_pages,)
        Pages that may hold values of a wider type than the column's, as it once was: only their bytes tell
        whether each value is one of the column.
    """

    wrong: Flags
    open: Flags


def wider_types(column: pa.Field) -> list[pa.DataType]:
    """Return the types that pages of a column may have and that hold more values than the column."""
    kind = storage_of(column.type)
    return [each for each in map(storage_of, stored_types(column)) if not holds_all(kind, each)]


def type_evidence(run: PageRun, column: pa.Field) -> TypeEvidence:
    """Compare the bounds of pages with the type of their column and those that it had before.

    Notes
    -----
    A bound is as wide as the type of its page. Decimals of one width and text are told apart by bytes alone.
    """
    kind = plain_type(storage_of(column.type))
    kinds = [kind, *(storage_of(each) for each in stored_types(column))]
    wider = wider_types(column)
    bounds = [run.stats.column(name) for name in ("min", "max")]
    lengths = [pc.binary_length(each).fill_null(-1).to_numpy(False) for each in bounds]
    widths = [bound_width(each) for each in kinds]
    known = [-1, *(width for width in widths if width is not None)]
    wrong = np.zeros(run.num_pages, bool)
    for length in lengths:
        wrong |= length > STATISTIC_MAX_BYTES if is_bytes(kind) else ~np.isin(length, known)
    if not wider:
        return TypeEvidence(wrong, np.zeros(run.num_pages, bool))
    narrow = [width for width in widths if width is not None and width < min(map(_width, wider))]
    proved = np.isin(lengths[0], narrow) & np.isin(lengths[1], narrow)
    for each, length in zip(bounds, lengths, strict=True):
        for other in wider:
            of_other = (length == bound_width(other)) & ~wrong
            index = np.flatnonzero(of_other)
            wrong[index] |= ~_fit(each.take(pa.array(index)), other, kind)
    return TypeEvidence(wrong, ~proved & ~wrong)


def _width(kind: pa.DataType) -> int:
    return bound_width(kind) or 0


def _fit(bounds: pa.Array, other: pa.DataType, kind: pa.DataType) -> Flags:
    """Which bounds under one type are values of another."""
    try:
        values = decode_bounds(other, bounds)
    except DamageError:
        return np.zeros(len(bounds), bool)
    if cast_to_column(values, kind) is not None:
        return np.ones(len(bounds), bool)
    return np.array(
        [cast_to_column(values[at : at + 1], kind) is not None for at in range(len(bounds))], bool
    )
