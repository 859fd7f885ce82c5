"""Every place of the source that makes an error of our tree, with its message and hint as templates."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import spark_pages
from spark_pages import errors

ROOT = Path(spark_pages.__file__).parent
CLASSES = {
    name
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, errors.SparkPagesError)
}


@dataclass(frozen=True)
class RaisedError:
    """One call of an error class; `{…}` stands for values that are filled in."""

    file: str
    line: int
    function: str
    kind: str
    message: str
    hint: str | None

    @property
    def place(self) -> str:
        return f"{self.file}:{self.function}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.kind}({self.message!r}, hint={self.hint!r})"


def raised_errors() -> list[RaisedError]:
    """All of them."""
    return [each for path in sorted(ROOT.rglob("*.py")) for each in errors_of(path)]


def errors_of(path: Path) -> list[RaisedError]:
    """Those of one module."""
    return list(_found_in(ast.parse(path.read_text()), path.relative_to(ROOT).as_posix(), "module"))


def _found_in(node: ast.AST, file: str, function: str) -> Iterator[RaisedError]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and (kind := _name(child.func)) in CLASSES:
            message = template(child.args[0]) if child.args else ""
            hints = [template(each.value) for each in child.keywords if each.arg == "hint"]
            yield RaisedError(file, child.lineno, function, kind, message, hints[0] if hints else None)
        inner = isinstance(child, ast.FunctionDef | ast.ClassDef)
        yield from _found_in(child, file, child.name if inner else function)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def template(node: ast.expr) -> str:
    """Return the text of an expression, where it is one; the expression in braces otherwise."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(template, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return template(left) + template(right)
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
    return f"{{{ast.unparse(node)}}}"
