"""The version that a transaction stands on: which one it is, when it moves, and when it must not."""

from __future__ import annotations

from functools import partial

from spark_pages.catalog.alterations import columns_to_fill
from spark_pages.catalog.resolve import same_table
from spark_pages.errors import CommitConflictError
from spark_pages.format.features import check_writable
from spark_pages.log.conflict_error import ConflictTest, attach_conflicting_commit
from spark_pages.log.log import Log
from spark_pages.log.reopen import conflict_if_vacuumed, retry_after_vacuum
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.transaction.staged import StagedChanges


class ReadVersion:
    """Where one transaction stands.

    Parameters
    ----------
    log, work
        Where versions come from, and what is staged on this one.
    base
        The version that it keeps to; without one it stands on the newest that this process knows, and asks
        for the newest that there is once that matters.

    Attributes
    ----------
    base
        The version that it stands on.
    is_pinned
        Whether nothing newer was there when that was asked for.
    is_seen
        Whether the caller has seen something of this version, so that no other one will do.
    ended
        Whether nothing more will be staged.
    """

    def __init__(self, log: Log, work: StagedChanges, base: LogSnapshot | None) -> None:
        self._log = log
        self._work = work
        self.is_pinned = self.is_seen = base is not None
        self.ended = False
        self.base = base or log.known()

    @property
    def version(self) -> int:
        """Its number: what the transaction has read."""
        return self.base.state.version

    def pin_latest(self) -> None:
        """Make sure that nothing newer was there when it is asked for first.

        Where a table that has been written to has got another definition meanwhile, which the rows fit, and
        more may be staged, the transaction stays on the version that it knew: its tables are those of one
        version, and the rebase brings what is lacking.

        Raises
        ------
        CommitConflictError
            If a table that has been written to is another one by now, and what was written does not fit it.
        UnsupportedFormatError
            If the newest version asks its writers to know what this release does not.
        """
        if self.is_pinned:
            return
        newest = self._log.refresh_to_write()
        check_writable(newest.state.features)  # before any page file is written for it
        stays = False
        for table_id, definition in self._work.definitions.items():
            now = same_table(newest, definition) if table_id >= 0 else definition
            stays |= now != definition and not self.ended
            if now is None or columns_to_fill(definition, now) is None:
                changed = CommitConflictError(
                    f"Table {definition.name!r} was changed between version {self.version}, on which this "
                    f"transaction stands, and version {newest.state.version}. Nothing was committed.",
                    hint="Repeat the transaction.",
                )
                raise self.told(changed, _changes(table_id))
        if not stays:
            self.base = newest
        self.is_pinned = True

    def stay(self) -> None:
        """The transaction stands on this version, whatever has come since and is compared at the commit."""
        self.is_pinned = self.is_seen = True

    def move_on(self, is_used: bool) -> int:
        """It stands on what is kept: on the newest version, or on the same one where something rests on it.

        Parameters
        ----------
        is_used
            Whether anything is staged.

        Raises
        ------
        CommitConflictError
            If something rests on it, and retention has passed that version.
        """
        if not self.is_seen and not is_used:
            self.is_pinned = False
        if not self.is_pinned:
            self.pin_latest()
            return self.version
        with conflict_if_vacuumed(self.version):
            self.base = retry_after_vacuum(partial(self._log.reopen, self.version))
        return self.version

    def told(self, error: CommitConflictError, meets: ConflictTest) -> CommitConflictError:
        """The same error, with whom the transaction met since that version."""
        return attach_conflicting_commit(error, self._log, self.version, meets)


def _changes(table_id: int) -> ConflictTest:
    return lambda record: any(intent.table_id == table_id for intent in record.intents)
