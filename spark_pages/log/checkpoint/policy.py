"""When a process that commits looks after the log: which checkpoint, which log compaction is due. Pure.

Several processes must not all do it at once, and must not have to agree. So the number of the version
decides: whoever commits a version that is a multiple does it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from spark_pages.log.state import LogState

CHECKPOINT_COMMITS = "checkpoint_commits"
"""Property of a store: a checkpoint after so many commits; 0 for never."""

CHECKPOINT_BYTES = "checkpoint_bytes"
"""Property of a store: a checkpoint once commits since the last brought so many bytes; 0 for never."""

LOG_COMPACTION_COMMITS = "log_compaction_commits"
"""Property of a store: log compaction after so many commits; 0 for never."""

_LOOK_EVERY = 8
"""Bytes are looked at by whoever commits every 8th version."""

MANY_COLUMNS = 2048
"""Definitions of so many columns are some 0.25 MB of log, which whoever opens the store has to decode."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogPolicy:
    """How often the log is looked after.

    Attributes
    ----------
    checkpoint_commits
        After so many versions a checkpoint; 0 never for their number.
    checkpoint_bytes
        Once the commits since the last checkpoint brought pages of so many bytes, or descriptors that take so
        many in memory, or definitions of `MANY_COLUMNS` columns; 0 never for these.
    compaction_commits
        After so many versions log compaction, which works in steps of 16; 0 never.
    """

    checkpoint_commits: int = 64
    checkpoint_bytes: int = 16 << 20
    compaction_commits: int = 16

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> LogPolicy:
        """What the properties of a store ask for; a default where one makes no sense."""
        return cls(
            _number(properties, CHECKPOINT_COMMITS, _DEFAULT.checkpoint_commits),
            _number(properties, CHECKPOINT_BYTES, _DEFAULT.checkpoint_bytes),
            _number(properties, LOG_COMPACTION_COMMITS, _DEFAULT.compaction_commits),
        )


_DEFAULT = LogPolicy()


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, "")
    if text.isascii() and text.isdigit():
        return int(text)
    if text:
        _logger.warning(
            "The property %s of the store is %r, not a whole number: %d is used.", name, text, default
        )
    return default


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be done for the log.

    Attributes
    ----------
    checkpoint, compaction
        To be written.
    adoption
        The process is to change over to a checkpoint that another one wrote.
    """

    checkpoint: bool = False
    compaction: bool = False
    adoption: bool = False

    def __or__(self, other: Due) -> Due:
        """Both together."""
        return Due(
            self.checkpoint or other.checkpoint,
            self.compaction or other.compaction,
            self.adoption or other.adoption,
        )

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return self.checkpoint or self.compaction or self.adoption


def due_after(version: int, state: LogState, policy: LogPolicy) -> Due:
    """What the process that has committed a version should do.

    Parameters
    ----------
    state
        The newest that it knows, of this version or later.
    """
    number = version + 1
    return Due(
        checkpoint=_checkpoint_is_due(number, state, policy),
        compaction=policy.compaction_commits > 0 and number % policy.compaction_commits == 0,
    )


def _checkpoint_is_due(number: int, state: LogState, policy: LogPolicy) -> bool:
    newest = state.newest_checkpoint.version if state.newest_checkpoint else -1
    since = number - 1 - newest
    if policy.checkpoint_commits > 0 and number % policy.checkpoint_commits == 0:
        return since > policy.checkpoint_commits // 2  # else somebody has made one just now
    stands_on = state.base.version if state.base else -1
    if policy.checkpoint_bytes <= 0 or since <= 0 or stands_on != newest:
        return False
    is_looked_at = number % _LOOK_EVERY == 0
    if state.tail_columns >= MANY_COLUMNS:
        # Whoever brought the last of them does it at once, so a store of many tables is opened as any other.
        return is_looked_at or state.catalog_version == number - 1
    return is_looked_at and max(state.added_bytes, state.tail_bytes) >= policy.checkpoint_bytes
