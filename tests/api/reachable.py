"""Public functions and classes, found from `spark_pages` by the annotations of what they return."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from typing import Any

import spark_pages as sp
from spark_pages import spark

PUBLIC = [getattr(of, name) for of in (sp, spark) for name in of.__all__ if name != "__version__"]


def reachable_functions() -> set[Any]:
    """Functions of `spark_pages` and `spark_pages.spark`."""
    return {each for each in PUBLIC if not isinstance(each, type)}


def reachable_classes() -> set[type]:
    """Classes of the library with methods of their own, that a caller can get hold of; errors have none."""
    known = dict(_classes())
    found: set[type] = set()
    todo = [each for each in PUBLIC if isinstance(each, type)]
    todo += [known[word] for each in reachable_functions() for word in _returned(each) if word in known]
    while todo:
        kind = todo.pop()
        if kind not in found and not issubclass(kind, BaseException):
            found.add(kind)
            members = [inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")]
            words = {word for each in members for word in _returned(each)}
            todo += [known[word] for word in words if word in known]
    return {kind for kind in found if own_methods(kind)}


def own_methods(kind: type) -> list[str]:
    """Public methods that the class does not have from a built-in one, such as text or a tuple."""
    built_in = {name for base in kind.__mro__ if not _is_ours(base) for name in vars(base)}
    return [
        name
        for name in dir(kind)
        if not name.startswith("_")
        and name not in built_in
        and _is_method(inspect.getattr_static(kind, name))
    ]


def _is_method(member: Any) -> bool:
    if isinstance(member, property | cached_property | Enum):
        return False
    return callable(member) or isinstance(member, staticmethod | classmethod)


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("spark_pages")


def _classes() -> Iterator[tuple[str, type]]:
    for name, module in list(sys.modules.items()):
        if name.startswith("spark_pages"):
            for each in list(vars(module).values()):
                if isinstance(each, type) and _is_ours(each):
                    yield each.__name__, each


def _returned(member: Any) -> list[str]:
    if isinstance(member, property):
        member = member.fget
    elif isinstance(member, cached_property):
        member = member.func
    inner = inspect.unwrap(getattr(member, "__func__", member)) if callable(member) else None
    return re.findall(r"\w+", str(getattr(inner, "__annotations__", {}).get("return", "")))
