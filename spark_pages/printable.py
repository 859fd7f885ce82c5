"""Text that may hold anything, made safe for terminals, and values in types that JSON has. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

# C0 but tab and line feed, DEL and C1 (which hold the escape sequences of terminals), marks that turn the
# direction of the text behind them, separators that begin a line, and what UTF-8 has no bytes for.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def escape_controls(text: str) -> str:
    r"""Replace control characters by escapes, such as ``\x1b`` for the one that begins commands."""
    return _CONTROLS.sub(_python_escape, text)


def escape_controls_in_json(document: str) -> str:
    """Replace control characters in a JSON document by JSON escapes; it means the same."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can express the text: it holds no half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _python_escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def plain(value: Any) -> Any:
    """Convert a value to JSON types; NaN and infinities become null."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case Decimal() | timedelta():
            return str(value)
        case _:
            return str(value)
