"""Replay: the state of the log after more commits. Pure; the only way in which state moves.

A splice becomes a `ChainEdit` on its chain; no chain is resolved here, so the cost is that of the
commits and never that of the pages in the store.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from spark_pages.arrow.columns import number_column
from spark_pages.errors import DamageError
from spark_pages.format.features import with_needs
from spark_pages.log.fairness import with_commit
from spark_pages.log.retention import check_kept, further, newer, usable
from spark_pages.log.state import LogState
from spark_pages.model.actions import (
    DELETION,
    CatalogIntent,
    CheckpointRef,
    Claim,
    Commit,
    IntentKind,
    ManifestRef,
    Splice,
    TransactionRecord,
)
from spark_pages.model.chain_tree import ChainEdit, ChainKey, Piece, UnloadedRun
from spark_pages.model.ids import LIVENESS, page_id
from spark_pages.model.immutable import FrozenDict
from spark_pages.model.page_schema import PAGE_SCHEMA, empty_batch
from spark_pages.model.run import PageRun
from spark_pages.runtime import Mapper

_MOST_TOLD = 16
"""Deletions by vacuums that are remembered as told: an older one that turns up again is told twice."""

LoadManifest = Callable[[ManifestRef], tuple[pa.RecordBatch, pa.RecordBatch]]
"""Gives the pages (ids are ordinals from 0) and statistics of a page manifest."""


def replay(state: LogState, commits: Iterable[Commit], load_manifest: LoadManifest) -> LogState:
    """Apply commits to a state. They must follow it without a gap.

    Raises
    ------
    DamageError
        If a commit does not continue the digest chain, or repeats a transaction.
    """
    fold: Fold | None = None
    for commit in commits:
        fold = fold or Fold(state, load_manifest)
        fold.commit(commit)
    return fold.state() if fold else state


def rebase_on_checkpoint(state: LogState, checkpoint: CheckpointRef) -> LogState:
    """Rebase a state on a newer checkpoint of its log, and drop the edits that the checkpoint includes.

    Parameters
    ----------
    checkpoint
        Newer than the state's base, and not newer than the state.

    Notes
    -----
    Grows with the chains, tables and transactions since the old base. Reads nothing.
    """
    since = int(checkpoint.version)
    edits = {
        key: kept
        for key, made in state.edits.items()
        if (kept := made[bisect_right(made, since, key=lambda edit: edit.version) :])
    }
    changed = {what: version for what, version in state.changed.items() if version > since}
    tables = {table_id: each for table_id, each in state.tables.items() if table_id in changed}
    names = {  # a purge changes a table that is gone, whose name another may have, which has not changed
        name: each
        for name, each in state.names.items()
        if name in changed and (each is None or each in tables)
    }
    return replace(
        state,
        base=checkpoint,
        newest_checkpoint=newer(checkpoint, state.newest_checkpoint),
        edits=edits,
        tables=tables,
        names=names,
        tokens={token: version for token, version in state.tokens.items() if version > since},
        changed=changed,
        tail_bytes=_bytes_of(edit.added for made in edits.values() for edit in made),
        added_bytes=_stored_bytes_of(edit.added for made in edits.values() for edit in made),
        tail_columns=sum(len(each.schema) for each in tables.values() if each is not None),
    )


class Fold:
    """A state that moves: copies the maps of a state once, then changes the copies commit by commit."""

    def __init__(self, state: LogState, load_manifest: LoadManifest) -> None:
        self._base = state.base
        self._edits_before = state.edits
        self._load_manifest = load_manifest
        self._version, self._timestamp_us = state.version, state.timestamp_us
        self._token, self._digest = state.token, state.digest
        self._features, self._store_id = state.features, state.store_id
        self._newest_checkpoint, self._named_checkpoint = state.newest_checkpoint, state.named_checkpoint
        self._compacted, self._turns, self._upkeep = state.compacted, state.turns, state.upkeep
        self._deletions_told = state.deletions_told
        self._sealed_retention = state.retention
        self._edits: dict[ChainKey, list[ChainEdit]] = {}
        self._tables = dict(state.tables)
        self._names = dict(state.names)
        self._apps = dict(state.apps)
        self._properties = dict(state.properties)
        self._tags = dict(state.tags)
        self._leases = dict(state.leases)
        self._claims = list(state.claims)
        self._tokens = dict(state.tokens)
        self._changed = dict(state.changed)
        self._tail_bytes, self._added_bytes = state.tail_bytes, state.added_bytes
        self._tail_columns = state.tail_columns
        self._catalog_version = state.catalog_version
        self._next_table_id = state.next_table_id
        self._retention = state.retention

    def state(self) -> LogState:
        """Where it stands: after the last commit, and the records since."""
        return LogState(
            version=self._version,
            timestamp_us=self._timestamp_us,
            token=self._token,
            digest=self._digest,
            features=self._features,
            store_id=self._store_id,
            base=self._base,
            newest_checkpoint=self._newest_checkpoint,
            named_checkpoint=self._named_checkpoint,
            edits=FrozenDict.merged(
                self._edits_before, {key: tuple(edits) for key, edits in self._edits.items()}
            ),
            tables=FrozenDict(self._tables),
            names=FrozenDict(self._names),
            next_table_id=self._next_table_id,
            apps=FrozenDict(self._apps),
            properties=FrozenDict(self._properties),
            tags=FrozenDict(self._tags),
            leases=FrozenDict(self._leases),
            claims=tuple(self._claims),
            retention=self._retention,
            tokens=FrozenDict(self._tokens),
            changed=FrozenDict(self._changed),
            tail_bytes=self._tail_bytes,
            added_bytes=self._added_bytes,
            tail_columns=self._tail_columns,
            catalog_version=self._catalog_version,
            compacted=self._compacted,
            turns=self._turns,
            upkeep=self._upkeep,
            deletions_told=self._deletions_told,
        )

    def commit(self, commit: Commit) -> None:
        """Go on to the state after the commit."""
        if commit.version != self._version + 1 or commit.parent_digest != self._digest:
            raise DamageError(
                f"Cannot apply commit {commit.version}: expected version {self._version + 1} on a "
                f"parent with digest {self._digest or 'none'}, found parent "
                f"{commit.parent_digest or 'none'}, so it does not continue the log."
            )
        if commit.timestamp_us <= self._timestamp_us:
            raise DamageError(
                f"Cannot apply commit {commit.version}: it is of time {commit.timestamp_us} µs, not "
                f"later than its parent's {self._timestamp_us} µs."
            )
        for record in commit.records:
            self.record(record, commit.version)
        self.finish_commit(commit)

    def finish_commit(self, commit: Commit) -> None:
        """Go on to the state after the commit, whose transactions have been applied."""
        self._token_is_new(commit.token, commit.version, "commit")
        if self._retention is not None and self._retention != self._sealed_retention:
            check_kept(self._retention, commit, self._tags, self._leases)
        named = newer(self._named_checkpoint, commit.checkpoint)
        for record in commit.records:
            named = newer(named, record.retention.checkpoint if record.retention else None)
        newest = newer(self._newest_checkpoint, named)
        if commit.records:
            first = commit.records[0]
            self._turns = with_commit(self._turns, commit.version, first.writer, first.read_version)
        if self._retention is not None and not usable(newest, named, self._retention):
            newest = named
        self._version, self._timestamp_us = commit.version, commit.timestamp_us
        self._token, self._digest = commit.token, commit.digest
        self._features = commit.features
        self._store_id = self._store_id or commit.id_of_store
        self._newest_checkpoint, self._named_checkpoint = newest, named
        self._compacted = max(self._compacted, min(commit.compacted, commit.version))
        if self._upkeep:
            self._upkeep = tuple(note for note in self._upkeep if note not in commit.upkeep)
        if commit.upkeep:
            deletions = (note for note in commit.upkeep if note.operation == DELETION)
            self._deletions_told = (*self._deletions_told, *deletions)[-_MOST_TOLD:]
        self._sealed_retention = self._retention

    def record(self, record: TransactionRecord, version: int) -> None:
        """Apply one transaction of commit `version`."""
        self._token_is_new(record.token, version, "transaction")
        self._retention = further(self._retention, record.retention)
        for intent in record.intents:
            self._next_table_id = max(self._next_table_id, intent.table_id + 1)
            self._intent(intent, version)
            self._tail_columns += 0 if intent.definition is None else len(intent.definition.schema)
            self._catalog_version = version
        if any(splice.field_id == LIVENESS for splice in record.splices):
            self._features = with_needs(self._features, [record])
        own = _OwnRuns(record, version)
        self._tail_bytes += record.own.nbytes + _bytes_listed(record.manifests)
        self._added_bytes += record.own.stored_bytes(0, record.own.num_pages)
        self._added_bytes += sum([manifest.page_bytes for manifest in record.manifests])
        for splice in record.splices:
            added = _added(record, splice, own, version, self._load_manifest)
            edit = ChainEdit(
                splice.first_row,
                splice.removed,
                splice.removed_entries,
                added,
                version=version,
                exact=splice.field_id == LIVENESS,
            )
            self._edit((splice.table_id, splice.field_id), edit)
        if record.app_id is not None and record.app_version is not None:
            self._apps[record.app_id] = (record.app_version, version)
        for name, value in record.properties.items():
            self._properties.pop(name, None)
            if value is not None:
                self._properties[name] = value
        for tag in record.tags:
            self._tags.pop(tag.name, None)
            if tag.version is not None:
                self._tags[tag.name] = tag.version
        for lease in record.leases:
            self._leases[lease.lease_id] = lease
            if not lease.expires_at_us:
                del self._leases[lease.lease_id]
        for claim in record.claims:
            self._claim(claim)

    def _token_is_new(self, token: str, version: int, whose: str) -> None:
        """Remember it, unless the commit before has it, or a commit or transaction since the base."""
        known = self._tokens.get(token)
        if token == self._token and self._version >= 0:  # of the commit before, perhaps that of a checkpoint
            known = self._version
        if known is not None:
            raise DamageError(
                f"Cannot apply commit {version}: it repeats {whose} token {token} of commit {known}, "
                "so the log was written by a faulty writer."
            )
        self._tokens[token] = version

    def _edit(self, key: ChainKey, edit: ChainEdit) -> None:
        edits = self._edits.get(key)
        if edits is None:
            edits = self._edits[key] = list(self._edits_before.get(key, ()))
        edits.append(edit)

    def _intent(self, intent: CatalogIntent, version: int) -> None:
        name = (intent.namespace_id, intent.name)
        self._changed |= dict.fromkeys((name, intent.table_id), version)
        if intent.kind in (IntentKind.CREATE, IntentKind.ALTER, IntentKind.UNDROP):
            if intent.old_name is not None and self._names.get(intent.old_name, intent.table_id) == (
                intent.table_id
            ):  # else the name went to another table in the meantime: two tables change names
                self._names[intent.old_name] = None
                self._changed[intent.old_name] = version
            self._tables[intent.table_id] = intent.definition
            self._names[name] = intent.table_id
        elif intent.kind is IntentKind.DROP:
            self._tables[intent.table_id] = None
            self._names[name] = None
        elif intent.kind in (IntentKind.TRUNCATE, IntentKind.PURGE):
            if intent.definition is None:
                raise DamageError(
                    f"Cannot apply a commit: its intent to {intent.kind.value} {intent.name!r} lacks "
                    "the definition."
                )
            for key in intent.definition.chains:
                nothing = PageRun(empty_batch(PAGE_SCHEMA))
                self._edit(key, ChainEdit(0, (), 0, nothing, True, version))

    def _claim(self, claim: Claim) -> None:
        """One that is set replaces what was on its rows; one that is released takes away only itself."""

        def place(of: Claim) -> tuple[object, ...]:
            rows = (of.table_id, of.field_id, of.first_row, of.end_row)
            return rows if claim.expires_at_us else (*rows, of.owner, of.fence)

        self._claims = [other for other in self._claims if place(other) != place(claim)]
        if claim.expires_at_us:
            self._claims.append(claim)


def _bytes_of(added: Iterable[Piece]) -> int:
    """Return the size of added pages: in memory if loaded, else as stated by their manifest."""
    loaded, manifests = 0, set()
    for piece in added:
        if isinstance(piece, PageRun):
            loaded += piece.nbytes
        elif isinstance(piece.expand, ManifestPages):
            manifests.add(piece.expand.manifest)
    return loaded + _bytes_listed(manifests)


def _stored_bytes_of(added: Iterable[Piece]) -> int:
    """Bytes of the pages that were added, as they are stored."""
    loaded, manifests = 0, set()
    for piece in added:
        if isinstance(piece, PageRun):
            loaded += int(piece.numbers("actual_len").sum())
        elif isinstance(piece.expand, ManifestPages):
            manifests.add(piece.expand.manifest)
    return loaded + sum([manifest.page_bytes for manifest in manifests])


def _bytes_listed(manifests: Iterable[ManifestRef]) -> int:
    return sum([manifest.location.length for manifest in manifests])


def form_ids(pages: pa.RecordBatch, version: int, base_ordinal: int) -> pa.RecordBatch:
    """Replace the ordinals of pages with page ids."""
    if not pages.num_rows:
        return pages
    first = page_id(version, base_ordinal)
    page_id(version, base_ordinal + pages.num_rows - 1)
    ids = np.arange(first, first + pages.num_rows, dtype=np.int64)
    return pages.set_column(0, PAGE_SCHEMA.field(0), number_column(ids, pa.int64()))


class _OwnRuns:
    """The pages that a record lists itself, with their ids, by run."""

    __slots__ = ("_batch", "_few", "_first", "_own", "num_pages")

    def __init__(self, record: TransactionRecord, version: int) -> None:
        own = self._own = record.own
        self.num_pages = own.num_pages
        self._few = own.few
        self._batch: pa.RecordBatch | None = None
        self._first = 0
        if self._few is None:
            self._batch = form_ids(own.batches[0], version, record.base_ordinal)
        elif self._few:
            self._first = page_id(version, record.base_ordinal)
            page_id(version, record.base_ordinal + self.num_pages - 1)

    def run(self, start: int, stop: int) -> PageRun:
        """Pages [start, stop)."""
        if self._few is not None:
            return PageRun.of_few(range(self._first + start, self._first + stop), self._few[start:stop])
        assert self._batch is not None
        stats = self._own.batches[1]
        return PageRun(self._batch.slice(start, stop - start), lambda: stats.slice(start, stop - start))


def _added(
    record: TransactionRecord,
    splice: Splice,
    own: _OwnRuns,
    version: int,
    load_manifest: LoadManifest,
) -> Piece:
    start, pages = splice.start, splice.stop - splice.start
    listed_pages = own.num_pages
    if splice.source > 0 and splice.source <= len(record.manifests):
        listed_pages = record.manifests[splice.source - 1].num_pages
    if not 0 <= splice.source <= len(record.manifests) or not 0 <= start <= start + pages <= listed_pages:
        raise DamageError(
            f"Cannot apply commit {version}: a splice takes pages [{start}, {splice.stop}) of source "
            f"{splice.source}, which does not have them."
        )
    if splice.source == 0:
        run = own.run(start, splice.stop)
        if run.num_rows != splice.added_entries or run.num_pages != pages:
            raise DamageError(
                f"Cannot apply commit {version}: a splice announces {pages} pages with "
                f"{splice.added_entries} rows, but its pages are {run.num_pages} with {run.num_rows}."
            )
        return run
    manifest = record.manifests[splice.source - 1]
    expand = ManifestPages(load_manifest, manifest, version, start, splice.stop)
    return UnloadedRun(pages, splice.added_entries, expand)


@dataclass(frozen=True, eq=False, slots=True)
class ManifestPages:
    """Opens pages [start, stop) of a page manifest; a value, so that it can be sent to another process.

    Attributes
    ----------
    load
        Reads page manifests.
    manifest, version
        The manifest, and the commit that names it.
    """

    load: LoadManifest
    manifest: ManifestRef
    version: int
    start: int
    stop: int

    def __call__(self) -> list[PageRun]:
        """Load the pages, with their ids."""
        loaded = self.load(self.manifest)
        listed = loaded[0]
        if listed.num_rows != self.manifest.num_pages:
            raise DamageError(
                f"Cannot read {self.manifest.location.key}: it should list {self.manifest.num_pages} "
                f"pages but lists {listed.num_rows}."
            )
        start, count = self.start, self.stop - self.start
        batch = form_ids(listed.slice(start, count), self.version, self.manifest.base_ordinal + start)
        # Holds both: who asks for the same manifest while there is the run gets what was loaded.
        return [PageRun(batch, lambda: loaded[1].slice(start, count))]


def read_manifests(pieces: Iterable[Piece], at_once: Mapper) -> list[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Read the page manifests that hold unloaded pages, each once and several in parallel.

    Notes
    -----
    As long as the answer is held, the pieces are opened without a request.
    """
    promised = [piece.expand for piece in pieces if isinstance(piece, UnloadedRun)]
    listed = {each.manifest.location: each for each in promised if isinstance(each, ManifestPages)}
    return at_once(lambda each: each.load(each.manifest), list(listed.values()))
