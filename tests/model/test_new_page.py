from __future__ import annotations

import pickle

from spark_pages.model.added_pages import NewPage
from spark_pages.model.page import BloomLocation, PageKind, PageStats


def test_a_new_page_comes_back_from_another_process_as_it_was():
    stats = PageStats(1, b"a", b"b", False, 7, BloomLocation(4096, 32, 5), nan=True)
    page = NewPage(10, 9, PageKind.INLINE, "pages/a.pages", 8192, 4096, 100, 11, b"data", stats)

    back = pickle.loads(pickle.dumps(page))  # noqa: S301 - its own

    assert back == page
    assert back.kind is PageKind.INLINE
