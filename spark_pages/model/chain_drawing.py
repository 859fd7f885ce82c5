"""A chain as the lane of a picture: what is loaded as pages, the rest as what it is known to hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_pages.arrow.columns import numbers_of
from spark_pages.display.chain_strip import CONSTANT, INLINE, UNLOADED, Lane
from spark_pages.model.chain_tree import Piece
from spark_pages.model.page import PageKind
from spark_pages.model.run import PageRun

_NO_FILE = {PageKind.INLINE: INLINE, PageKind.CONSTANT: CONSTANT}


def lane_of(label: str, pieces: Sequence[Piece]) -> Lane:
    """Draw the lane of a chain with these pieces, in row order. Loads nothing."""
    ends: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    files: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
    ids: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    pages: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    names: list[pa.Array] = []
    row = known = 0
    for piece in pieces:
        if isinstance(piece, PageRun):
            own, own_names = _files(piece)
            files.append(np.where(own >= 0, own + known, own).astype(np.int32))
            ends.append(piece.prefix_entries.astype(np.int64) + row)
            ids.append(piece.page_ids)
            pages.append(np.ones(piece.num_pages, np.int64))
            names.append(own_names)
            known += len(own_names)
        else:
            files.append(np.array([UNLOADED], np.int32))
            ends.append(np.array([row + piece.num_rows], np.int64))
            ids.append(np.zeros(1, np.int64))
            pages.append(np.array([piece.num_pages], np.int64))
        row += piece.num_rows
    return Lane(
        label=label,
        ends=np.concatenate(ends),
        files=np.concatenate(files),
        names=pa.chunked_array(names, pa.string()).combine_chunks(),
        ids=np.concatenate(ids),
        pages=np.concatenate(pages),
    )


def _files(run: PageRun) -> tuple[NDArray[np.int64], pa.Array]:
    """For each page the place of its file among the names, or a code; and the names that occur."""
    kinds = run.numbers("kind")
    path = run.pages.column("path")
    codes = numbers_of(path.indices).astype(np.int64)  # where a page has no path they may be anything
    used, places = np.unique(codes[kinds == PageKind.FILE], return_inverse=True)
    files = np.empty(run.num_pages, np.int64)
    files[kinds == PageKind.FILE] = places
    for kind, code in _NO_FILE.items():
        files[kinds == kind] = code
    return files, path.dictionary.take(pa.array(used))
