"""How many commits are read at once on a long way through the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from spark_pages.model.actions import Commit
from spark_pages.tables.versions import change_feed
from spark_pages.tables.versions.change_feed import commits_in_turn
from tests.log.records import commit, record

if TYPE_CHECKING:
    from spark_pages.log.log import Log


class Commits:
    """A log that notes what is read of it at once."""

    def __init__(self, pages: int) -> None:
        self.asked: list[tuple[int, int]] = []
        self._pages = pages

    def commits(self, start: int, stop: int) -> list[Commit]:
        self.asked.append((start, stop))
        given = record(1, (1,) * self._pages)
        return [commit(version, given) for version in range(start, stop)]


def test_the_more_small_commits_there_are_the_more_are_read_at_once() -> None:
    log = Commits(pages=0)

    found = [each.version for each in commits_in_turn(cast("Log", log), 300, 20_000)]

    assert found == list(range(300, 20_000))
    assert log.asked == [
        *((300, 512), (512, 1_024), (1_024, 2_048), (2_048, 4_096), (4_096, 8_192)),
        *((8_192, 12_288), (12_288, 16_384), (16_384, 20_000)),
    ]


def test_of_large_commits_few_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Commits(pages=2)
    monkeypatch.setattr(change_feed, "_MOST_BYTES", 300 * record(1, (1, 1)).own.nbytes)

    found = [each.version for each in commits_in_turn(cast("Log", log), 0, 2_000)]

    assert found == list(range(2_000))
    assert [stop - start for start, stop in log.asked] == [256, 256, 512, 512, 256, 208]
