"""What a change of definitions did, for the history: an operation and its parameters. Pure.

Derived from the definitions before and after, so that every change has a name, whichever verb made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_pages.catalog.annotations import column_properties, fact
from spark_pages.catalog.constraints import Constraint, column_names, constraints_of
from spark_pages.catalog.resolve import show_name
from spark_pages.catalog.table_zero import kind_of
from spark_pages.model.immutable import freeze
from spark_pages.model.table import COMMENT_KEY, TYPE_KEY, TableDefinition

CHANGES = "changes"
"""Parameter that lists several changes, as JSON."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One change of the catalog.

    Attributes
    ----------
    operation
        ``rename column``, ``drop table`` and so on.
    parameters
        ``table``, ``namespace`` or ``type``: the name before. ``column``, ``constraint``, ``property`` of it.
        ``from`` and ``to``: what it was and what it is, where there is such a thing.
    """

    operation: str
    parameters: Mapping[str, str]

    def __post_init__(self) -> None:
        freeze(self, "parameters")


def creation(definition: TableDefinition) -> Difference:
    """Something new."""
    return _whole("create", definition)


def dropped(definition: TableDefinition) -> Difference:
    """Something that goes."""
    return _whole("drop", definition)


def undropped(definition: TableDefinition) -> Difference:
    """Something that comes back."""
    return _whole("undrop", definition)


def truncated(definition: TableDefinition) -> Difference:
    """Describe the removal of all rows of a table."""
    return _whole("truncate", definition)


def differences(before: TableDefinition, after: TableDefinition) -> Iterator[Difference]:
    """Compare two definitions of one table, namespace or type; columns are matched by id."""
    whole = _whole("", before).parameters
    kind = kind_of(before)
    if show_name(before) != show_name(after):
        yield Difference(f"rename {kind}", {**whole, "from": show_name(before), "to": show_name(after)})
    old, new = (dict(zip(each.field_ids.values(), each.schema, strict=True)) for each in (before, after))
    for field_id in (each for each in old if each not in new):
        told = {**whole, "column": old[field_id].name, "from": _type(old[field_id])}
        yield Difference("drop column", told)
    for field_id in (each for each in new if each not in old):
        yield Difference("add column", {**whole, "column": new[field_id].name, "to": _type(new[field_id])})
    common = [each for each in old if each in new]
    for field_id in common:
        if not old[field_id].equals(new[field_id], check_metadata=True):
            yield from _of_column(whole, old[field_id], new[field_id])
    if common != [each for each in new if each in old]:
        order = {"from": ", ".join(before.field_ids), "to": ", ".join(after.field_ids)}
        yield Difference("reorder columns", {**whole, **order})
    comments = fact(before.schema, COMMENT_KEY), fact(after.schema, COMMENT_KEY)
    yield from _changed("set comment", whole, *comments)
    yield from _properties(whole, before.properties, after.properties)
    yield from _constraints(whole, before, after)


def _of_column(whole: Mapping[str, str], old: pa.Field, new: pa.Field) -> Iterator[Difference]:
    column = {**whole, "column": old.name}
    if old.name != new.name:
        yield Difference("rename column", {**column, "from": old.name, "to": new.name})
    if _type(old) != _type(new):
        yield Difference("change type", {**column, "from": _type(old), "to": _type(new)})
    if old.nullable != new.nullable:
        said = ("nullable" if each.nullable else "not null" for each in (old, new))
        yield Difference("set nullable", {**column, **dict(zip(("from", "to"), said, strict=True))})
    yield from _changed("set comment", column, fact(old, COMMENT_KEY), fact(new, COMMENT_KEY))
    yield from _properties(column, column_properties(old), column_properties(new))


def _type(column: pa.Field) -> str:
    return fact(column, TYPE_KEY) or str(column.type)


def _changed(operation: str, of: Mapping[str, str], old: str | None, new: str | None) -> Iterator[Difference]:
    if old != new:
        said = {name: each for name, each in (("from", old), ("to", new)) if each is not None}
        yield Difference(operation, {**of, **said})


def _properties(
    of: Mapping[str, str], old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[Difference]:
    for name in sorted(old.keys() | new.keys()):
        yield from _changed("set property", {**of, "property": name}, old.get(name), new.get(name))


def _constraints(
    whole: Mapping[str, str], before: TableDefinition, after: TableDefinition
) -> Iterator[Difference]:
    old, new = ({each.name: each for each in constraints_of(of)} for of in (before, after))
    for name in sorted(old.keys() - new.keys()):
        told = {**whole, "constraint": name, "from": _constraint(old[name], before)}
        yield Difference("drop constraint", told)
    for name in sorted(new.keys() - old.keys()):
        told = {**whole, "constraint": name, "to": _constraint(new[name], after)}
        yield Difference("add constraint", told)


def _constraint(constraint: Constraint, definition: TableDefinition) -> str:
    if constraint.kind == "check":
        return f"check ({constraint.sql})"
    columns = ", ".join(column_names(definition, constraint.fields))
    there = f" references {constraint.table}" if constraint.table else ""
    return f"{constraint.kind} ({columns}){there}"


def _whole(verb: str, definition: TableDefinition) -> Difference:
    kind = kind_of(definition)
    return Difference(f"{verb} {kind}", {kind: show_name(definition) if kind == "table" else definition.name})


def _in_words(change: Difference) -> str:
    """Write a change as text: ``rename column (column=delay, from=delay, to=late_by, table=flights)``."""
    named = ", ".join(f"{name}={value}" for name, value in change.parameters.items())
    return f"{change.operation} ({named})" if named else change.operation


def headed(
    operation: str | None, parameters: Mapping[str, str], changes: Sequence[Difference], moves_rows: bool
) -> tuple[str, dict[str, str]]:
    """Operation and parameters of a transaction as the history shows them.

    Parameters
    ----------
    operation, parameters
        What its caller said, which stays. A single change that gives the operation its name gives it its
        parameters too; else `CHANGES` lists them all.
    changes
        What it did to definitions.
    moves_rows
        Whether it did something to rows too.
    """
    if operation is None and changes and not moves_rows:
        if len(changes) == 1:
            return changes[0].operation, {**changes[0].parameters, **parameters}
        names = {each.operation for each in changes}
        operation = names.pop() if len(names) == 1 else "change definitions"
    told: dict[str, str] = {}
    if changes:
        told = {CHANGES: "; ".join(map(_in_words, changes))}
    return operation or "write", {**told, **parameters}
