"""What statistics can use of an Arrow expression, and which columns it reads. Pure.

Arrow gives no way to look into an expression, but it can write one down, for pickling: as the metadata of a
schema in which calls, fields and literals stand in order, and a record batch with the values. That is read
here. Where anything in it is not as expected, as it may be in another release of Arrow, the expression is
tested exactly all the same, on every page.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.tables.filtering.filter_tree import (
    ANY_ROW,
    NO_ROW,
    AllOf,
    AnyOf,
    Condition,
    Tree,
    beginning_with,
)

_FLIPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_COMPARISONS = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}


@dataclass(frozen=True, eq=False, slots=True)
class ExpressionParts:
    """What is known of an expression.

    Attributes
    ----------
    columns
        Columns that it reads, each once; None where that cannot be told.
    tree
        Met by every row for which it is true.
    """

    columns: tuple[str, ...] | None
    tree: Tree


@dataclass(frozen=True, slots=True)
class _Truth:
    """What holds of rows for which a part is true, and of rows for which it is false; it may be null as well.

    A comparison of NaN is false, and so is its opposite: NaN is among the rows for which ``x > 5`` is false.
    """

    true: Tree
    false: Tree


_ANYTHING = _Truth(ANY_ROW, ANY_ROW)
_NEITHER = _Truth(NO_ROW, NO_ROW)


@dataclass(frozen=True, slots=True)
class _Call:
    function: str
    arguments: tuple[_Node, ...]
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Field:
    name: str


@dataclass(frozen=True, slots=True)
class _Literal:
    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class _Nested:
    """A field inside of a column."""

    name: str


_Node = _Call | _Field | _Literal | _Nested


def expression_parts(expression: pc.Expression) -> ExpressionParts:
    """Columns and conditions of an expression."""
    try:
        root = _decoded(expression)
    except (pa.ArrowException, LookupError, ValueError, StopIteration, struct.error, RecursionError):
        return ExpressionParts(None, ANY_ROW)
    return ExpressionParts(tuple(dict.fromkeys(_columns(root))), _truth(root).true)


def _decoded(expression: pc.Expression) -> _Node:
    """The expression as Arrow writes it down.

    Raises
    ------
    ValueError, LookupError
        If it writes something else than is known here.
    """
    _, (data,) = expression.__reduce__()
    with pa.ipc.open_file(data) as reader:
        batch = reader.get_batch(0)
    return _next_node(iter(_metadata(batch.schema)), batch)


def _next_node(words: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> _Node:
    word, value = next(words)
    match word:
        case "field_ref":
            return _Field(value)
        case "nested_field_ref":
            (name, *_) = [next(words)[1] for _ in range(int(value))]
            return _Nested(name)
        case "literal":
            return _Literal(batch.column(int(value))[0])
        case "call":
            return _call(value, words, batch)
    raise ValueError(f"an expression holds {word!r}")


def _call(function: str, words: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> _Call:
    arguments: list[_Node] = []
    options: dict[str, Any] = {}
    pending = list(_until_end(function, words))
    inner = iter(pending)
    for word, value in inner:
        if word == "options":
            told = batch.column(int(value))[0]
            options = {name: _plain(told[name]) for name in told.type.names}
        else:
            arguments.append(_next_node(_again((word, value), inner), batch))
    return _Call(function, tuple(arguments), options)


def _plain(option: pa.Scalar) -> Any:
    """An option; lists stay Arrow's values, of which Python cannot hold all."""
    if not isinstance(option, pa.ListScalar):
        return option.as_py()
    return [value if value.is_valid else None for value in option.values or ()]


def _until_end(function: str, words: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """What stands before the end of the call that has just begun."""
    depth = 1
    for word, value in words:
        depth += {"call": 1, "end": -1}.get(word, 0)
        if not depth:
            if value != function:
                raise ValueError(f"an expression ends {value!r} where {function!r} began")
            return
        yield word, value
    raise ValueError(f"an expression does not end {function!r}")


def _again(first: tuple[str, str], rest: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    yield first
    yield from rest


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """Keys and values of a schema's metadata in order, also those that come twice, which a dict would lose.

    Notes
    -----
    By the Arrow C data interface: the third pointer of ArrowSchema leads to them.
    """
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = (ctypes.c_void_p * 3).from_address(pointer(capsule, b"arrow_schema"))[2]
    if not address:
        return []

    def number() -> int:
        nonlocal address
        (found,) = struct.unpack("=i", ctypes.string_at(address, 4))
        address += 4
        return int(found)

    def text() -> str:
        nonlocal address
        length = number()
        found = ctypes.string_at(address, length).decode()
        address += length
        return found

    return [(text(), text()) for _ in range(number())]


def _columns(node: _Node) -> Iterator[str]:
    match node:
        case _Field(name) | _Nested(name):
            yield name
        case _Call(_, arguments, _):
            for argument in arguments:
                yield from _columns(argument)


def _truth(node: _Node) -> _Truth:
    match node:
        case _Field(name):
            return _Truth(Condition(name, "==", True), Condition(name, "==", False))
        case _Literal(value):
            if not value.is_valid:
                return _NEITHER
            return _Truth(ANY_ROW, NO_ROW) if value.as_py() is True else _Truth(NO_ROW, ANY_ROW)
        case _Call("and_kleene" | "and", parts, _):
            truths = [_truth(part) for part in parts]
            return _Truth(AllOf(tuple(t.true for t in truths)), AnyOf(tuple(t.false for t in truths)))
        case _Call("or_kleene" | "or", parts, _):
            truths = [_truth(part) for part in parts]
            return _Truth(AnyOf(tuple(t.true for t in truths)), AllOf(tuple(t.false for t in truths)))
        case _Call("invert", (part,), _):
            truth = _truth(part)
            return _Truth(truth.false, truth.true)
        case _Call("is_null", (_Field(name),), {"nan_is_null": False}):
            return _Truth(Condition(name, "is null"), Condition(name, "is not null"))
        case _Call("is_valid", (_Field(name),), _):
            return _Truth(Condition(name, "is not null"), Condition(name, "is null"))
        case _Call("if_else", (_Call("is_valid"), part, _Literal(value)), _) if not value.is_valid:
            return _truth(part)  # so DuckDB says that something holds, or is null
        case _Call("is_in", (_Field(name),), {"value_set": list(values), "null_matching_behavior": 0}):
            return _Truth(Condition(name, "in", values), ANY_ROW)
        case _Call("starts_with", (_Field(name),), {"pattern": str(pattern), "ignore_case": False}):
            return _Truth(AllOf(beginning_with(name, pattern)), Condition(name, "is not null"))
        case _Call(function, (_Field(name), _Literal(value)), _) if function in _COMPARISONS:
            return _compared(name, _COMPARISONS[function], value)
        case _Call(function, (_Literal(value), _Field(name)), _) if function in _COMPARISONS:
            return _compared(name, _FLIPPED[_COMPARISONS[function]], value)
    return _ANYTHING


def _compared(column: str, operator: str, value: pa.Scalar) -> _Truth:
    if not value.is_valid:
        return _NEITHER
    opposite = Condition(column, _OPPOSITE[operator], value, or_nan=True)
    return _Truth(Condition(column, operator, value), opposite)
