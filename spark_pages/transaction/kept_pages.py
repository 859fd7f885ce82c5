"""Rewritten pages of a transaction when others were first: which of them are right all the same. Pure.

A page that nobody has taken out holds what it held: the one in its place stays, and what was written for it.
The rows of the others are looked for on the pages that hold them by now.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from spark_pages.transaction.page_writer import StagedPage
from spark_pages.transaction.placement import StagedSplice


def parted(splice: StagedSplice, gone: set[int]) -> tuple[list[StagedSplice], list[tuple[int, int]]]:
    """What stays of a splice that puts a page in the place of each that it takes out.

    Parameters
    ----------
    gone
        Ids of pages that others have taken out.

    Returns
    -------
    tuple
        The splice cut to runs of pages that are there; and the rows [first, end) of pages that are not.
    """
    if gone.isdisjoint(splice.removed):
        return [splice], []
    is_gone = np.array([page in gone for page in splice.removed])
    entries = [page.entries if isinstance(page, StagedPage) else page.entry_count for page in splice.pages]
    rows = (splice.first_row + np.cumsum([0, *entries])).tolist()
    touched = np.array(splice.touched, np.int64).reshape(-1, 2)
    kept, overtaken = [], []
    for start, stop in pairwise([0, *(np.flatnonzero(np.diff(is_gone)) + 1).tolist(), len(is_gone)]):
        first, end = rows[start], rows[stop]
        if is_gone[start]:
            overtaken.append((first, end))
            continue
        there = touched[(touched[:, 1] > first) & (touched[:, 0] < end)].clip(first, end)
        kept.append(
            StagedSplice(
                splice.table_id,
                splice.field_id,
                first,
                splice.removed[start:stop],
                end - first,
                splice.pages[start:stop],
                touched=tuple(map(tuple, there.tolist())),
            )
        )
    return kept, overtaken
