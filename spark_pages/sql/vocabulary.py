"""Which nodes of sqlglot's trees are understood here, and which arguments of each. Pure.

sqlglot parses far more than any translation of its trees handles: what it puts into an argument that nobody
reads would be left out silently, and the statement would mean something else. So each tree is walked once,
before it is used, and must consist of nodes and arguments of a vocabulary: one for queries, one for each
statement of DDL, one for filters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from sqlglot import exp

Vocabulary: TypeAlias = Mapping[type[exp.Expr], frozenset[str]]
"""The arguments of each node; those that hold names, and nothing else, have a ``!`` behind them."""

DEEPEST = 250
"""Levels of a tree, beside chains of AND and OR: translations work by recursion."""

Refusal: TypeAlias = Callable[[exp.Expr, str | None], Exception]
"""Makes the error for a node; the text says what about it is not understood, None that it is the node."""

_CHAINS = (exp.And, exp.Or)


def vocabulary(**nodes: str) -> dict[type[exp.Expr], frozenset[str]]:
    """Nodes by the names of their classes, each with its arguments."""
    return {getattr(exp, name): frozenset(arguments.split()) for name, arguments in nodes.items()}


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
        if arguments is None:
            raise refused(node, None)
        if depth > DEEPEST:
            raise refused(node, f"nesting of more than {DEEPEST} levels")
        for key, value in node.args.items():
            if value is None or value is False or value == []:
                continue
            named = f"{key}!" in arguments
            if not named and key not in arguments:
                raise refused(node, f"{_words(node)} with {_words(key)}")
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, exp.Expr):
                    if named and not isinstance(child, exp.Identifier):
                        raise refused(child, None)
                    chained = type(child) is type(node) and isinstance(child, _CHAINS)
                    left.append((child, depth if chained else depth + 1))
                elif isinstance(child, list):
                    raise refused(node, f"{_words(node)} with {_words(key)}")


def _words(what: exp.Expr | str) -> str:
    """The name of a node or an argument, as SQL would say it."""
    name = what if isinstance(what, str) else what.key
    return name.strip("_").replace("_", " ").upper()
