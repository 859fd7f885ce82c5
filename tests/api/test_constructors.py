"""Constructors stay small: what belongs together is passed as one value."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import spark_pages

PACKAGE = Path(spark_pages.__file__).parent
MOST_PARAMETERS = 6


def constructors() -> Iterator[tuple[str, int]]:
    """Every ``__init__`` and ``__new__`` that is written out, and its parameters beside ``self``."""
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            for member in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(member, ast.FunctionDef) and member.name in ("__init__", "__new__"):
                    given = member.args
                    count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
                    yield f"{file.relative_to(PACKAGE)}: {node.name}", count


def test_no_constructor_takes_more_than_six_parameters() -> None:
    # given
    found = list(constructors())
    # then
    assert len(found) > 100, "the search finds constructors"
    assert [each for each in found if each[1] > MOST_PARAMETERS] == []
