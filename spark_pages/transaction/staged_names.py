"""Names as a transaction sees them: what it has staged first, then the version that it stands on."""

from __future__ import annotations

from spark_pages.catalog.needs import Need, new_needs
from spark_pages.catalog.resolve import find_table, namespace_id, parse_name, show_name, split_name
from spark_pages.errors import (
    InvalidInputError,
    NamespaceNotFoundError,
    TableExistsError,
    TableNotFoundError,
)
from spark_pages.log.state import TableName
from spark_pages.model.ids import TEMPORARY_TABLES, TableId, is_temporary
from spark_pages.model.table import (
    NAMESPACE_NAMES,
    SYSTEM_NAMESPACE,
    TEMPORARY_NAMESPACE,
    TYPE_NAMES,
    TableDefinition,
)
from spark_pages.transaction.read_version import Standing
from spark_pages.transaction.staged import Workspace

PROVISIONAL = TableId(-1000)
"""Ids of what a transaction makes lie below, until the commit gives them theirs."""


class StagedNames:
    """The names of one transaction.

    Parameters
    ----------
    work
        What is staged.
    standing
        The version that the transaction stands on.
    """

    def __init__(self, work: Workspace, standing: Standing) -> None:
        self._work = work
        self._standing = standing

    def table(self, name: TableName) -> TableDefinition | None:
        """What has this name as the transaction sees it."""
        found = self._work.created.get(name) or self._work.ddl.find(name)
        if found is None:
            found = self._standing.base.table(name)
            if found is not None and self._work.ddl.hides(found):
                return None
        return found

    def known(self, text: str) -> TableDefinition | None:
        """The table of this name; where no namespace is said, a temporary one comes first."""
        namespace, name = split_name(text)
        temporary = None if namespace else self.table((TEMPORARY_NAMESPACE, name))
        return temporary or self.table((namespace_id(namespace or "default", self), name))

    def find(self, text: str) -> TableDefinition:
        """The table that has this name.

        Raises
        ------
        TableNotFoundError
        """
        try:
            found = self.known(text)
        except NamespaceNotFoundError:
            found = None
        if found is None:
            self._standing.on_newest()
            try:
                found = self.known(text)
            except NamespaceNotFoundError as missing:
                raise TableNotFoundError(missing.message, hint=missing.hint, table=text) from missing
        if found is not None:
            return found
        found = find_table(self._standing.base, text)  # which tells what is wrong
        raise TableNotFoundError(
            f"There is no table {text!r} any more: this transaction has dropped or renamed it.", table=text
        )

    def free(self, text: str) -> TableName:
        """The name, which no table has.

        Raises
        ------
        InvalidInputError, NamespaceNotFoundError, TableExistsError
            If it lies in the store's own namespace, in none that there is, or is taken.
        """
        name = parse_name(text, self)
        if name[0] == SYSTEM_NAMESPACE:
            raise InvalidInputError(
                f"Cannot name a table {text!r}: the namespace 'system' is the store's own."
            )
        if self.table(name) is not None:
            raise TableExistsError(
                f"There is a table {text!r} at version {self._standing.version} already.", table=text
            )
        return name

    def namespace(self, definition: TableDefinition) -> TableDefinition | None:
        """What tells of the namespace of a table, where users made that."""
        found = self.table((NAMESPACE_NAMES, definition.namespace))
        return found if found is not None and found.table_id == definition.namespace_id else None

    def live(self, within: int | None = None) -> list[TableDefinition]:
        """All that there is, or what has its name in a namespace. Reads that part of the catalog."""
        there = [each for each in self._standing.base.tables(within) if not self._work.ddl.hides(each)]
        staged = [
            *self._work.created.values(),
            *self._work.ddl.altered.values(),
            *self._work.ddl.restored.values(),
        ]
        return there + [each for each in staged if within is None or each.namespace_id == within]

    def create(self, definition: TableDefinition) -> None:
        """Stage something new, and require what it refers to."""
        self._require(None, definition)
        self._work.create(definition)

    def alter(self, old: TableDefinition, new: TableDefinition) -> None:
        """Stage another definition, and require what it refers to and the old one does not."""
        self._require(old, new)
        self._work.alter(old, new)

    def undrop(self, definition: TableDefinition) -> None:
        """Stage a dropped table as it was, and require what it refers to."""
        self._require(None, definition)
        self._work.ddl.restored[definition.table_id] = definition

    def _require(self, before: TableDefinition | None, after: TableDefinition) -> None:
        """Make the commit conflict with the removal of what a definition refers to.

        Raises
        ------
        InvalidInputError
            If it is not there.
        """
        for need in new_needs(before, after):
            found = self._needed(need)
            if not need.is_met_by(found):
                raise InvalidInputError(
                    f"Cannot define {show_name(after)!r}: it refers to {need.kind} {need.name!r}, which is "
                    "not there.",
                    hint="Create it first, or bring it back.",
                )
            assert found is not None
            self._work.ddl.require(found)

    def _needed(self, need: Need) -> TableDefinition | None:
        if need.kind == "namespace":
            return self.table((NAMESPACE_NAMES, need.name))
        if need.kind == "type":
            return self.table((TYPE_NAMES, need.name))
        namespace, name = split_name(need.name)  # not `known`, which prefers temporary tables
        return self.table((namespace_id(namespace or "default", self), name))

    def new_id(self) -> TableId:
        """An id for what is new, until the commit gives it its own."""
        taken = [each.table_id for each in self._work.created.values() if not is_temporary(each.table_id)]
        return TableId(min([PROVISIONAL, *taken]) - 1)

    def new_temporary_id(self) -> TableId:
        """The id of a new temporary table."""
        taken = [each.table_id for each in self._work.created.values() if is_temporary(each.table_id)]
        return TableId(max([TEMPORARY_TABLES, *taken]) + 1)

    def refuse_system(self, definition: TableDefinition) -> None:
        """Refuse to change what is the store's own.

        Raises
        ------
        InvalidInputError
        """
        if definition.namespace_id == SYSTEM_NAMESPACE:
            raise InvalidInputError(f"Cannot change {show_name(definition)!r}: it is the store's own.")
