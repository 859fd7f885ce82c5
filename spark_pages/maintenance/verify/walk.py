"""One walk over a whole store: slots, then commits and checkpoints in the order of their versions.

Read `Survey.run` first. What is found is kept in a form that `repair` can plan from.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from spark_pages.arrow.stored_types import unavailable
from spark_pages.errors import DamageError, ObjectNotFoundError, SparkPagesError
from spark_pages.format.commit import decode_slot
from spark_pages.format.names import HINT_KEY, LOG, LOST, commit_key
from spark_pages.log.checkpoint.reader import Checkpoint, TreeReader
from spark_pages.log.compaction.compacted_range import CompactedRange
from spark_pages.log.discovery import base_state
from spark_pages.log.last_checkpoint import read_hint
from spark_pages.log.replay import form_ids, replay
from spark_pages.log.slots import SlotReader
from spark_pages.log.snapshot import LogSnapshot
from spark_pages.log.state import LogState
from spark_pages.maintenance.verify.checkpoints import SurveyedTree, TreeSurvey
from spark_pages.maintenance.verify.comparisons import ChainLengths, ManifestReader, differences
from spark_pages.maintenance.verify.faults import (
    MEND,
    REPAIR,
    RESTORE,
    UPDATE,
    FaultGroup,
    FaultKind,
    Findings,
)
from spark_pages.maintenance.verify.object_names import TableNames
from spark_pages.maintenance.verify.page_types import wider_types
from spark_pages.maintenance.verify.page_values import PageReader, PagesRead
from spark_pages.maintenance.verify.pages import PageCheck, PageSample, PagesMode, rows_of, run_at, stream
from spark_pages.maintenance.verify.slots import ROUND, SlotSurvey, survey_slots, tokens_of
from spark_pages.model.actions import (
    CheckpointRef,
    Commit,
    Features,
    ManifestRef,
    Splice,
    TransactionRecord,
)
from spark_pages.model.chain import ColumnChain
from spark_pages.model.chain_tree import ChainKey
from spark_pages.model.ids import ORDINAL_BITS
from spark_pages.model.run import PageRun
from spark_pages.progress import phase
from spark_pages.runtime import Runtime
from spark_pages.storage.checks import RESERVED_FOLDER
from spark_pages.storage.local import DurableLocalStore
from spark_pages.storage.store import ObjectStore

_UNREADABLE = (DamageError, ObjectNotFoundError)


@dataclass(eq=False, slots=True)
class Survey:
    """Everything that a walk found.

    Attributes
    ----------
    strangers
        What is no file, and lies in the place of one, by its path.
    trees
        Every checkpoint that somebody may need, oldest first.
    manifests
        Page manifests that cannot be read, by key: the commit's version and the reference.
    state
        The newest state; None where it could not be formed.
    oldest
        The oldest version that is kept.
    hint_wrong
        Whether the hint should be written anew.
    lost_ranges
        Compacted ranges that should be there and are not, and behind them bundles that are damaged.
    replayed
        Checkpoints compared with the log.
    read
        What came of the pages that were chosen to be read.
    """

    store: ObjectStore
    runtime: Runtime
    mode: PagesMode
    fraction: float
    page_reader: PageReader
    findings: Findings = field(default_factory=Findings)
    slots: SlotSurvey = field(default_factory=SlotSurvey)
    names: TableNames = field(default_factory=TableNames)
    listed: dict[str, int] = field(default_factory=dict)
    strangers: dict[str, str] = field(default_factory=dict)
    trees: list[SurveyedTree] = field(default_factory=list)
    manifests: dict[str, tuple[int, ManifestRef]] = field(default_factory=dict)
    manifest_keys: set[str] = field(default_factory=set)
    state: LogState | None = None
    hint_wrong: bool = False
    lost_ranges: list[CompactedRange] = field(default_factory=list)
    replayed: int = 0
    oldest: int = 0
    read: PagesRead = field(default_factory=PagesRead)
    tree_survey: TreeSurvey = field(init=False)
    pages: PageCheck = field(init=False)
    reader: TreeReader = field(init=False)
    manifest_reader: ManifestReader = field(init=False)
    _tree_of: dict[str, SurveyedTree] = field(default_factory=dict)
    _most_pages: int = 0
    _lengths: ChainLengths = field(init=False)

    def run(self) -> None:
        """Look at everything that the log names."""
        phase("listing the store")
        self.listed = {info.key: info.size_bytes for info in self.store.list("")}
        sizes = {key: size for key, size in self.listed.items() if not key.startswith(LOG)}
        sample = PageSample(self.mode, self.fraction, int(self.runtime.token(), 16))
        self.pages = PageCheck(self.store, self.findings, self.names, sample, sizes, self.page_reader)
        self.tree_survey = TreeSurvey(self.store, self.findings, self.names, self.pages.check_segment)
        self.reader = TreeReader(self.store)
        self.manifest_reader = ManifestReader(self.store, self.findings)
        self._lengths = ChainLengths(self.findings, self.names)
        phase("reading the log")
        self.strangers = find_foreign_objects(self.store)
        self.slots = survey_slots(self.store, {*self.listed, *self.strangers}, self.findings)
        reading = phase("reading checkpoints and pages", unit="pages")
        retention = self.slots.retention
        if retention is not None:
            self.oldest = min(int(retention.min_readable), max(self.slots.head, 0))
        needed = self._needed(retention.checkpoint if retention else None)
        if self.mode == "all":
            reading.total = self._most_pages
        self._walk(needed)
        self._report_lost_slots()
        self._check_hint()
        self.read = self.page_reader.finish()
        self.pages.troubles.merge(self.read.troubles)
        for column, why in self.names.all_unavailable():
            what = f"Column {column} and its pages were not checked: {why}."
            self.findings.add(FaultKind.UNAVAILABLE, column, what, UPDATE)
        self._report_pages()

    # which versions, which checkpoints

    def _needed(self, oldest: CheckpointRef | None) -> dict[int, list[CheckpointRef]]:
        """Checkpoints that snapshots of the kept versions may stand on.

        They are reached from the newest one. Others that a slot names were overtaken, and nobody reads them.
        """
        hinted = read_hint(self.store)
        seeds = [self.slots.newest_ref, hinted if hinted and self._of_this_history(hinted) else None, oldest]
        waiting = [ref for ref in seeds if ref is not None]
        refs: dict[str, CheckpointRef] = {}
        while waiting:
            ref = waiting.pop()
            if ref.location.key in refs:
                continue
            refs[ref.location.key] = ref
            try:
                root = self.reader.root(ref)
                self._most_pages = max(self._most_pages, sum(part.pages for part in root.parts))
                waiting += [older for _, older in root.predecessors]
            except SparkPagesError:  # what came before it is only known from the slots
                waiting += [older for older in self.slots.refs.values() if older.version < ref.version]
        by_version: dict[int, list[CheckpointRef]] = defaultdict(list)
        for ref in refs.values():
            if self.oldest <= ref.version <= self.slots.head or ref == oldest:
                by_version[ref.version].append(ref)
        return by_version

    def _of_this_history(self, ref: CheckpointRef) -> bool:
        try:
            slot = SlotReader(self.store).read(ref.version)
            return slot is not None and slot.digest == self.reader.root(ref).state.digest
        except SparkPagesError:
            return False

    # the walk

    def _walk(self, refs: dict[int, list[CheckpointRef]]) -> None:
        state: LogState | None = LogState()
        position = 0
        for stop in sorted({*refs, self.oldest, self.slots.head}):
            state = self._commits(state, position, stop + 1)
            position = stop + 1
            if stop == self.oldest > 0 and state is not None:
                self._pages_since_base(state)
            for ref in sorted(refs.get(stop, ()), key=lambda each: each.location.key):
                state = self._checkpoint(ref, state)
        self.state = state if state is not None and state.version == self.slots.head else None
        if self.state is not None:
            self._check_newest(self.state)

    def _commits(self, state: LogState | None, start: int, stop: int) -> LogState | None:
        """Apply and check commits [start, stop), and return the state."""
        for first in range(start, stop, ROUND):
            last = min(first + ROUND, stop)
            if not self.slots.all_commits(first, last):
                state = None
            if state is None and last <= self.oldest:
                continue
            wanted = [
                version for version in range(first, last) if self.slots.all_commits(version, version + 1)
            ]
            slots = SlotReader(self.store).read_many(wanted) if wanted else []
            commits = [slot for slot in slots if isinstance(slot, Commit)]
            state = self._replay(state, commits)
            for commit in commits:
                self._add_definitions(commit)
                if state is not None:
                    self._lengths.count(commit)
                if commit.version > self.oldest or not self.oldest:
                    self._check_pages(commit)
        if state is None:
            self._lengths.rows = None
        return state

    def _replay(self, state: LogState | None, commits: list[Commit]) -> LogState | None:
        if state is None:
            return None
        try:
            return replay(state, commits, self.manifest_reader.read)
        except SparkPagesError:
            pass
        for commit in commits:  # once more, to name the one
            try:
                state = replay(state, [commit], self.manifest_reader.read)
            except SparkPagesError as error:
                key = commit_key(commit.version)
                self.findings.add(FaultKind.CONTRADICTION, key, f"{key}: {error.message}", RESTORE)
                return None
        return state

    def _add_definitions(self, commit: Commit) -> None:
        for record in commit.records:
            self.names.add_definitions(
                intent.definition for intent in record.intents if intent.definition is not None
            )
            for splice in record.splices:
                self.names.mark((splice.table_id, splice.field_id))

    def _check_pages(self, commit: Commit) -> None:
        key = commit_key(commit.version)
        for record in commit.records:
            own = form_ids(record.pages, commit.version, record.base_ordinal)
            self._name_files(own)
            for source, (pages, stats) in self._sources(commit, record, own).items():
                holder = key if source == 0 else record.manifests[source - 1].location.key
                whole = _run(pages, stats)
                added = [each for each in record.splices if each.source == source and each.start < each.stop]
                for splice in added:
                    count, run = splice.stop - splice.start, whole.slice(splice.start, splice.stop)
                    if (run.num_pages, run.num_rows) != (count, splice.added_entries):
                        what = (
                            f"{holder} should give commit {commit.version} {count} pages with "
                            f"{splice.added_entries} rows, but gives {run.num_pages} with {run.num_rows}."
                        )
                        self.findings.add(FaultKind.CONTRADICTION, holder, what, RESTORE)
                for chain, start, stop in _added_page_runs(added):
                    self.pages.check(whole.slice(start, stop), chain, holder)

    def _sources(
        self, commit: Commit, record: TransactionRecord, own: pa.RecordBatch
    ) -> dict[int, tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Pages and statistics by the number that splices use; manifests that cannot be read are left out."""
        sources = {0: (own, record.stats)}
        for number, manifest in enumerate(record.manifests, 1):
            key = manifest.location.key
            self.manifest_keys.add(key)
            try:
                pages, stats = self.manifest_reader.read(manifest)
            except SparkPagesError as error:
                self.manifests[key] = (commit.version, manifest)
                context = f"It lists {manifest.num_pages:,} pages of commit {commit.version}."
                self.findings.add_error(error, key, REPAIR, context)
                continue
            pages = form_ids(pages, commit.version, manifest.base_ordinal)
            self._name_files(pages)
            sources[number] = (pages, stats)
        return sources

    def _name_files(self, pages: pa.RecordBatch) -> None:
        self.pages.named.update(pages.column("path").dictionary.to_pylist())

    def _pages_since_base(self, state: LogState) -> None:
        """Check the pages of a kept version that came after its checkpoint; the others are in the tree."""
        since = state.base.version if state.base else -1
        snapshot = LogSnapshot(state, Checkpoint(state.base, self.reader) if state.base else None)
        for key in state.edits:
            for run in stream(snapshot.chain(key).pieces):
                newer = (run.page_ids >> ORDINAL_BITS) > since
                if newer.any():
                    chosen = run_at(run, newer.nonzero()[0])
                    self._name_files(chosen.pages)
                    self.pages.check(chosen, key, f"the log up to version {state.version}")

    # checkpoints

    def _checkpoint(self, ref: CheckpointRef, state: LogState | None) -> LogState | None:
        """Survey one checkpoint; gives what to go on from."""
        tree = self.tree_survey.survey(ref)
        self.trees.append(tree)
        self._tree_of[ref.location.key] = tree
        self.findings.faults.update(tree.faults)
        if not tree.is_complete:
            return state
        shown = Checkpoint(ref, self.reader)
        rows = self.tree_survey.rows(tree)
        if state is not None and state.version == ref.version:
            self.replayed += 1
            self._compare(tree, shown, state)
            if other := self._lengths.check_against(rows):
                what = f"{ref.location.key} holds other numbers of rows than the log: {self._shown(other)}."
                self.findings.add(FaultKind.CONTRADICTION, ref.location.key, what, REPAIR)
        self._lengths.restart_from(rows, shown)
        return base_state(self.reader, ref)

    def _compare(self, tree: SurveyedTree, shown: Checkpoint, state: LogState) -> None:
        key = tree.ref.location.key
        before = Checkpoint(state.base, self.reader) if state.base else None
        old = self._tree_of[state.base.location.key].leaves if state.base else []
        changed = sorted({*state.edits, *self._changed_chains(old, tree.leaves)})
        try:
            for what in differences(state, before, shown, changed):
                self.findings.add(FaultKind.CONTRADICTION, key, f"{key} {what}.", REPAIR)
        except _UNREADABLE as error:
            lost = error.context.get("key")
            if lost not in self.manifests:  # told already
                self.findings.add(FaultKind.CONTRADICTION, key, f"{key}: {error.message}", REPAIR)

    def _changed_chains(self, old: list[str], new: list[str]) -> set[ChainKey]:
        """Chains with pages in a segment that only one of two trees has, or all where order differs."""
        shared = set(old) & set(new)
        in_order = [leaf for leaf in old if leaf in shared] == [leaf for leaf in new if leaf in shared]
        leaves = (set(old) ^ set(new)) if in_order else {*old, *new}
        return {
            (number >> 32, number & 0xFFFF_FFFF)
            for leaf in leaves
            for number in self.tree_survey.segment(leaf).keys.tolist()
        }

    def _check_newest(self, state: LogState) -> None:
        """Edits since the last checkpoint fit on it."""
        base = Checkpoint(state.base, self.reader) if state.base else None
        for key, edits in state.edits.items():
            try:
                ColumnChain(base.chain(key) if base else []).apply(edits)
            except _UNREADABLE as error:
                if error.context.get("key") in self.manifests:
                    continue
                since = f"after version {base.ref.version}" if base else "of the log"
                what = f"The commits {since} do not fit on {self.names.show(key)}: {error.message}"
                self.findings.add(FaultKind.CONTRADICTION, commit_key(state.version), what, RESTORE)
        self._check_narrowed(state)

    def _check_narrowed(self, state: LogState) -> None:
        """Check all pages of columns that had a wider type once, whenever they were added."""
        snapshot = LogSnapshot(state, Checkpoint(state.base, self.reader) if state.base else None)
        with suppress(*_UNREADABLE):  # told already
            for definition in snapshot.tables():
                for name in definition.field_ids:
                    column = definition.schema.field(name)
                    if unavailable(column) is None and wider_types(column):
                        key: ChainKey = (definition.table_id, definition.field_ids[name])
                        for run in stream(snapshot.chain(key).pieces):
                            holder = f"the log up to version {state.version}"
                            self.pages.check_narrowed(run, key, holder)

    # what is told last, when everything is known

    def _report_lost_slots(self) -> None:
        whole = sorted(tree.ref.version for tree in self.trees if tree.is_complete)
        for version, error in self.slots.errors.items():
            later = [each for each in whole if each >= version]
            if later and later[0] == version:
                lost = "Every version can still be read."
            elif later:
                lost = f"Versions from {version} up to {later[0] - 1} cannot be read."
            else:
                lost = f"Versions from {version} up to the newest, {self.slots.head}, cannot be read."
            self.findings.add_error(error, commit_key(version), RESTORE, lost)

    def _check_hint(self) -> None:
        wanted = self.best_checkpoint()
        if wanted is None or self.findings.newer:  # the hint may name what only a newer release can read
            return
        if HINT_KEY not in self.listed:
            what = f"{HINT_KEY} is missing: opening takes more requests."
        else:
            ref = read_hint(self.store)
            tree = self._tree_of.get(ref.location.key) if ref else None
            if ref is None:
                what = f"{HINT_KEY} makes no sense: opening takes more requests."
            elif tree is None or tree.root is None:
                what = f"{HINT_KEY} names {ref.location.key}, which is no readable checkpoint of this log."
            elif wanted == self.slots.newest_ref and ref.version < wanted.version:
                what = (
                    f"{HINT_KEY} names the checkpoint of version {ref.version}, though commits name that of "
                    f"version {wanted.version}: opening takes more requests, until the next checkpoint."
                )
            else:
                return
        self.hint_wrong = True
        self.findings.add(FaultKind.HINT, HINT_KEY, what, MEND)

    @property
    def features(self) -> Features:
        """What the store asks of its writers, as far as the newest commit and the checkpoints tell."""
        told = [self.slots.features, *(tree.root.state.features for tree in self.trees if tree.root)]
        return Features(writer=tuple(sorted({name for each in told for name in each.writer})))

    def best_checkpoint(self) -> CheckpointRef | None:
        """Return the newest checkpoint that can be read whole."""
        whole = [tree.ref for tree in self.trees if tree.is_complete]
        return max(whole, key=lambda ref: ref.version, default=None)

    def _report_pages(self) -> None:
        base: Checkpoint | None = None
        if self.state is not None and self.state.base is not None:
            base = Checkpoint(self.state.base, self.reader)
        alike: dict[tuple[FaultKind, str, str], list[tuple[FaultGroup, str]]] = defaultdict(list)
        for trouble in self.pages.troubles:
            rows = "whose rows cannot be told"
            if self.state is not None:
                edits = self.state.edits.get(trouble.chain, ())
                try:
                    chain = ColumnChain(base.chain(trouble.chain) if base else []).apply(edits)
                    rows = rows_of(chain.pieces, trouble.page_ids, self.state.version)
                except SparkPagesError:
                    pass
            alike[trouble.kind, trouble.key, trouble.what].append((trouble, rows))
        for troubles in alike.values():
            self.pages.report(troubles)

    def _shown(self, keys: Iterable[ChainKey]) -> str:
        names = [self.names.show(key) for key in keys]
        return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")

    def known_keys(self) -> set[str]:
        """Every key that the log, or a checkpoint of it that is needed, names."""
        known = {commit_key(version) for version in range(self.slots.head + 1)}
        known |= {
            HINT_KEY,
            *self.manifest_keys,
            *self.pages.named,
            *self.pages.checkpoint_page_files(),
            *self.slots.refs,
        }
        known |= {commit_key(slot.version) for slot in self.slots.foreign}
        known |= {key for key in self.listed if key.startswith(LOST)}
        return known | self.tree_survey.keys

    def foreign_tokens(self) -> set[str]:
        """Tokens of transactions of other stores, in slots behind the head and where a repair moved them."""
        found = list(self.slots.foreign)
        for key in self.listed:
            if key.startswith(LOST):
                with suppress(SparkPagesError):
                    found.append(decode_slot(self.store.get(key), key))
        return {token for slot in found for token in tokens_of(slot)}


