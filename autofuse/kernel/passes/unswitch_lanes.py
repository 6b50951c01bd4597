"""unswitch_lanes: lanes that all choose alike do so before they start.

Before: lane l {out[l] = r < 1 ? 0 : x[l] + y[l]}
After:  when r >= 1 {lane l {out[l] = x[l] + y[l]}}; when r < 1 {lane l {out[l] = 0}}
Loop unswitching (LLVM's SimpleLoopUnswitch), on what most conditions are together: the inner rows
of an array have a loop without its borders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from autofuse.kernel.ir.indices import mentions
from autofuse.kernel.ir.spelling import Spelling
from autofuse.kernel.ir.types import (
    Kernel,
    Loop,
    LoopKind,
    Stmt,
    expressions,
    has_loop,
    names_written,
    walk,
)
from autofuse.kernel.passes.lane_loops import lane_loops_rewritten
from autofuse.kernel.passes.lanes_inward import varying_names
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.positions import CONTRARY, mostly
from autofuse.ops.scalar import COMPARISONS, Call, Expr, Lit, Sym

BOOL, I64 = DType.BOOL, DType.I64
# Shorter loops gain too little, larger bodies are not printed twice.
LEAST_LANES, MOST_STATEMENTS, MOST_CONDITIONS = 8, 400, 32


def unswitch_lanes(kernel: Kernel) -> Kernel:
    """Two versions of each lane loop that selects by conditions that no lane changes."""
    return lane_loops_rewritten(kernel, _versions)


def _versions(lane: Loop, known: Spelling) -> list[Stmt]:
    if (lane.var.extent or 0) < LEAST_LANES or len(lane.body) > MOST_STATEMENTS:
        return [lane]
    if has_loop(lane.body):
        return [lane]
    facts = dict(_usual(lane, known))
    if not 0 < len(facts) <= MOST_CONDITIONS:
        return [lane]
    usual: Expr = Lit(True, BOOL)
    for condition, value in facts.items():
        usual = ix.iand(usual, condition if value.value else _contrary(condition))
    # Of a single condition the other version knows the contrary, of several nothing.
    contrary = {c: Lit(not v.value, BOOL) for c, v in facts.items()} if len(facts) == 1 else {}
    return [
        _when(f"{lane.var.name}_u", usual, _with(lane, known, facts)),
        _when(f"{lane.var.name}_v", _contrary(usual), _with(lane, known, contrary)),
    ]


def _contrary(condition: Expr) -> Expr:
    if isinstance(condition, Call) and condition.fn in CONTRARY:
        return Call(CONTRARY[condition.fn], condition.args, BOOL)
    return Call("not", (condition,), BOOL)


def _when(name: str, condition: Expr, lane: Loop) -> Loop:
    return Loop(LoopKind.WHEN, Sym(name, I64, 1), condition, (lane,))


def _with(lane: Loop, known: Spelling, facts: dict[Expr, Lit]) -> Loop:
    return replace(lane, body=known.inner(facts).rewritten(lane.body)) if facts else lane


def _usual(lane: Loop, known: Spelling) -> Iterator[tuple[Expr, Lit]]:
    """The conditions, the same for all lanes, by which numbers are selected, and what they are
    mostly; not those of names that only the loop has, such as what a load gave."""
    inner = known.inner()
    varying = varying_names(lane).union(*map(names_written, lane.body))
    for stmt in lane.body:
        for condition in _conditions(expressions(stmt)):
            for e in walk(inner.settled(condition)):
                if isinstance(e, Call) and e.fn in COMPARISONS and not mentions(e, varying):
                    value = mostly(e.fn, *e.args)
                    if value is not None:
                        yield e, Lit(value, BOOL)
        inner.note(stmt)


def _conditions(exprs: Iterable[Expr]) -> Iterator[Expr]:
    for expr in exprs:
        for e in walk(expr):
            if isinstance(e, Call) and e.fn == "select" and e.dtype is not I64:
                yield e.args[0]
