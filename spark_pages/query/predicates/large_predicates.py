"""Tests of rows with more conditions than one Arrow expression can hold. Pure.

Arrow plans and evaluates an expression by recursion, in time that grows with the square of its conditions:
500 take 50 ms, and 20,000 exhaust the stack. So a large test is one of many small expressions, whose answers
are joined.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.errors import InvalidInputError

LARGEST = 64
"""Conditions of one Arrow expression: up to here its time grows with their number."""

_STACK_BYTES = 512 << 20
"""Address space, of which no more is used than an expression needs: enough for a million levels."""

_stack_size = threading.Lock()

_OPPOSITE = {"and_kleene": "or_kleene", "or_kleene": "and_kleene", "and": "or", "or": "and"}


@dataclass(frozen=True, eq=False, slots=True)
class JoinedPredicate:
    """Tests with AND or OR between them.

    Attributes
    ----------
    function
        Arrow's name of AND or OR.
    parts
        The tests, one at least.
    """

    function: str
    parts: tuple[Predicate, ...]

    def __invert__(self) -> JoinedPredicate:
        """Negate by De Morgan, which holds for unknown values too."""
        return JoinedPredicate(_OPPOSITE[self.function], tuple(~part for part in self.parts))


Predicate: TypeAlias = pc.Expression | JoinedPredicate


def evaluated(table: pa.Table, test: Predicate) -> pa.ChunkedArray:
    """Evaluate a test for each row: true, false or null.

    Raises
    ------
    pyarrow.ArrowException, TypeError
        If it does not fit the columns or a row.
    """
    if isinstance(test, JoinedPredicate):
        answers = (evaluated(table, part) for part in test.parts)
        return reduce(lambda one, two: pc.call_function(test.function, [one, two]), answers)
    from pyarrow.acero import (  # noqa: PLC0415 - imports pandas and pyarrow.dataset
        Declaration,
        ProjectNodeOptions,
        TableSourceNodeOptions,
    )

    source = Declaration("table_source", TableSourceNodeOptions(table))
    project = Declaration("project", ProjectNodeOptions([test], ["answer"]))
    return Declaration.from_sequence([source, project]).to_table(use_threads=False).column(0)


def balanced(parts: Sequence[Any], join: Callable[[Any, Any], Any]) -> Any:
    """Join parts to a tree of logarithmic depth."""
    left = list(parts)
    while len(left) > 1:
        pairs = [join(one, two) for one, two in zip(left[::2], left[1::2], strict=False)]
        left = [*pairs, *left[2 * len(pairs) :]]
    return left[0]


def serialized(expression: pc.Expression) -> pa.Buffer:
    """Serialize the expression as Arrow does.

    Notes
    -----
    Arrow writes by recursion, and nothing tells how deep an expression is. So it is done in a thread whose
    stack suffices, for 0.1 ms.
    """
    found: list[pa.Buffer] = []
    failed: list[Exception] = []

    def write() -> None:
        try:
            found.append(expression.__reduce__()[1][0])
        except (pa.ArrowException, MemoryError) as error:
            failed.append(error)

    try:
        with _stack_size:
            before = threading.stack_size(_STACK_BYTES)
            try:
                writer = threading.Thread(target=write, name="spark-pages-expression")
                writer.start()
            finally:
                threading.stack_size(before)
        writer.join()
    except (RuntimeError, ValueError) as error:  # no room for a thread, or no control of its stack
        raise InvalidInputError(
            f"Cannot use the filter: no thread could be started to read it ({error}).",
            hint="Raise the limit of threads or of address space: `ulimit -u`, `ulimit -v`.",
        ) from error
    if failed:
        raise failed[0]
    return found[0]
