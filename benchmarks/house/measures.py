"""Counts of one file: lines, functions that are long, branch much or take much."""

from __future__ import annotations

import ast
from collections.abc import Iterator

LONG_LINES, MANY_BRANCHES, MANY_PARAMETERS = 40, 10, 7

Function = ast.FunctionDef | ast.AsyncFunctionDef
_BRANCHES = (
    ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert,
    ast.match_case,
)  # fmt: skip
_OWN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def measures(tree: ast.Module) -> dict[str, int]:
    """How many functions of a file exceed each of the limits above."""
    functions = [n for n in statements(tree) if isinstance(n, Function)]
    return {
        f"functions over {LONG_LINES} lines": sum(code_lines(f) > LONG_LINES for f in functions),
        f"complexity over {MANY_BRANCHES}": sum(complexity(f) > MANY_BRANCHES for f in functions),
        f"{MANY_PARAMETERS} or more parameters": sum(
            parameters(f) >= MANY_PARAMETERS for f in functions
        ),
    }


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement in a node, however deep, and what holds statements: functions and imports
    are found without a look at expressions."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, field, ()):
            yield child
            yield from statements(child)


def code_lines(function: Function) -> int:
    """Lines of a function without its docstring."""
    lines = _span(function)
    return lines - _span(function.body[0]) if ast.get_docstring(function) is not None else lines


def _span(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def complexity(function: Function) -> int:
    """Branches + 1 (McCabe, "A Complexity Measure", 1976), with one for each `and`, `or` and
    condition of a comprehension; functions inside count for themselves."""
    return 1 + sum(_branches(node) for node in _inside(function))


def _branches(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return int(isinstance(node, _BRANCHES))


def _inside(function: Function) -> Iterator[ast.AST]:
    left = [*ast.iter_child_nodes(function)]
    while left:
        node = left.pop()
        if not isinstance(node, _OWN):
            yield node
            left.extend(ast.iter_child_nodes(node))


def parameters(function: Function) -> int:
    """Parameters that a caller may give, without `self` and `cls`."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    starred = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    own = bool(named) and named[0].arg in ("self", "cls")
    return len(named) + len(starred) - own
