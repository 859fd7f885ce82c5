"""Names of namespaces, tables and columns: how they are compared. One rule for every face.

Names are compared without regard to case, and the exact spelling wins. A name that is spelled like none of
several candidates is ambiguous. What is stored keeps its spelling.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_pages.errors import InvalidInputError


def fold_name(name: str) -> str:
    """Return the form of a name in which case does not matter: each character in Unicode lower case.

    Notes
    -----
    Spark compares so, and DuckDB does for ASCII letters, so names that either takes for one are one here.
    Character by character, because `str.lower` makes a final sigma depend on what stands before it.
    """
    return name.lower() if name.isascii() else "".join(map(str.lower, name))


def match_name(name: str, known: Iterable[str], kind: str = "column") -> str | None:
    """Return the known name that is meant, or None.

    Raises
    ------
    InvalidInputError
        If several differ from it, and from each other, by case only; names them.
    """
    names = list(known)
    if name in names:
        return name
    folded = fold_name(name)
    alike = [each for each in names if fold_name(each) == folded]
    if len(alike) > 1:
        raise ambiguous_name(kind, name, alike)
    return alike[0] if alike else None


def ambiguous_name(kind: str, name: str, candidates: Sequence[str]) -> InvalidInputError:
    """Make the error that names all candidates."""
    shown = list(dict.fromkeys(candidates))
    told = (
        f"it may be {' or '.join(map(repr, shown))}."
        if len(shown) > 1
        else f"several are called {shown[0]!r}."
    )
    advice = (
        f"Write it in full and exactly, such as {shown[0]!r}."
        if len(shown) > 1
        else "Give them different names by `AS`."
    )
    return InvalidInputError(f"Cannot choose a {kind} {name!r}: {told}", hint=advice, candidates=shown)
