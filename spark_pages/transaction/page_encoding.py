"""Columns become pages. Order and bytes follow from the values alone.

In the calling thread: of the work on a page so much wants the GIL that a second thread, whether it does pages
of its own or only what lets go of the GIL, makes an ingest longer (docs/performance.md, "Pages").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.io import Codec
from spark_pages.query.page_metadata import NO_META, PageMeta
from spark_pages.transaction.page_writer import StagedPage, stage_pages


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
    """The pages of every column, in order."""
    return [stage_pages(each.values, each.bounds, each.codec, each.bloom, each.meta) for each in columns]
