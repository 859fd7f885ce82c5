"""Storage options as people write them, brought into the form that obstore takes. Pure.

Options of the HTTP client may stand beside the others, and durations may be written as TOML can: ``10`` or
``"500ms"``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from spark_pages.errors import InvalidInputError

_OF_CLIENT = frozenset(
    (
        "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type",
        "default_headers", "http1_only", "http2_keep_alive_interval", "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle", "http2_only", "pool_idle_timeout", "pool_max_idle_per_host",
        "proxy_ca_certificate", "proxy_excludes", "proxy_url", "randomize_addresses", "read_timeout",
        "root_certificate", "timeout", "user_agent",
    )
)  # fmt: skip
_PREFIX = re.compile("^(aws|google|azure_storage|azure)_")
_ENDPOINT = (re.compile(r"https?://[^\s/?#]+[^\s?#]*"), "a URL such as https://host:port")
_REGION = (re.compile("[A-Za-z0-9-]+"), "a region such as eu-central-1")
_RULES = {"endpoint": _ENDPOINT, "endpoint_url": _ENDPOINT, "region": _REGION, "default_region": _REGION}
_DURATIONS = ("retry_timeout", "init_backoff", "max_backoff")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def obstore_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options under the names and in the types of obstore.

    Parameters
    ----------
    given
        Those of a caller or a profile. An option of the HTTP client may stand in ``client_options``, alone,
        or as ``client_options.NAME``. Names may be those of environment variables, such as ``AWS_REGION``.

    Raises
    ------
    InvalidInputError
        If a duration of ``retry_config`` is none, or one of these two is no table. Shows no value.
    """
    options: dict[str, Any] = {}
    client: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for name, value in given.items():
        own = _client_name(name)
        key = name.lower() if own is None else own
        one = _PREFIX.sub("", key)
        if one in spelled:
            raise InvalidInputError(
                f"The storage options {spelled[one]} and {name} are the same one: give it once."
            )
        spelled[one] = name
        if own is None:
            _check_value(name, one, value)
            options[key] = value
        else:
            client[own] = value
    if client or "client_options" in options:
        options["client_options"] = {**_table(options, "client_options"), **client}
    if "retry_config" in options:
        options["retry_config"] = _with_durations(_table(options, "retry_config"), "retry_config")
    return options


def _client_name(name: str) -> str | None:
    """The name of an option of the HTTP client; None for others. Obstore panics at ``AWS_ALLOW_HTTP``."""
    lower = name.lower()
    plain = lower.removeprefix("client_options.")
    bare = _PREFIX.sub("", plain)
    return bare if plain != lower or bare in _OF_CLIENT else None


def _check_value(name: str, plain: str, value: Any) -> None:
    """Raise InvalidInputError where obstore would panic at the first request."""
    rule = _RULES.get(plain)
    if rule is not None and not (isinstance(value, str) and rule[0].fullmatch(value)):
        raise InvalidInputError(f"The storage option {name} is wrong: expected {rule[1]}.")


def _table(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = options.get(name) or {}
    if not isinstance(found, Mapping):
        raise InvalidInputError(
            f"The storage option {name} is a {type(found).__name__}: expected names and values."
        )
    return dict(found)


def _with_durations(table: dict[str, Any], where: str) -> dict[str, Any]:
    for name, value in table.items():
        if name in _DURATIONS:
            table[name] = _duration(f"{where}.{name}", value)
        elif name == "backoff":
            table[name] = _with_durations(_table(table, name), f"{where}.{name}")
    return table


def _duration(name: str, value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return timedelta(seconds=value)
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InvalidInputError(
            f"The storage option {name} is no duration but a {type(value).__name__} that cannot be read: "
            "expected seconds such as 10, or text such as '500ms', '10s' or '2m'."
        )
    return timedelta(seconds=float(match[1]) * _SECONDS[match[2]])
