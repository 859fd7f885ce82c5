"""What obstore raises, told in our own errors, without anything that a server or a URL put into the text.

The text of an obstore error holds the body of the answer, in which the access key id has been seen, and the
URL with its query. Only the kind of the error and the HTTP status are kept.
"""

from __future__ import annotations

import re

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from spark_pages.errors import ObjectNotFoundError, SparkPagesError, StorageError

_STATUS = re.compile(r"status code: (\d{3})\b")
_NO_BUCKET = "there is no such bucket or container"
_REDIRECTED = "redirect without LOCATION"
"""What obstore says of a server that sends it away without saying where to."""

_NO_HTTP = "the endpoint begins with http://, which is not allowed"
_SIGNS = (
    (
        "BadScheme",
        _NO_HTTP,
        "Give the storage option allow_http=True, or an endpoint that begins with https://.",
    ),
    (
        "dns error",
        "the name of the server cannot be resolved",
        "Check bucket, endpoint and region for misspellings, and the name servers of this machine.",
    ),
    (
        "ConnectionRefused",
        "connection refused",
        "Check that a server runs at the endpoint, and its port; then try again.",
    ),
    (
        "invalid peer certificate",
        "the certificate of the server is not trusted",
        "Give the authority that signed it by the storage option root_certificate.",
    ),
    (
        "TimedOut",
        "the server did not answer in time",
        "Check endpoint and network, then try again.",
    ),
    (
        "InvalidUri",
        "bucket, region and endpoint make no URL",
        "Check the storage options, and the AWS_ variables of the environment.",
    ),
)
"""What obstore's text holds where no answer came, why that is, and what to do."""


def is_failure(error: BaseException) -> bool:
    """Whether obstore failed, as opposed to the program being told to stop.

    Parameters
    ----------
    error
        What was raised. A panic of its Rust code is not an `Exception`, and is a failure.

    Returns
    -------
    bool
        False for `KeyboardInterrupt` and its like.
    """
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def describe(error: BaseException) -> str:
    """Describe an obstore error by its kind and its HTTP status, if it has one.

    Parameters
    ----------
    error
        What obstore raised.

    Returns
    -------
    str
        Such as ``PermissionDeniedError, HTTP 403``.
    """
    status = _status_of(error)
    return type(error).__name__ + (f", HTTP {status}" if status else "")


def refusal(error: BaseException) -> str | None:
    """Why a server did nothing, in words; None where it may have done it.

    Parameters
    ----------
    error
        What obstore raised.

    Notes
    -----
    A request is checked for credentials, bucket and region before anything is done with it.
    """
    if "BadScheme" in str(error) and _status_of(error) is None:
        return _NO_HTTP
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return "the credentials are wrong, or do not allow it"
    if isinstance(error, FileNotFoundError) and _status_of(error) == "404":
        return _NO_BUCKET
    return "the bucket is in another region" if _REDIRECTED in str(error) else None


def unreachable(error: BaseException) -> tuple[str, str] | None:
    """Why no answer came, and what to do; None where one came, or it is not known.

    Parameters
    ----------
    error
        What obstore raised.
    """
    if _status_of(error) is not None:
        return None
    text = str(error)
    return next(((why, hint) for sign, why, hint in _SIGNS if sign in text), None)


def storage_error(error: BaseException, action: str, key: str, url: str) -> SparkPagesError:
    """Our error for one of obstore. Raise it outside the ``except``, so that the other one is not kept.

    Parameters
    ----------
    error
        What obstore raised.
    action
        What was attempted, such as ``read``.
    key, url
        On which object, of which store.

    Returns
    -------
    ObjectNotFoundError or StorageError
        For the caller to raise.
    """
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError(
            f"Cannot find object {key!r} in {url}: there is none of that key.",
            hint="Run `spark-pages verify URL`: it lists the objects that are missing.",
            key=key,
        )
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or _is_refusal(error):
        hint = "Check the credentials and what they may do with this store."
    else:
        hint = "Check address, region and network, then try again."
    why = _NO_BUCKET if _status_of(error) == "404" else refusal(error)
    unsent = unreachable(error)
    if unsent is not None:
        why, hint = unsent
    reason = describe(error) if why is None else f"{why} ({describe(error)})"
    return StorageError(f"Cannot {action} {key!r} in {url}: {reason}.", hint=hint, key=key)


def _is_refusal(error: BaseException) -> bool:
    """Whether the server refused the credentials; a refused listing is only a generic error of obstore."""
    return _status_of(error) in ("401", "403")


def _status_of(error: BaseException) -> str | None:
    found = _STATUS.search(str(error))
    return found[1] if found else None
