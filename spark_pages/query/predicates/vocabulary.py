"""Which nodes of sqlglot's trees are understood here, and which arguments of each. Pure.

sqlglot parses far more than any translation of its trees handles: what it puts into an argument that nobody
reads would be left out silently, and the statement would mean something else. So each tree is walked once,
before it is used, and must consist of nodes and arguments of a vocabulary: one for queries, one for each
statement of DDL, one for filters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from sqlglot import exp

from spark_pages.query.predicates.duckdb_functions import BY_NAME, FEWEST_ARGUMENTS, FUNCTIONS

Vocabulary: TypeAlias = Mapping[type[exp.Expr], Mapping[str, tuple[type[exp.Expr], ...]]]
"""The arguments of each node, and the nodes that each may hold; none are named where it may hold any."""

DEEPEST = 250
"""Levels of a tree, beside chains of AND and OR: translations work by recursion."""

Refusal: TypeAlias = Callable[[exp.Expr, str | None], Exception]
"""Makes the error for a node; the text says what about it is not understood, None that it is the node."""

_WORD = re.compile(r"[\w.]+")

_CHAINS = (exp.And, exp.Or)


def vocabulary(**nodes: str) -> dict[type[exp.Expr], Mapping[str, tuple[type[exp.Expr], ...]]]:
    """Nodes by the names of their classes, each with its arguments.

    An argument may be followed by ``:`` and the nodes that it may hold, with ``|`` between them; ``!`` stands
    for a name.
    """
    return {getattr(exp, name): dict(map(_argument, arguments.split())) for name, arguments in nodes.items()}


def _argument(text: str) -> tuple[str, tuple[type[exp.Expr], ...]]:
    name, _, held = text.replace("!", ":Identifier").partition(":")
    return name, tuple(getattr(exp, each) for each in held.split("|") if each)


def check(tree: exp.Expr, known: Vocabulary, refused: Refusal) -> None:
    """Raise the refusal of the first node, or argument of a node, that is not in the vocabulary.

    Notes
    -----
    Iterative: trees are as deep as chains of conditions are long.
    """
    left: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while left:
        node, depth = left.pop()
        arguments = known.get(type(node))
        if arguments is None or (isinstance(node, exp.Anonymous) and not _is_pure(node)):
            raise refused(node, None)
        if isinstance(node, exp.Var) and _WORD.fullmatch(node.name) is None:
            raise refused(node, None)  # it is written without quotes
        if depth > DEEPEST:
            raise refused(node, f"nesting of more than {DEEPEST} levels")
        for key, value in node.args.items():
            if value is None or value is False or value == []:
                continue
            if key not in arguments:
                raise refused(node, f"{_words(node)} with {_words(key)}")
            held = arguments[key]
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, exp.Expr):
                    if held and not isinstance(child, held):
                        raise refused(child, None)
                    chained = type(child) is type(node) and isinstance(child, _CHAINS)
                    left.append((child, depth if chained else depth + 1))
                elif isinstance(child, list):
                    raise refused(node, f"{_words(node)} with {_words(key)}")


def _is_pure(call: exp.Anonymous) -> bool:
    name, given = call.name.lower(), call.expressions
    if name in BY_NAME and not (
        len(given) > 1
        and isinstance(given[1], exp.Literal)
        and given[1].is_string
        and given[1].name.lower() in FUNCTIONS
    ):
        return False
    return name in FUNCTIONS and len(given) >= FEWEST_ARGUMENTS.get(name, 0)


def _words(what: exp.Expr | str) -> str:
    """The name of a node or an argument, as SQL would say it."""
    name = what if isinstance(what, str) else what.key
    return name.strip("_").replace("_", " ").upper()
