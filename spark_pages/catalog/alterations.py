"""What an alter means to those who write to the table meanwhile. Pure.

A writer forms its pages for the definition that it has read. If another definition is there when it commits,
the pages are still right where no rule on values has become stricter; only columns that came or went are to
be looked at, one by one.
"""

from __future__ import annotations

import pyarrow as pa

from spark_pages.arrow.wider_types import holds_all
from spark_pages.catalog.constraints import constraints_of
from spark_pages.catalog.facts import json_fact
from spark_pages.catalog.widening import stored_types
from spark_pages.model.table import CHECKS_KEY, TableDefinition


def columns_changed(before: TableDefinition, after: TableDefinition) -> tuple[int, ...] | None:
    """Ids of the columns that an alter adds or takes away; None if rows right before may be wrong after it.

    Notes
    -----
    Names, order, comments, properties and wider types harm no rows, nor do rules that go.
    """
    if before.aligned != after.aligned or not set(constraints_of(after)) <= set(constraints_of(before)):
        return None
    old, new = _by_id(before), _by_id(after)
    if not all(_accepts_pages(new[field_id], old[field_id]) for field_id in old.keys() & new.keys()):
        return None
    if new.keys() - old.keys() and not after.aligned:
        return None  # nobody knows how many rows a new column is to have
    return tuple(sorted(old.keys() ^ new.keys()))


def columns_to_fill(before: TableDefinition, after: TableDefinition) -> list[tuple[int, pa.Field]] | None:
    """Columns that rows written for the earlier definition lack, all nullable; None where they don't fit."""
    changed = columns_changed(before, after)
    new = _by_id(after)
    if changed is None or any(field_id not in new or not new[field_id].nullable for field_id in changed):
        return None
    return [(field_id, new[field_id]) for field_id in changed]


def _by_id(definition: TableDefinition) -> dict[int, pa.Field]:
    return dict(zip(definition.field_ids.values(), definition.schema, strict=True))


def _accepts_pages(now: pa.Field, old: pa.Field) -> bool:
    """Whether a column takes all pages that were made for what it was.

    A column that has become narrower does not, though some of its pages are of the wider type: those hold
    values that fit, and nobody has looked at the values of the pages in question.
    """
    types = {now.type, *stored_types(now)}
    checks = [{tuple(each) for each in json_fact(field, CHECKS_KEY, [])} for field in (now, old)]
    return (
        holds_all(now.type, old.type)
        and types.issuperset({old.type, *stored_types(old)})
        and now.nullable >= old.nullable
        and checks[0] <= checks[1]
    )
