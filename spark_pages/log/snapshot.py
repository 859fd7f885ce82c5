"""The log at one version: tables by name, chains by key. Immutable; loads on demand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_pages.arrow.columns import numbers_of
from spark_pages.format.features import DELETED_ROWS, FORMAT_VERSION, check_readable
from spark_pages.log.checkpoint.reader import Checkpoint
from spark_pages.log.state import LogState, TableName
from spark_pages.model.chain import ColumnChain
from spark_pages.model.chain_tree import ChainEdit, ChainKey, PartialRun, Piece
from spark_pages.model.ids import LIVENESS
from spark_pages.model.names import fold_name
from spark_pages.model.page import PageKind
from spark_pages.model.run import PageRun
from spark_pages.model.table import BUILT_IN, NAMESPACE_NAMES, TableDefinition
from spark_pages.model.tail import ChainTail


class LogSnapshot:
    """A checkpoint plus the commits after it (seed 004).

    Parameters
    ----------
    state
        What the commits say.
    checkpoint
        What they stand on, or None when everything was replayed from commit 0.
    older
        An earlier snapshot of the same log, whose resolved chains are taken over.

    Raises
    ------
    UnsupportedFormatError
        If the version needs a newer release to be read.
    """

    def __init__(
        self, state: LogState, checkpoint: Checkpoint | None, older: LogSnapshot | None = None
    ) -> None:
        # Whoever decodes an object looks too, and names it; here nobody gets past.
        check_readable(FORMAT_VERSION, state.features.reader, f"Version {state.version}")
        self.state = state
        self.checkpoint = checkpoint
        self._chains: dict[ChainKey, tuple[ColumnChain, tuple[ChainEdit, ...]]] = {}
        self._tails: dict[ChainKey, tuple[ChainTail, tuple[ChainEdit, ...]]] = {}
        if older is not None and older.state.base == state.base:
            self._chains = dict(older._chains)
            self._tails = dict(older._tails)

    def chain(self, key: ChainKey) -> ColumnChain:
        """Return the chain of a column. A chain without writes has no pages.

        Notes
        -----
        What an older snapshot has loaded of the chain is kept; only edits made since are applied.
        """
        edits = self.state.edits.get(key, ())
        chain, applied = self._chains.get(key, (None, ()))
        if chain is None:
            chain = ColumnChain(self.base_chain(key)).apply(edits)
        elif applied is not edits:
            chain = chain.apply(edits[len(applied) :])
        else:
            return chain
        self._chains[key] = chain, edits
        return chain

    def base_chain(self, key: ChainKey) -> Sequence[Piece | PartialRun]:
        """Return the pieces that the checkpoint holds of a chain, before any edit."""
        return self.checkpoint.open_chain(key) if self.checkpoint else []

    def num_rows(self, key: ChainKey) -> int:
        """Rows of a chain, without applying its edits: what an append needs to know."""
        return self.tail(key).rows

    def tail(self, key: ChainKey) -> ChainTail:
        """Return the end of a chain, as later commits left it.

        Notes
        -----
        Goes through the edits since an older snapshot was asked, and lives on over checkpoints. Reads nothing
        but, once, how many rows the chain has in the checkpoint.
        """
        edits = self.state.edits.get(key, ())
        known, applied = self._tails.get(key, (None, ()))
        if known is None:
            chain = ColumnChain(self.base_chain(key))
            known = ChainTail(chain.num_rows, before=chain.num_pages)
        if applied is not edits:
            known = known.after(edits[len(applied) :])
        self._tails[key] = known, edits
        return known

    def with_checkpoint(self, state: LogState, checkpoint: Checkpoint) -> LogSnapshot:
        """Rebase the same version on a newer checkpoint, and keep fully loaded chains.

        Parameters
        ----------
        state
            The state of the same version, on the checkpoint.

        Notes
        -----
        Chains with promises of the old checkpoint, or with pages that the new one has given a place to, are
        promised anew: else a long-lived process would hold on to all old checkpoints and inline pages.
        """
        moved = LogSnapshot(state, checkpoint)
        for key, (chain, applied) in list(self._chains.items()):
            if applied is self.state.edits.get(key, ()) and all(map(_is_plain, chain.pieces)):
                moved._chains[key] = chain, state.edits.get(key, ())
        moved._tails = {
            key: (self.tail(key).on_checkpoint(), state.edits.get(key, ()))
            for key in list(self._tails)  # others append meanwhile
        }
        return moved

    def table(self, name: TableName) -> TableDefinition | None:
        """Return the live table of this namespace and name, or None."""
        if name in self.state.names:
            table_id = self.state.names[name]
            return None if table_id is None else self.state.tables[table_id]
        return self.checkpoint.table(name) if self.checkpoint else None

    def alike(self, name: TableName) -> list[str]:
        """Names of what is live in the same namespace that differ from this one by case at most.

        Notes
        -----
        Reads the names of the whole catalog, once for each checkpoint.
        """
        number, folded = name[0], fold_name(name[1])
        there = self.checkpoint.alike(number, folded) if self.checkpoint else ()
        found = [each for each in there if self.state.names.get((number, each), 0) is not None]
        for (namespace_id, each), table_id in self.state.names.items():
            if namespace_id == number and table_id is not None and fold_name(each) == folded:
                found.append(each)
        return sorted(set(found))

    def tables(self, namespace_id: int | None = None) -> list[TableDefinition]:
        """All that is live, or what has its name in a namespace, sorted by namespace and name.

        Notes
        -----
        Reads the whole catalog, or of it what may hold names of the namespace. Namespaces and types are told
        by definitions too, see `TableDefinition.is_table`.
        """
        live: dict[TableName, TableDefinition] = {}
        if self.checkpoint:
            live = {(d.namespace_id, d.name): d for d in self.checkpoint.tables(namespace_id)}
        for name, table_id in self.state.names.items():
            if namespace_id is not None and name[0] != namespace_id:
                continue
            definition = None if table_id is None else self.state.tables[table_id]
            live.pop(name, None)
            if definition is not None:
                live[name] = definition
        return [live[name] for name in sorted(live)]

    def table_names(self) -> list[tuple[str, str]]:
        """Namespace and name of each live table but the store's own, sorted by id of the namespace and name.

        Notes
        -----
        Reads the whole catalog, and decodes nothing of it but names.
        """
        names = self.checkpoint.names() if self.checkpoint else set()
        gone = {name for name, table_id in self.state.names.items() if table_id is None}
        names = (names | self.state.names.keys()) - gone
        namespaces = {number: name for name, number in BUILT_IN.items()} | self.namespace_names()
        return [  # a namespace that was lost costs the names of its own tables, and those of no other
            (namespaces.get(number, f"#{number}"), name) for number, name in sorted(names) if number >= 0
        ]

    def namespace_names(self) -> dict[int, str]:
        """Names of the namespaces that users made, by id. Reads what the catalog has of them."""
        return {each.table_id: each.name for each in self.tables(NAMESPACE_NAMES)}

    def ids_of_name(self, name: str) -> list[int]:
        """Ids of the tables of a name. Reads a catalog file for each namespace at most."""
        namespaces = [*BUILT_IN.values(), *self.namespace_names()]
        found = (self.table((number, name)) for number in namespaces)
        return [each.table_id for each in found if each is not None]

    def chain_keys(self) -> Iterable[ChainKey]:
        """Return the chains of all live tables, sorted."""
        return sorted(key for definition in self.tables() for key in self.chains_of(definition))

    def chains_of(self, definition: TableDefinition) -> Sequence[ChainKey]:
        """Keys of the chains of a table, the liveness chain last, where the store has any."""
        keys = definition.chains
        return keys if self.has_dead_rows else [key for key in keys if key[1] != LIVENESS]

    def dead_rows(self, table_id: int) -> int:
        """Count the dead rows of a table. Loads the descriptors and statistics of its liveness chain."""
        if not self.has_dead_rows:
            return 0
        marks = self.chain((table_id, LIVENESS)).all_pages()
        return int(numbers_of(marks.stats.column("null_count")).sum())

    @property
    def has_dead_rows(self) -> bool:
        """Whether some table may have dead rows."""
        return DELETED_ROWS in self.state.features.reader


def _is_plain(piece: Piece) -> bool:
    """Whether the pages are loaded and none of them is inline."""
    return isinstance(piece, PageRun) and not (piece.numbers("kind") == PageKind.INLINE).any()
