"""Planted bugs of deletes: one rule taken out at a time, and a history of a table that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_pages.errors import SparkPagesError
from spark_pages.log.commit import conflict, protocol
from spark_pages.model.ids import LIVENESS
from spark_pages.model.table import TableDefinition
from spark_pages.transaction import blanked_rows, staging
from spark_pages.transaction.placement import StagedSplice
from tests.property.test_deleted_rows import after, small_blocks  # noqa: F401 - a fixture

RACING_DELETES = [("race", (("delete", [3]), ("delete", [15])))]
FORGETFUL_TRUNCATE = [("delete", [3, 9]), ("truncate", 0), ("append", 12)]
RACING_UPDATE = [("race", (("delete", [3]), ("update", [3])))]
PURGE_AND_RESTORE = [("delete", [3]), ("purge", None), ("restore", 0)]
FORGETFUL_RESTORE = [("delete", [3]), ("delete", [12]), ("restore", 1)]


def lengthenings_do_not_conflict(patch: pytest.MonkeyPatch) -> None:
    """A lengthening lands at the place that it was built for, whatever others have put there."""
    marks = conflict._marks
    patch.setattr(conflict, "_marks", lambda *given: _without(marks(*given), resizes=False))


def _without(marks: conflict._Marks, **other: object) -> conflict._Marks:
    for name, value in other.items():
        setattr(marks, name, value)
    return marks


def lengthenings_count_as_appends(patch: pytest.MonkeyPatch) -> None:
    """A lengthening is put behind what is there by then."""
    patch.setattr(
        protocol, "only_appends", lambda record: not any(splice.removed for splice in record.splices)
    )


def liveness_is_no_chain_of_the_table(patch: pytest.MonkeyPatch) -> None:
    """Marks outlive the rows of a truncated table."""
    columns = property(lambda self: tuple((self.table_id, each) for each in self.field_ids.values()))
    patch.setattr(TableDefinition, "chains", columns)


def deletes_pass_over_updates(patch: pytest.MonkeyPatch) -> None:
    """A row that another transaction updates meanwhile is deleted, and the update is lost."""
    patch.setattr(conflict, "_liveness", lambda *_: None)


def marks_touch_nothing(patch: pytest.MonkeyPatch) -> None:
    """Marks are identities for the feed, for restore and for conflicts, as compacted pages are."""
    mark_dead = staging.mark_dead

    def silent(*given: object) -> list:
        return [replace(each, data_change=False, touched=()) for each in mark_dead(*given)]

    patch.setattr(staging, "mark_dead", silent)


def blanking_is_identity(patch: pytest.MonkeyPatch) -> None:
    """Blank pages hold the same rows for restore and for the feed, as compacted pages do."""
    splice = blanked_rows.StagedSplice

    def silent(*given: object, touched: object) -> StagedSplice:
        return splice(*given, data_change=False)

    patch.setattr(blanked_rows, "StagedSplice", silent)


@pytest.mark.parametrize(
    ("plant", "steps"),
    [
        (blanking_is_identity, PURGE_AND_RESTORE),
        (lengthenings_do_not_conflict, RACING_DELETES),
        (lengthenings_count_as_appends, RACING_DELETES),
        (liveness_is_no_chain_of_the_table, FORGETFUL_TRUNCATE),
        (deletes_pass_over_updates, RACING_UPDATE),
        (marks_touch_nothing, RACING_UPDATE),
        (marks_touch_nothing, FORGETFUL_RESTORE),
    ],
)
def test_a_table_shows_each_rule_that_is_taken_out(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], steps: list
) -> None:
    after(steps)
    plant(monkeypatch)

    with pytest.raises((AssertionError, SparkPagesError, ValueError)):
        after(steps)


def test_the_liveness_chain_is_one_of_the_chains_of_a_table() -> None:
    model = after([("delete", [1])])

    definition = model.store.snapshot().table("t").definition
    assert (definition.table_id, LIVENESS) in definition.chains
