"""Labels: names that stay different where case does not count, as DuckDB wants them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from spark_pages.model.names import fold_name


class Labels:
    """Gives each name a label that no other has.

    Parameters
    ----------
    taken
        What is not to be given.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {fold_name(name) for name in taken}

    def label(self, name: str) -> str:
        """The name itself, or with a number behind where it is taken; without NUL, which ends names in C."""
        name = name.replace("\0", "?")
        found, number = name, 0
        while fold_name(found) in self._taken:
            number += 1
            found = f"{name}_{number}"
        self._taken.add(fold_name(found))
        return found


def labels_of(names: Iterable[str]) -> list[str]:
    """A label for each of the names."""
    labels = Labels()
    return [labels.label(name) for name in names]


def quoted(name: str) -> exp.Identifier:
    """The name in quotes."""
    return exp.Identifier(this=name, quoted=True)
