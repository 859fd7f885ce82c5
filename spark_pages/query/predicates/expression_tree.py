"""What statistics can use of an Arrow expression, and which columns it reads. Pure.

Arrow gives no way to look into an expression, but it can write one down, for pickling: as the metadata of a
schema in which calls, fields and literals stand in order, and a record batch with the values. That is read
here. Where anything in it is not as expected, as it may be in another release of Arrow, the expression is
tested exactly all the same, on every page.

Reading is iterative, and a chain of AND or OR becomes one node with many parts: an expression that a caller
has joined condition by condition is as deep as it has conditions.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_pages.errors import InvalidInputError, SparkPagesError
from spark_pages.query.predicates.large_predicates import (
    LARGEST,
    JoinedPredicate,
    Predicate,
    serialized,
)
from spark_pages.query.predicates.predicate import (
    ANY_ROW,
    NO_ROW,
    AllOf,
    Condition,
    Tree,
    all_of,
    any_of,
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
    predicate
        The same test, in parts of a size that Arrow can evaluate.
    """

    columns: tuple[str, ...] | None
    tree: Tree
    predicate: Predicate


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
    words: range
    depth: int
    conditions: int
    """Calls in it, without those of AND and OR."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    words: range


@dataclass(frozen=True, slots=True)
class _Literal:
    value: pa.Scalar
    words: range


@dataclass(frozen=True, slots=True)
class _Nested:
    """A field inside of a column."""

    name: str
    words: range


_Node = _Call | _Field | _Literal | _Nested

_CHAINS = frozenset({"and_kleene", "or_kleene", "and", "or"})
_DEEPEST = 256
"""Calls inside of each other, beside chains: Arrow evaluates them by recursion."""


def expression_parts(expression: pc.Expression) -> ExpressionParts:
    """Columns, conditions and test of an expression.

    Raises
    ------
    InvalidInputError
        If it is nested so deep that evaluating it would exhaust the stack.
    """
    try:
        buffer = serialized(expression)
        with pa.ipc.open_file(buffer) as reader:
            batch = reader.get_batch(0)
        written = _Written(_metadata(batch.schema), batch)
        root = written.root()
        columns = tuple(dict.fromkeys(_columns(root)))
    except SparkPagesError:
        raise  # also a ValueError
    except (pa.ArrowException, LookupError, ValueError, struct.error):
        return ExpressionParts(None, ANY_ROW, expression)
    if _depth(root) > _DEEPEST:
        raise InvalidInputError(
            f"Cannot use the filter: it is nested {_depth(root):,} deep, and at most {_DEEPEST} levels are "
            f"supported.",
            hint="Join conditions by AND or OR, which count as one level, as do the values of `IN (…)`.",
        )
    large = _conditions(root) > LARGEST
    return ExpressionParts(columns, _truth(root).true, written.test(root) if large else expression)


@dataclass(slots=True)
class _Opened:
    """A call whose end has not been read; `inside` counts the calls that it has taken in."""

    function: str
    start: int
    arguments: list[_Node] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    inside: int = 0

    def closed(self, stop: int) -> _Call:
        """Return the completed call."""
        depth = 1 + max(map(_depth, self.arguments), default=0)
        if self.function in _CHAINS:
            conditions = sum(max(1, _conditions(part)) for part in self.arguments)
        else:
            conditions = 1 + sum(map(_conditions, self.arguments))
        words = range(self.start, stop)
        return _Call(self.function, tuple(self.arguments), self.options, words, depth, conditions)


class _Written:
    """An expression as Arrow writes it down.

    Parameters
    ----------
    words
        Calls, fields and literals in order.
    batch
        The values, to which words refer by their number.
    """

    def __init__(self, words: list[tuple[str, str]], batch: pa.RecordBatch) -> None:
        self._words = words
        self._batch = batch

    def root(self) -> _Node:
        """Return the expression as a tree.

        Raises
        ------
        ValueError, LookupError
            If anything else is written than is known here.
        """
        opened: list[_Opened] = []
        done: list[_Node] = []
        index = 0
        while index < len(self._words):
            (word, value), start = self._words[index], index
            index += 1
            into = opened[-1].arguments if opened else done
            match word:
                case "call" if opened and value in _CHAINS and opened[-1].function == value:
                    opened[-1].inside += 1  # a chain in a chain of the same function is part of it
                case "call":
                    opened.append(_Opened(value, start))
                case "end" if opened[-1].inside and opened[-1].function == value:
                    opened[-1].inside -= 1
                case "end":
                    call = opened.pop()
                    if value != call.function:
                        raise ValueError(f"an expression ends {value!r} where {call.function!r} began")
                    (opened[-1].arguments if opened else done).append(call.closed(index))
                case "options":
                    told = self._batch.column(int(value))[0]
                    opened[-1].options.update({name: _plain(told[name]) for name in told.type.names})
                case "field_ref":
                    into.append(_Field(value, range(start, index)))
                case "nested_field_ref":
                    index += int(value)
                    into.append(_Nested(self._words[start + 1][1], range(start, index)))
                case "literal":
                    into.append(_Literal(self._batch.column(int(value))[0], range(start, index)))
                case _:
                    raise ValueError(f"an expression holds {word!r}")
        (root,) = done if not opened else []
        return root

    def test(self, node: _Node) -> Predicate:
        """The test of a node, in parts."""
        match node:
            case _Call(function, parts) if function in _CHAINS and node.conditions > LARGEST:
                return JoinedPredicate(function, tuple(self._grouped(function, parts)))
            case _Call("invert", (part,)) if _conditions(part) > LARGEST:
                return ~self.test(part)
        return self._read_back("", [node])

    def _grouped(self, function: str, parts: tuple[_Node, ...]) -> Iterator[Predicate]:
        """Iterate over the parts of a chain, with neighbours joined while they stay small."""
        group: list[_Node] = []
        size = 0
        for part in parts:
            if group and size + _conditions(part) > LARGEST:
                yield self._read_back(function, group)
                group, size = [], 0
            if _conditions(part) > LARGEST:
                yield self.test(part)
                continue
            group.append(part)
            size += _conditions(part)
        if group:
            yield self._read_back(function, group)

    def _read_back(self, function: str, nodes: list[_Node]) -> pc.Expression:
        """Return the expression of nodes, joined by a function."""
        columns: list[pa.Array] = []
        words: list[tuple[str, str]] = []
        for word, value in self._joined(function, nodes):
            if word in ("literal", "options"):
                columns.append(self._batch.column(int(value)))
                words.append((word, str(len(columns) - 1)))
            else:
                words.append((word, value))
        schema = pa.schema([pa.field("", column.type) for column in columns], pa.KeyValueMetadata(words))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(_one_row(columns, schema))
        read, _ = pc.scalar(True).__reduce__()
        return read(sink.getvalue())

    def _joined(self, function: str, nodes: list[_Node]) -> Iterator[tuple[str, str]]:
        if len(nodes) == 1:
            (node,) = nodes
            # A chain is flat here, and deep where it was written: it is joined anew.
            if isinstance(node, _Call) and node.function in _CHAINS:
                yield from self._joined(node.function, list(node.arguments))
            elif isinstance(node, _Call):
                yield ("call", node.function)
                yield from (word for each in node.arguments for word in self._joined("", [each]))
                yield from self._after_arguments(node)
            else:
                yield from self._words[node.words.start : node.words.stop]
            return
        middle = len(nodes) // 2
        yield ("call", function)
        yield from self._joined(function, nodes[:middle])
        yield from self._joined(function, nodes[middle:])
        yield ("end", function)

    def _after_arguments(self, node: _Call) -> Iterator[tuple[str, str]]:
        last = node.arguments[-1].words.stop if node.arguments else node.words.start + 1
        yield from self._words[last : node.words.stop]


def _one_row(columns: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([]))).replace_schema_metadata(
        schema.metadata
    )


def _depth(node: _Node) -> int:
    return node.depth if isinstance(node, _Call) else 0


def _conditions(node: _Node) -> int:
    return node.conditions if isinstance(node, _Call) else 0


def _plain(option: pa.Scalar) -> Any:
    """Return an option. Lists stay Arrow values, because Python cannot hold all of them."""
    if not isinstance(option, pa.ListScalar):
        return option.as_py()
    return [value if value.is_valid else None for value in option.values or ()]


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


def _columns(root: _Node) -> Iterator[str]:
    left = [root]
    while left:
        node = left.pop()
        if isinstance(node, _Field | _Nested):
            yield node.name
        elif isinstance(node, _Call):
            left.extend(reversed(node.arguments))


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
            return _Truth(all_of([t.true for t in truths]), any_of([t.false for t in truths]))
        case _Call("or_kleene" | "or", parts, _):
            truths = [_truth(part) for part in parts]
            return _Truth(any_of([t.true for t in truths]), all_of([t.false for t in truths]))
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
