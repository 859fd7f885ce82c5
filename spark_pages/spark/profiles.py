"""The address of a store with the name of its profile, as it travels to executors. No pyspark here."""

from __future__ import annotations

from spark_pages.errors import InvalidInputError

_MARK = "#profile="


def with_profile(url: str, profile: str | None) -> str:
    """The address of a store together with the name of its profile, as it travels to executors.

    Raises
    ------
    InvalidInputError
        If the store is in a folder, which takes no options.
    """
    if not profile:
        return url
    if "://" not in url or url.startswith("file://"):
        raise InvalidInputError(
            f"The store at {url} takes no profile, but {profile!r} was given.",
            hint="Leave the option profile out.",
        )
    return f"{url}{_MARK}{profile}"


def split_profile(address: str) -> tuple[str, str | None]:
    """What `with_profile` was given; a folder may have any name."""
    if "://" not in address or address.startswith("file://"):
        return address, None
    url, _, profile = address.partition(_MARK)
    return url, profile or None
