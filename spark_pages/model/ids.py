"""Ids: versions, page ids, table and field ids, tokens."""

from __future__ import annotations

import re
from typing import NewType

from spark_pages.arguments import MOST_NUMBER, as_int
from spark_pages.errors import InvalidInputError

Version = NewType("Version", int)
"""Number of a commit; the first is 0 and there are no gaps."""

TableId = NewType("TableId", int)
"""Number of a table; 0 is the catalog's own. Never used twice."""

FieldId = NewType("FieldId", int)
"""Number of a column inside its table, from 1; 0 is the liveness chain. Never used twice."""

PageId = NewType("PageId", int)
"""63 bits: the version that added the page (35) and its ordinal in that commit (28)."""

ORDINAL_BITS = 28
VERSION_BITS = 35
MAX_ORDINAL = (1 << ORDINAL_BITS) - 1
MAX_VERSION = (1 << VERSION_BITS) - 1

_PAGE_ID = "16 hexadecimal digits, such as 000000007000002a"

TEMPORARY_TABLES = TableId(-(1 << 63))
"""Ids of temporary tables have the top bit set and count from here; no commit has them."""

LIVENESS = FieldId(0)
"""Field id of the liveness chain: true for a live row, null for a dead one."""

CATALOG_TABLE = TableId(0)
FIRST_USER_TABLE = TableId(1)


def is_temporary(table_id: int) -> bool:
    """Whether the id is one of a temporary table."""
    return table_id < TEMPORARY_TABLES // 2


def page_id(version: int, ordinal: int) -> PageId:
    """Form the id of page number `ordinal` of commit `version`.

    Raises
    ------
    InvalidInputError
        If either number needs more bits than the format gives it.
    """
    if not (0 <= version <= MAX_VERSION and 0 <= ordinal <= MAX_ORDINAL):
        raise InvalidInputError(
            f"Cannot form a page id of version {version} and ordinal {ordinal}: expected a version of "
            f"at most {MAX_VERSION} and an ordinal of at most {MAX_ORDINAL}.",
            hint=f"Pass a `version` from 0 to {MAX_VERSION} and an `ordinal` from 0 to {MAX_ORDINAL}.",
        )
    return PageId((version << ORDINAL_BITS) | ordinal)


def page_version(page: int) -> Version:
    """Version of the commit that added the page."""
    return Version(page >> ORDINAL_BITS)


def format_page_id(page: int) -> str:
    """Show a page id as users see it: 16 hexadecimal digits; a sign and 15 where it is provisional."""
    return f"{page:016x}"


def parse_page_id(text: str | int) -> PageId:
    """Read a page id from its 16 hexadecimal digits, or a sign and 15, or pass an integer through.

    Raises
    ------
    InvalidInputError
        If the text is not a page id.
    """
    if not isinstance(text, str):
        return PageId(as_int(text, "page_id", _PAGE_ID))
    value = int(text, 16) if re.fullmatch("[0-9a-fA-F]{16}|-[0-9a-fA-F]{15}", text) else None
    if value is None or value > MOST_NUMBER:
        raise InvalidInputError(
            f"Cannot use {text!r} as a page id: expected {_PAGE_ID}.",
            hint="Copy an id as `table.pages(column)` or `spark-pages pages` shows it.",
        )
    return PageId(value)
