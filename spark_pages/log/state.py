"""The state of the log at one version: a checkpoint and what has changed since. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_pages.log.fairness import CommitTurn
from spark_pages.model.actions import (
    NO_FEATURES,
    CheckpointRef,
    Claim,
    Features,
    Lease,
    Retention,
    UpkeepNote,
)
from spark_pages.model.chain_tree import ChainEdit, ChainKey
from spark_pages.model.ids import FIRST_USER_TABLE
from spark_pages.model.immutable import freeze
from spark_pages.model.table import TableDefinition

TableName = tuple[int, str]
"""Namespace id and table name."""


@dataclass(frozen=True, eq=False)
class LogState:
    """What is true after commit `version`.

    Attributes
    ----------
    version, timestamp_us, token, digest, features
        Of the commit; version -1 and empty before there is any.
    store_id
        The id of the store: the token of commit 0. Empty before there is any, and where the state stands on a
        checkpoint of a release that gave stores no id.
    base
        The checkpoint that everything below stands on, or None when all was replayed from commit 0.
    newest_checkpoint
        The newest checkpoint known to be good; never older than `base`.
    named_checkpoint
        The newest one that a commit since `base` names; None where none does.
    edits
        Splices since `base`, by chain, in order.
    tables, names
        Definitions and names changed since `base`; None where dropped.
    next_table_id
        The id that the next new table gets.
    apps
        Application id to its newest ``(app_version, version)``.
    properties, tags, leases, claims, retention
        As of this version, whole.
    tokens
        Token to version, of every commit and transaction since `base`.
    changed
        Table id or name to the version of its last change, for what `tables` and `names` hold.
    tail_bytes
        Bytes in memory of the pages, inline ones with their data, that commits since `base` brought, and of
        the page manifests that they name.
    added_bytes
        Bytes of the pages that commits since `base` brought, as they are stored.
    tail_columns
        Columns in definitions that commits since `base` brought: whoever opens the store reads them all.
    catalog_version
        The newest commit that changed the catalog, as far as this process has seen them, else `base`.
    compacted
        Slots below this version are in compacted ranges, as far as the log tells.
    turns
        Who has committed lately, of the commits since `base`.
    upkeep
        What this process knows to have been done to the log, and no commit has told.
    deletions_told
        Of what vacuums deleted, the last that commits since `base` have told.
    """

    version: int = -1
    timestamp_us: int = 0
    token: str = ""
    digest: str = ""
    features: Features = NO_FEATURES
    store_id: str = ""
    base: CheckpointRef | None = None
    newest_checkpoint: CheckpointRef | None = None
    named_checkpoint: CheckpointRef | None = None
    edits: Mapping[ChainKey, tuple[ChainEdit, ...]] = field(default_factory=dict)
    tables: Mapping[int, TableDefinition | None] = field(default_factory=dict)
    names: Mapping[TableName, int | None] = field(default_factory=dict)
    next_table_id: int = FIRST_USER_TABLE
    apps: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, int] = field(default_factory=dict)
    leases: Mapping[str, Lease] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    retention: Retention | None = None
    tokens: Mapping[str, int] = field(default_factory=dict)
    changed: Mapping[int | TableName, int] = field(default_factory=dict)
    tail_bytes: int = 0
    added_bytes: int = 0
    tail_columns: int = 0
    catalog_version: int = -1
    compacted: int = 0
    turns: tuple[CommitTurn, ...] = ()
    upkeep: tuple[UpkeepNote, ...] = ()
    deletions_told: tuple[UpkeepNote, ...] = ()

    def __post_init__(self) -> None:
        freeze(self, "edits", "tables", "names", "apps", "properties", "tags", "leases", "tokens", "changed")
