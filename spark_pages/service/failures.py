"""Errors between service and client: the tree of `spark_pages.errors` on both sides, Flight's in between."""

from __future__ import annotations

import json
import logging
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from spark_pages import errors
from spark_pages.errors import AccessDeniedError, InternalError, SparkPagesError, StorageError

_log = logging.getLogger("spark_pages.service")

NO_TOKEN = "no valid token"  # noqa: S105
"""Value of the context ``why`` of an `AccessDeniedError` that another token of the same rights would mend."""

MOST_TOKEN = 7 << 10
"""Longest token: gRPC refuses calls whose headers take more than 8 KiB, and gives no reason."""

_MOST_TEXT = 2000


def to_flight(error: BaseException, incident: str) -> fl.FlightError:
    """Convert an error for the client: named errors as they are, others without internals.

    Parameters
    ----------
    error
        What went wrong.
    incident
        A name under which the service's own log tells more of errors that are bugs.
    """
    if isinstance(error, fl.FlightError):
        return error
    if not isinstance(error, SparkPagesError):
        _log.error("incident %s", incident, exc_info=error)
        error = InternalError(
            f"Cannot answer the call: the service failed. Its log has more about incident {incident}."
        )
    elif isinstance(error, InternalError):
        _log.error("incident %s", incident, exc_info=error)
    detail = json.dumps(
        {
            "error": _known_class(error).__name__,
            "message": error.message[:_MOST_TEXT],
            "hint": error.hint,
            "context": {key: value for key, value in error.context.items() if _is_plain(value)},
        }
    ).encode()
    kind: type[fl.FlightError] = fl.FlightServerError
    if isinstance(error, AccessDeniedError):
        missing = error.context.get("why") == NO_TOKEN
        kind = fl.FlightUnauthenticatedError if missing else fl.FlightUnauthorizedError
    elif isinstance(error, StorageError):
        kind = fl.FlightTimedOutError if error.context.get("deadline_error") else fl.FlightUnavailableError
    elif isinstance(error, InternalError):
        kind = fl.FlightInternalError
    return kind(error.message[:_MOST_TEXT], detail)


def from_flight(error: pa.ArrowException, url: str) -> SparkPagesError:
    """Convert a Flight error to the error that the client raises."""
    told = _told(getattr(error, "extra_info", None))
    if told is not None:
        return told
    text = str(error).splitlines()[0][:_MOST_TEXT] if str(error) else type(error).__name__
    match error:
        case fl.FlightUnauthenticatedError() | fl.FlightUnauthorizedError():
            return AccessDeniedError(
                f"Cannot use the service at {url}: it refused the token.",
                hint="Pass another `token` to `connect`.",
            )
        case fl.FlightTimedOutError():
            return deadline_error(url)
        case fl.FlightUnavailableError():
            return StorageError(
                f"Cannot reach the service at {url}: {text.rstrip('.')}.",
                hint="Check that it runs (`spark-pages serve`), and that address and `certificate` are "
                "right.",
            )
        case _:
            return StorageError(
                f"Cannot use the service at {url}: it failed with {type(error).__name__}: "
                f"{text.rstrip('.')}.",
                hint="Look into the log of `spark-pages serve`, and call again.",
            )


def deadline_error(url: str) -> StorageError:
    """Create the error for a call past its deadline."""
    return StorageError(
        f"Cannot get an answer of {url}: it took longer than it may.",
        hint="Ask for less at once, or pass a greater `timeout_s` to `connect`.",
        late=True,
    )


def _known_class(error: SparkPagesError) -> type[SparkPagesError]:
    """Return the public error class that clients know."""
    for kind in type(error).__mro__:
        if getattr(errors, kind.__name__, None) is kind:
            known: type[SparkPagesError] = kind
            return known
    return SparkPagesError


def _told(detail: bytes | None) -> SparkPagesError | None:
    try:
        value: Any = json.loads(detail or b"null")
        kind = getattr(errors, value["error"])
        if not (isinstance(kind, type) and issubclass(kind, SparkPagesError)):
            return None
        context = {str(key): each for key, each in value["context"].items() if key not in ("message", "hint")}
        hint = value["hint"]
        return kind(str(value["message"]), hint=None if hint is None else str(hint), **context)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return None


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool | None)
