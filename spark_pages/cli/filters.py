"""``--filter "distance > 1000"``: the SQL text that `Table.read` takes, one condition or several."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from spark_pages.errors import ColumnNotFoundError, InvalidInputError

if TYPE_CHECKING:
    from spark_pages.query.table import Table

_FORM = "A filter is SQL, as behind WHERE: carrier in ('UA', 'DL') and distance > 1000."


def joined_filter(texts: Sequence[str], table: Table) -> Any:
    """What `Table.read` takes as its filter, so that all conditions hold; None where there are none.

    Each text is read by itself: parentheses and comments of one do not reach into the next.

    Parameters
    ----------
    texts
        Such as ``distance > 1000`` or ``carrier in ('UA', 'DL') or tailnum is null``.

    Raises
    ------
    ColumnNotFoundError
        If a text names a column that the table does not have; says that text is quoted.
    InvalidInputError
        If a text is no condition; says which part, and what one looks like.
    """
    read = [_expression(text, table) for text in texts]
    if len(texts) == 1:
        return texts[0]  # what is found wrong later is told in the caller's words
    return reduce(and_, read) if read else None


def _expression(text: str, table: Table) -> Any:
    from spark_pages.catalog.resolve import visible_table
    from spark_pages.query.predicates.sql_filter import parse_sql

    try:
        return parse_sql(text, table.schema, visible_table(table.definition))
    except ColumnNotFoundError as error:
        hint = _joined(error.hint, _quoted(text, str(error.context.get("column", ""))))
        raise ColumnNotFoundError(error.message, hint=hint, **error.context) from error
    except InvalidInputError as error:
        raise type(error)(error.message, hint=_joined(error.hint, _FORM), **error.context) from error


def _quoted(text: str, word: str) -> str | None:
    """How to say that a word behind an operator is a text and no column."""
    behind = rf"((?:[=<>,]|\bin\s*\(|\blike\b)\s*)[\"`]?{re.escape(word)}(?![\w.])[\"`]?"
    right = re.sub(behind, lambda found: f"{found[1]}'{word}'", text, flags=re.IGNORECASE)
    return None if right == text else f"Text is quoted: {right}"


def _joined(*sentences: str | None) -> str:
    return " ".join(each for each in sentences if each)
