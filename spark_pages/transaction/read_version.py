"""The read version of a transaction: which one it is, when it moves, and when it must not."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from spark_pages.catalog.evolution import columns_to_fill
from spark_pages.catalog.resolve import same_table
from spark_pages.errors import CommitConflictError
from spark_pages.format.features import check_writable
from spark_pages.log.conflict_error import ConflictTest, attach_conflicting_commit
from spark_pages.log.log import Log
from spark_pages.log.reopen import conflict_if_vacuumed, retry_after_vacuum
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.model.ids import TableId
from spark_pages.model.table import TableDefinition


class ReadVersion:
    """The version that one transaction reads.

    Parameters
    ----------
    log
        Source of versions.
    base
        The version to keep to. Without one, the newest version that this process knows, until a call depends
        on the newest version that exists.

    Attributes
    ----------
    base
        The snapshot of the version.
    is_pinned
        Whether the version was the newest one when storage was asked.
    is_seen
        Whether the caller has seen something of this version, so that no other one will do.
    """

    def __init__(self, log: Log, base: LogSnapshot | None) -> None:
        self._log = log
        self.is_pinned = self.is_seen = base is not None
        self.base = base or log.known()

    @property
    def version(self) -> int:
        """Number of the version."""
        return self.base.state.version

    def pin_latest(self, written: Mapping[TableId, TableDefinition], is_final: bool) -> None:
        """Move to the newest version, the first time.

        Where a table that has been written to has got another definition meanwhile, which the rows fit, and
        more may be staged, the transaction stays on the version that it knew: its tables are those of one
        version, and the rebase adds what is missing.

        Parameters
        ----------
        written
            Tables that the transaction writes to, by id.
        is_final
            Whether nothing more will be staged.

        Raises
        ------
        CommitConflictError
            If a table that has been written to was changed, and the staged rows do not fit it.
        UnsupportedFormatError
            If the newest version requires a feature of writers that this release does not know.
        """
        if self.is_pinned:
            return
        newest = self._log.refresh_to_write()
        check_writable(newest.state.features)  # before any page file is written for it
        stays = False
        for table_id, definition in written.items():
            now = same_table(newest, definition) if table_id >= 0 else definition
            stays |= now != definition and not is_final
            if now is None or columns_to_fill(definition, now) is None:
                changed = CommitConflictError(
                    f"Cannot commit to table {definition.name!r}: it was changed between version "
                    f"{self.version}, which this transaction reads, and version "
                    f"{newest.state.version}. Nothing was committed.",
                    hint="Repeat it from the start: `store.transaction()` reads the newest version.",
                )
                raise attach_conflicting_commit(changed, self._log, self.version, _changes(table_id))
        if not stays:
            self.base = newest
        self.is_pinned = True

    def pin(self) -> None:
        """Keep this version, whatever has been committed since and is compared at the commit."""
        self.is_pinned = self.is_seen = True

    def refresh(self, written: Mapping[TableId, TableDefinition], is_used: bool) -> int:
        """Move to the newest version, or reopen the same one where something depends on it.

        Parameters
        ----------
        written
            Tables that the transaction writes to, by id.
        is_used
            Whether anything is staged.

        Raises
        ------
        CommitConflictError
            If something depends on it, and retention has passed that version.
        """
        if not self.is_seen and not is_used:
            self.is_pinned = False
        if not self.is_pinned:
            self.pin_latest(written, is_final=False)
            return self.version
        with conflict_if_vacuumed(self.version):
            self.base = retry_after_vacuum(partial(self._log.reopen, self.version))
        return self.version


def _changes(table_id: int) -> ConflictTest:
    return lambda record: any(intent.table_id == table_id for intent in record.intents)