def _added_page_runs(splices: Sequence[Splice]) -> list[tuple[ChainKey, int, int]]:
    """Pages [start, stop) that splices of one chain add, those of neighbours together."""
    found: list[tuple[ChainKey, int, int]] = []
    for splice in splices:
        chain, start = (splice.table_id, splice.field_id), splice.start
        if found and (found[-1][0], found[-1][2]) == (chain, start):
            start = found.pop()[1]
        found.append((chain, start, splice.stop))
    return found


def _run(pages: pa.RecordBatch, stats: pa.RecordBatch) -> PageRun:
    return PageRun(pages, lambda: stats)


_OBJECT = re.compile(rf".*\.(avro|bundle|parquet|pages)|{re.escape(HINT_KEY)}")
"""Names of objects; no folder of a store has one."""

_REMEDY = "Move it away, and put the object back from a copy of the store, if there was one."


def find_foreign_objects(store: ObjectStore) -> dict[str, str]:
    """Find paths of a store that are neither file nor folder as expected, and describe each.

    Notes
    -----
    Lists a local store once more. An object store has objects alone.
    """
    found = store.foreign_objects() if isinstance(store, DurableLocalStore) else {}
    return {path: what for path, what in found.items() if what != "a folder" or _OBJECT.fullmatch(path)}


def report_foreign_objects(
    strangers: dict[str, str], page_folders: Iterable[str], findings: Findings
) -> None:
    """Report each of them that no fault names yet."""
    told = {fault.key for fault in findings.faults}
    folders = tuple(f"{folder.rstrip('/')}/" for folder in (LOG, RESERVED_FOLDER, *page_folders))
    for path, what in strangers.items():
        if path in told:
            continue
        is_within = f"{path}/".startswith(folders)
        kind = FaultKind.DAMAGED if is_within else FaultKind.ORPHAN
        rule = "expected a file or folder of the store" if is_within else "no call reads or follows it"
        findings.add(kind, path, f"{path} is {what}: {rule}.", _REMEDY)
