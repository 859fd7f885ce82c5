"""Namespaces and types made, changed and dropped by a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from spark_pages.arguments import as_str
from spark_pages.catalog.evolution import with_properties
from spark_pages.catalog.namespaces import LOCATION, check_apart, check_properties, new_namespace
from spark_pages.catalog.page_options import PageOptions
from spark_pages.catalog.resolve import show_name
from spark_pages.catalog.types import VALUE, new_type, uses_type
from spark_pages.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from spark_pages.format.page_folders import LOCATION_PROPERTY, PageFolders, check_free
from spark_pages.log.state import TableName
from spark_pages.model.table import BUILT_IN, NAMESPACE_NAMES, TYPE_NAMES, TableDefinition
from spark_pages.storage.store import ObjectStore
from spark_pages.transaction.column_types import stored_columns
from spark_pages.transaction.constraints import compile_check
from spark_pages.transaction.read_version import ReadVersion
from spark_pages.transaction.staged import StagedChanges
from spark_pages.transaction.staged_tables import StagedNames

_SHOWN = 3


class ObjectChanges:
    """The namespaces and types of one transaction.

    Parameters
    ----------
    work, names
        What is staged, and the names that there are.
    standing
        The version that the transaction stands on.
    now_us
        The clock.
    store
        Where locations of namespaces are.
    """

    def __init__(
        self,
        work: StagedChanges,
        names: StagedNames,
        standing: ReadVersion,
        now_us: Callable[[], int],
        store: ObjectStore,
    ) -> None:
        self._work = work
        self._names = names
        self._standing = standing
        self._now_us = now_us
        self._store = store

    def create_namespace(self, name: str, properties: Mapping[str, str]) -> None:
        """See `Transaction.create_namespace`."""
        self._standing.pin_latest()
        name = as_str(name, "the name of a namespace")
        if name in BUILT_IN or self._names.table((NAMESPACE_NAMES, name)) is not None:
            raise AlreadyExistsError(f"There is a namespace {name!r} already.", namespace=name)
        created = new_namespace(self._names.new_id(), name, properties, self._now_us())
        PageOptions.of(created)
        self._give_place(created)
        self._names.create(created)

    def drop_namespace(self, name: str) -> None:
        """See `Transaction.drop_namespace`."""
        definition = self._namespace(name)
        inside = [show_name(each) for each in self._names.live(definition.table_id)]
        if inside:
            shown = ", ".join(map(repr, inside[:_SHOWN])) + (" and more" if len(inside) > _SHOWN else "")
            raise InvalidInputError(
                f"Cannot drop namespace {name!r}: it holds {shown}.",
                hint="Drop its tables, or rename them into another namespace, first.",
            )
        self._drop(definition)

    def set_namespace_properties(self, name: str, properties: Mapping[str, str | None]) -> None:
        """See `Transaction.set_namespace_properties`."""
        definition = self._namespace(name)
        changed = with_properties(definition, properties)
        check_properties(name, changed.properties)
        PageOptions.of(changed)
        if changed.properties.get(LOCATION) != definition.properties.get(LOCATION):
            self._give_place(changed)
        self._names.alter(definition, changed)

    def create_type(self, name: str, base: pa.DataType | str, not_null: bool, check: str | None) -> None:
        """See `Transaction.create_type`."""
        self._standing.pin_latest()
        if self._names.table((TYPE_NAMES, as_str(name, "the name of a type"))) is not None:
            raise AlreadyExistsError(f"There is a type {name!r} already.", type=name)
        if isinstance(base, pa.DataType):
            base = stored_columns(name, [pa.field("VALUE", base)])[0].type
        created = new_type(self._names.new_id(), name, base, self._names, not_null, check, self._now_us())
        if check is not None:
            compile_check(check, pa.schema([(VALUE, created.schema.field(0).type)]))
        self._names.create(created)

    def drop_type(self, name: str) -> None:
        """See `Transaction.drop_type`."""
        self._standing.pin_latest()
        definition = self._find((TYPE_NAMES, as_str(name, "the name of a type")), "type")
        users = [each for each in self._names.live() if uses_type(each, name)]
        if users:
            shown = ", ".join(repr(show_name(each)) for each in users[:_SHOWN])
            raise InvalidInputError(
                f"Cannot drop type {name!r}: {shown}{' and more' if len(users) > _SHOWN else ''} "
                f"{'has' if len(users) == 1 else 'have'} it.",
                hint="Drop their columns of this type first.",
            )
        self._drop(definition)

    def _drop(self, definition: TableDefinition) -> None:
        if definition.table_id < 0:
            del self._work.created[definition.namespace_id, definition.name]
        else:
            self._work.ddl.drop(definition)

    def _give_place(self, namespace: TableDefinition) -> None:
        """The location of the namespace is nobody else's, and the store remembers it."""
        location = namespace.properties.get(LOCATION)
        if location is None:
            return
        check_apart(namespace, self._names.live(NAMESPACE_NAMES))
        if location not in PageFolders.of(self._standing.base.state.properties).folders:
            check_free(self._store, location)
        self._work.properties[LOCATION_PROPERTY + location] = namespace.name

    def _namespace(self, name: str) -> TableDefinition:
        self._standing.pin_latest()
        if as_str(name, "the name of a namespace") in BUILT_IN:
            raise InvalidInputError(f"Cannot change namespace {name!r}: every store has it as it is.")
        return self._find((NAMESPACE_NAMES, name), "namespace")

    def _find(self, name: TableName, what: str) -> TableDefinition:
        found = self._names.table(name)
        if found is None:
            raise NotFoundError(f"There is no {what} {name[1]!r}.")
        return found
