"""Makes mutants of a Python module: copies that differ in one operator, constant or returned value."""
from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Mod: ast.Mult,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.And: ast.Or, ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutant:
    """One mutant."""

    line: int
    kind: str  # arithmetic, comparison, boolean, constant or return
    before: str
    after: str
    source: str  # of the whole module

    def __str__(self) -> str:
        return f"{self.line:4} {self.kind:10} {short(self.before)} -> {short(self.after)}"


def short(code: str, limit: int = 44) -> str:
    """Returns code in one line of at most limit characters."""
    return code if len(code) <= limit else code[:limit - 3] + "..."


def mutants(source: str) -> list[Mutant]:
    """Returns all mutants of a module, in the order of its lines."""
    found = []
    for index, node in enumerate(ast.walk(marked(source))):
        for kind, change in changes(node):
            tree = marked(source)
            copy = [*ast.walk(tree)][index]
            change(copy)
            after = ast.unparse(copy)
            found.append(Mutant(node.lineno, kind, ast.unparse(node), after, ast.unparse(tree)))  # type: ignore
    return sorted(found, key=lambda m: m.line)


def marked(source: str) -> ast.Module:
    """Parses a module. Docstrings are removed: their mutants would all survive."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], None]]]:
    """Yields the kinds of change that a node allows, each with a function that changes a copy of it."""
    match node:
        case ast.BinOp(op=op) if type(op) in SWAPS:
            yield "arithmetic", lambda n: setattr(n, "op", SWAPS[type(op)]())
        case ast.BoolOp(op=op):
            yield "boolean", lambda n: setattr(n, "op", SWAPS[type(op)]())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "boolean", lambda n: setattr(n, "operand", ast.UnaryOp(ast.Not(), operand))
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            yield "comparison", lambda n: setattr(n, "ops", [SWAPS[type(op)]()])
        case ast.Constant(value=bool(value)):
            yield "constant", lambda n: setattr(n, "value", not value)
        case ast.Constant(value=int(value)):
            yield "constant", lambda n: setattr(n, "value", value + 1)
        case ast.Constant(value=str(value)):
            # At the end of a regular expression, it also prevents every match after "$".
            yield "constant", lambda n: setattr(n, "value", value + "XX")
        case ast.Return(value=value) if value is not None:
            yield "return", lambda n: setattr(n, "value", ast.Constant(None))
