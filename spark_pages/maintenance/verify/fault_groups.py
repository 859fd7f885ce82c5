"""What is wrong with pages, gathered: pages of one chain that are wrong in one way are told together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spark_pages.maintenance.verify.faults import FaultKind
from spark_pages.model.chain_tree import ChainKey


@dataclass(eq=False, slots=True)
class FaultGroup:
    """Pages of one chain in one object that are wrong in one way.

    Attributes
    ----------
    detail, detail_of
        What one of the pages failed with, and its id.
    """

    kind: FaultKind
    key: str
    chain: ChainKey
    what: str
    page_ids: list[int] = field(default_factory=list)
    detail: str = ""
    detail_of: int = -1

    def extend(self, page_ids: Sequence[int] | NDArray[np.int64], detail: str) -> None:
        """Add pages; the detail that is kept is that of the oldest page, whoever reads it first."""
        self.page_ids.extend(map(int, page_ids))
        first = int(min(page_ids))
        if detail and (not self.detail or first < self.detail_of):
            self.detail, self.detail_of = detail, first


class FaultGroups:
    """All troubles, in the order in which they were found."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, ChainKey, FaultKind, str], FaultGroup] = {}

    def __iter__(self) -> Iterator[FaultGroup]:
        return iter(self._found.values())

    def add(
        self,
        kind: FaultKind,
        key: str,
        chain: ChainKey,
        what: str,
        page_ids: Sequence[int] | NDArray[np.int64],
        detail: str = "",
    ) -> None:
        """These pages are wrong in this way, too; none need be."""
        if not len(page_ids):
            return
        trouble = self._found.setdefault((key, chain, kind, what), FaultGroup(kind, key, chain, what))
        trouble.extend(page_ids, detail)

    def merge(self, others: Iterable[FaultGroup]) -> None:
        """What somebody else has found, too."""
        for each in others:
            kept = self._found.setdefault((each.key, each.chain, each.kind, each.what), each)
            if kept is not each:
                kept.page_ids.extend(each.page_ids)
                if each.detail and (not kept.detail or each.detail_of < kept.detail_of):
                    kept.detail, kept.detail_of = each.detail, each.detail_of
