"""Storage options by name: what travels between processes is the name, never a credential.

A profile is a table of a TOML file, with the options that `spark_pages.open` takes as ``storage_options``::

    [prod]
    region = "eu-central-1"
    endpoint = "https://s3.example.com"
    access_key_id = { env = "PROD_KEY_ID" }
    secret_access_key = { env = "PROD_SECRET" }

Each process reads its own file: the one that ``SPARK_PAGES_PROFILES`` names, else
``~/.spark_pages/profiles.toml``. So a secret is in no plan, no log and no pickle.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_pages.errors import InvalidInputError

FILE_VARIABLE = "SPARK_PAGES_PROFILES"
_DEFAULT_FILE = Path("~/.spark_pages/profiles.toml")


def options_of(given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the given options, or those of the profile that ``{"profile": name}`` names.

    Raises
    ------
    InvalidInputError
        If there are others beside it, or as `storage_options`.
    """
    if not given or "profile" not in given:
        return given
    if len(given) > 1 or not isinstance(given["profile"], str):
        raise InvalidInputError(
            "Cannot use storage options beside 'profile': it names options in a file, and stands alone.",
            hint=f"Write the others into the file of the profile that {FILE_VARIABLE} names.",
        )
    return storage_options(given["profile"])


def storage_options(profile: str | None) -> dict[str, Any] | None:
    """Read the options of a profile in this process; None if there is no profile.

    Raises
    ------
    InvalidInputError
        If the file, the profile or an environment variable that it names is missing; shows no value.
    """
    if profile is None:
        return None
    path = Path(os.environ.get(FILE_VARIABLE) or _DEFAULT_FILE).expanduser()
    try:
        profiles = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"Cannot use profile {profile!r}: {path} cannot be read: {type(error).__name__}.",
            hint=f"Name another file by {FILE_VARIABLE}, in every process.",
        ) from None  # what a parser says may quote a secret
    found = profiles.get(profile)
    if not isinstance(found, dict):
        raise InvalidInputError(
            f"Cannot use profile {profile!r}: {path} has {', '.join(sorted(profiles)) or 'none'}.",
            hint=f"Name one of those in `storage_options`, or add [{profile}] to the file.",
        )
    return {name: _value(profile, name, value) for name, value in found.items()}


def _value(profile: str, name: str, value: Any) -> Any:
    if not (isinstance(value, dict) and set(value) == {"env"}):
        return value
    variable = str(value["env"])
    if variable not in os.environ:
        raise InvalidInputError(
            f"Cannot use profile {profile!r}: it takes {name} from the environment variable "
            f"{variable}, which is not set.",
            hint=f"Set it first: `export {variable}=…`.",
        )
    return os.environ[variable]


_MARK = "#profile="


def with_profile(url: str, profile: str | None) -> str:
    """Join the address of a store and the name of its profile, for executors.

    Raises
    ------
    InvalidInputError
        If the store is in a folder, which takes no options.
    """
    if not profile:
        return url
    if "://" not in url or url.startswith("file://"):
        raise InvalidInputError(
            f"Cannot use profile {profile!r} for the store at {url}: it takes none.",
            hint="Leave the option `profile` out.",
        )
    return f"{url}{_MARK}{profile}"


def split_profile(address: str) -> tuple[str, str | None]:
    """Split an address of `with_profile`. A folder may have any name."""
    if "://" not in address or address.startswith("file://"):
        return address, None
    url, _, profile = address.partition(_MARK)
    return url, profile or None
