"""A slow evaluator of kernels, lanes at once: what a pass must not change."""

from __future__ import annotations

import numpy as np

from autofuse.kernel.ir.types import Kernel, Let, Local, Loop, Stmt, Store
from autofuse.ops.scalar import Expr
from tests.support.expr_eval import Env, Evaluator


def run(kernel: Kernel, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a kernel without folds, poisoned beforehand; raises AssertionError for an
    access outside a buffer."""
    given = iter(inputs)
    env: Env = {}
    for p in kernel.params:
        taken = next(given).reshape(-1) if p.role == "in" else np.full(p.size, 77)
        env[p.name] = taken.astype(p.dtype.numpy)
        assert env[p.name].size == p.size
    _block(kernel.body, env)
    return [env[p.name] for p in kernel.params if p.role == "out"]


def _block(body: tuple[Stmt, ...], env: Env) -> None:
    scope = dict(env)
    for stmt in body:
        match stmt:
            case Let(sym, value):
                scope[sym.name] = _value(value, scope)
            case Local(name, dtype, size):
                scope[name] = np.full(size, 77, dtype.numpy)
            case Store(buffer, index, value):
                at = _value(index, scope)
                assert at.min() >= 0 and at.max() < scope[buffer].size, stmt
                scope[buffer][at] = _value(value, scope).astype(scope[buffer].dtype)
            case Loop(kind="when", extent=extent):
                if _value(extent, scope).all():
                    _block(stmt.body, scope)
            case Loop(kind=kind, var=var, extent=extent):
                many = np.arange(int(_value(extent, scope)[0]))
                for turn in (many,) if kind == "lane" else many:
                    if np.size(turn):
                        _block(stmt.body, {**scope, var.name: np.atleast_1d(turn)})
            case _:
                raise AssertionError(f"not evaluated: {stmt}")


def _value(expr: Expr, env: Env) -> np.ndarray:
    return Evaluator(env)(expr)
