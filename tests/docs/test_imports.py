"""The import graph, with imports for type checkers and inside functions counted like all others."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import KeysView
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import spark_pages as sp

PACKAGE = Path(sp.__file__).parent


def import_graph(package: Path) -> dict[str, set[str]]:
    """Which modules each module of a package imports anywhere in its text."""
    paths = {_name(package, path): path for path in package.rglob("*.py")}
    return {name: _imported(path, paths.keys()) for name, path in paths.items()}


def _name(package: Path, path: Path) -> str:
    return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path, modules: KeysView[str]) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{each.name}" for each in node.names} & modules
            found |= inner or {node.module}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found & modules


def order(graph: dict[str, set[str]]) -> list[str]:
    """The modules, each behind those that it imports."""
    return list(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize(
    "text",
    [
        "from pack.two import Two",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack.two import Two",
        "def one():\n    from pack import two",
    ],
    ids=["at the top", "for type checkers", "inside a function"],
)
def test_a_cycle_is_found_wherever_the_import_stands(tmp_path: Path, text: str) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "one.py").write_text(text, encoding="utf-8")
    (tmp_path / "pack" / "two.py").write_text("import pack.one", encoding="utf-8")

    with pytest.raises(CycleError):
        order(import_graph(tmp_path / "pack"))


def test_no_modules_import_each_other_for_type_checkers_or_inside_functions() -> None:
    assert len(order(import_graph(PACKAGE))) > 300


def test_the_import_contracts_count_imports_for_type_checkers() -> None:
    settings = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))

    assert "exclude_type_checking_imports" not in settings["tool"]["importlinter"]
    assert "ignore_imports" not in str(settings["tool"]["importlinter"]["contracts"])
