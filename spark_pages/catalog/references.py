"""What a definition refers to: the namespace, types and tables that must be live as long as it is. Pure.

Every commit that changes definitions requires what these refer to and did not before, whichever verb made it:
so a concurrent drop conflicts. `dangling_references` is the same rule for a whole catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from spark_pages.catalog.annotations import fact
from spark_pages.catalog.constraints import constraints_of
from spark_pages.catalog.resolve import show_name
from spark_pages.model.table import BUILT_IN, NAMESPACE_NAMES, TYPE_KEY, TYPE_NAMES, TableDefinition

_BUILT_IN_IDS = {*BUILT_IN.values(), NAMESPACE_NAMES, TYPE_NAMES}


@dataclass(frozen=True, slots=True)
class NameReference:
    """One reference of a definition.

    Attributes
    ----------
    kind
        What it refers to.
    name
        Name of the namespace or type, or of the table as the foreign key calls it.
    object_id
        Id of the namespace or table; 0 for a type, which is referred to by its name.
    fields
        Ids of the columns that a foreign key refers to.
    """

    kind: Literal["namespace", "type", "table"]
    name: str
    object_id: int = 0
    fields: tuple[int, ...] = ()

    def matches(self, found: TableDefinition | None) -> bool:
        """Whether the object of this name is the one that is referred to."""
        if found is None or self.kind == "type":
            return found is not None
        return found.table_id == self.object_id and set(self.fields) <= {*found.field_ids.values()}


def references_of(definition: TableDefinition) -> Iterator[NameReference]:
    """Iterate over the objects that a definition refers to, except itself."""
    if definition.namespace_id not in _BUILT_IN_IDS:
        yield NameReference("namespace", definition.namespace, definition.namespace_id)
    for column in definition.schema:
        alias = fact(column, TYPE_KEY)
        if alias is not None:
            yield NameReference("type", alias)
    for constraint in constraints_of(definition):
        if constraint.kind == "foreign key" and constraint.table_id != definition.table_id:
            yield NameReference("table", constraint.table, constraint.table_id, constraint.fields_there)


def new_references(before: TableDefinition | None, after: TableDefinition) -> list[NameReference]:
    """Return the references that a definition gained."""
    known = set() if before is None else {*references_of(before)}
    return [need for need in dict.fromkeys(references_of(after)) if need not in known]


def finder(live: Iterable[TableDefinition]) -> Callable[[NameReference], TableDefinition | None]:
    """Look up references among the live definitions of one version."""
    by_id, types = {}, {}
    for definition in live:
        by_id[int(definition.table_id)] = definition
        if definition.namespace_id == TYPE_NAMES:
            types[definition.name] = definition

    def find(need: NameReference) -> TableDefinition | None:
        found = types.get(need.name) if need.kind == "type" else by_id.get(need.object_id)
        return found if need.matches(found) else None

    return find


def dangling_references(live: list[TableDefinition]) -> Iterator[str]:
    """Describe every reference to something that the catalog does not have (any more)."""
    find = finder(live)
    for definition in live:
        for need in dict.fromkeys(references_of(definition)):
            if find(need) is None:
                what = f"{need.kind} {need.name!r}" if need.name else f"{need.kind} {need.object_id}"
                columns = f" with columns {', '.join(map(str, need.fields))}" if need.fields else ""
                yield f"table {show_name(definition)!r} refers to {what}{columns}, which is not there"
        own = {*definition.field_ids.values()}
        for constraint in constraints_of(definition):
            if not own.issuperset(constraint.fields):
                yield (
                    f"constraint {constraint.name!r} of table {show_name(definition)!r} is about a column "
                    "that the table does not have"
                )
