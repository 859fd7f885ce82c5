"""Which values the properties of a store may have, held against before a commit says them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from spark_pages.errors import InvalidInputError
from spark_pages.format.names import refuse_location_properties
from spark_pages.log.auto_maintenance import CHECKPOINT_BYTES, CHECKPOINT_COMMITS, LOG_COMPACTION_COMMITS
from spark_pages.log.commit_times import RESETS_PROPERTY
from spark_pages.log.retention import SECONDS_PROPERTY, VERSIONS_PROPERTY

TAIL_BYTES_PROPERTY = "tail_page_bytes"
"""Property of a store: a page of this size at the end of a chain stays as it is; 0 for all."""

_NUMBERS = {
    CHECKPOINT_BYTES,
    CHECKPOINT_COMMITS,
    LOG_COMPACTION_COMMITS,
    SECONDS_PROPERTY,
    TAIL_BYTES_PROPERTY,
    VERSIONS_PROPERTY,
}
_MOST = 1 << 53
_OF_TABLES = {"page_bytes", "codec", "bloom"}


def check_store_properties(properties: Mapping[str, str | None]) -> None:
    """Refuse what a store cannot do; of names that nobody looks at the value is free.

    Raises
    ------
    InvalidInputError
        Names the property, its value and what is expected.
    """
    refuse_location_properties(properties)
    if RESETS_PROPERTY in properties:
        raise InvalidInputError(
            f"Cannot set the property {RESETS_PROPERTY} of a store: it dates the versions of the store.",
            hint="Reset the clock by store.reset_clock(), or `spark-pages reset-clock URL`.",
        )
    for name, value in properties.items():
        if value is None:
            continue  # it is unset, whatever it was
        if name in _NUMBERS and not (value.isascii() and value.isdigit() and int(value[:20]) <= _MOST):
            raise InvalidInputError(
                f"Cannot set property {name} of a store to {value!r}: expected a whole number from 0 "
                f"to {_MOST}.",
                hint="Set it to a number such as '0', which switches it off, or leave it out.",
            )
        if name.partition(".")[0] in _OF_TABLES:
            raise InvalidInputError(
                f"Cannot set property {name} of a store: it has no meaning there.",
                hint="Set it on a table or namespace: `transaction.set_table_properties`, "
                "`transaction.set_namespace_properties`.",
            )
