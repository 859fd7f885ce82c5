"""How long every chain is after each commit, and whether the columns of each table are equally long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_pages.format.names import commit_key
from spark_pages.log.checkpoint.reader import Checkpoint
from spark_pages.maintenance.verify.faults import RESTORE, FaultKind, Findings
from spark_pages.maintenance.verify.object_names import TableNames
from spark_pages.model.actions import Commit, IntentKind
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import LIVENESS
from spark_pages.model.table import TableDefinition


class ChainLengths:
    """Running totals of rows, by chain.

    Attributes
    ----------
    rows
        Of each chain; None from a commit that is lost up to the next checkpoint.
    """

    def __init__(self, findings: Findings, names: TableNames) -> None:
        self.rows: dict[ChainKey, int] | None = {}
        self._findings = findings
        self._names = names

    def count(self, commit: Commit) -> None:
        """Go on to the lengths after a commit, and compare those of the tables that it touched."""
        rows = self.rows
        if rows is None:
            return
        touched: set[int] = set()
        for record in commit.records:
            for intent in record.intents:
                touched.add(intent.table_id)
                if intent.kind in (IntentKind.TRUNCATE, IntentKind.PURGE) and intent.definition is not None:
                    rows.update(dict.fromkeys(intent.definition.chains, 0))
            for splice in record.splices:
                chain = (splice.table_id, splice.field_id)
                rows[chain] = rows.get(chain, 0) + splice.added_entries - splice.removed_entries
                touched.add(splice.table_id)
        tables = (self._names.table(table_id) for table_id in sorted(touched))
        self._compare(filter(None, tables), commit_key(commit.version), "leaves")

    def restart_from(self, rows: dict[ChainKey, int], shown: Checkpoint) -> None:
        """The lengths are those of a checkpoint; all its tables are compared if commits are gone."""
        counted, self.rows = self.rows is not None, rows
        if not counted:
            self._compare(shown.tables(), shown.ref.location.key, "shows")

    def check_against(self, rows: Mapping[ChainKey, int]) -> list[ChainKey]:
        """Chains that should be of another length, as far as that is known, sorted."""
        if self.rows is None:
            return []
        mine = self.rows
        return sorted(key for key in {*rows, *mine} if rows.get(key, 0) != mine.get(key, 0))

    def _compare(self, tables: Iterable[TableDefinition], key: str, verb: str) -> None:
        rows = self.rows or {}
        for table in tables:
            if not table.aligned:
                continue
            columns = table.field_ids.items()
            lengths = {name: rows.get((table.table_id, number), 0) for name, number in columns}
            if len(set(lengths.values())) > 1:
                what = f"{key} {verb} the columns of {table.name!r} of different length: {lengths}."
                self._findings.add(FaultKind.CONTRADICTION, key, what, RESTORE)
            marked, length = rows.get((table.table_id, LIVENESS), 0), max(lengths.values(), default=0)
            if marked > length:
                what = (
                    f"{key} {verb} the liveness chain of {table.name!r} with {marked} rows, but the table "
                    f"has {length}."
                )
                self._findings.add(FaultKind.CONTRADICTION, key, what, RESTORE)
