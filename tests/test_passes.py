"""What each pass does to a kernel, as text before and after, and what verify refuses."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from importlib import import_module

import pytest

from autofuse.kernel.ir.types import (
    Ahead,
    Assign,
    Fold,
    Kernel,
    Let,
    Local,
    Loop,
    LoopKind,
    Param,
    Stmt,
    Store,
    Var,
    statements,
)
from autofuse.kernel.passes import (
    block_folds,
    drop_dead,
    fuse_lanes,
    lanes_inward,
    stream_stores,
    verify,
)
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Lit, Load, Sym, call
from tests.support.kernel_texts import text

F32, I64 = DType.F32, DType.I64
PARAMS = (Param("x", F32, 4000, "in"), Param("out", F32, 4000, "out"))
r, lane, other, step = Sym("r", I64, 4), Sym("c", I64, 100), Sym("d", I64, 100), Sym("t", I64, 9)
s, m, v, e = Sym("s", F32), Sym("m", F32), Sym("v", F32), Sym("e", F32)


def kernel(*body: Stmt) -> Kernel:
    """The statements inside one grid loop."""
    return Kernel("k", PARAMS, (Loop(LoopKind.GRID, r, num(4), body),))


def num(n: int) -> Lit:
    return Lit(n, I64)


def lanes(var: Sym, *body: Stmt, folds: tuple[Fold, ...] = ()) -> Loop:
    assert var.extent is not None
    return Loop(LoopKind.LANE, var, num(var.extent), body, folds)


def add(a: Expr, b: Expr) -> Expr:
    return call("add", a, b)


def inner(k: Kernel) -> str:
    """The text inside the grid loop."""
    lines = str(k).splitlines()
    assert lines[1] == "  grid r < 4:i64"
    return textwrap.dedent("\n".join(lines[2:]))


ROW = (
    Local("row", F32, 100),
    lanes(lane, Store("row", lane, call("exp", Load("x", lane, F32)))),
    Var(s, Lit(0.0, F32)),
    lanes(other, Assign(s, add(s, Load("row", other, F32))), folds=(Fold(s, "add"),)),
)


def test_fuse_lanes_joins_a_row_and_its_sum() -> None:
    assert inner(kernel(*ROW)) == text("""
        local row: f32[100]
        lane c < 100:i64
          row[c] = exp(x[c])
        var s: f32 = 0.0:f32
        lane d < 100:i64 add->s
          s = add(s, row[d])
    """)
    assert inner(verify(fuse_lanes(kernel(*ROW)))) == text("""
        local row: f32[100]
        var s: f32 = 0.0:f32
        lane c < 100:i64 add->s
          row[c] = exp(x[c])
          s = add(s, row[c])
    """)


def test_fuse_lanes_waits_for_totals_and_for_other_lanes() -> None:
    needs_total = kernel(
        *ROW, lanes(lane, Store("out", lane, call("div", Load("row", lane, F32), s)))
    )
    fused = fuse_lanes(needs_total)
    assert inner(fused).count("lane") == 2
    flipped = call("sub", num(99), other)
    reads_others = kernel(*ROW[:2], lanes(other, Store("out", other, Load("row", flipped, F32))))
    assert fuse_lanes(reads_others) == reads_others
    short = Sym("d", I64, 50)
    unequal = kernel(*ROW[:2], lanes(short, Store("out", short, Load("row", short, F32))))
    assert fuse_lanes(unequal) == unequal


def test_lanes_inward_makes_the_lane_loop_innermost() -> None:
    body = (
        Var(s, Load("x", lane, F32)),
        Loop(LoopKind.SERIAL, step, num(9), (Assign(s, call("sin", s)),)),
        Store("out", lane, s),
    )
    assert inner(verify(lanes_inward(kernel(lanes(lane, *body))))) == text("""
        local s_l: f32[100]
        lane c < 100:i64
          s_l[c] = x[c]
        serial t < 9:i64
          lane c < 100:i64
            s_l[c] = sin(s_l[c])
        lane c < 100:i64
          out[c] = s_l[c]
    """)


def test_lanes_inward_leaves_uniform_values_outside() -> None:
    body = (
        Var(s, Load("x", lane, F32)),
        Loop(
            LoopKind.SERIAL, step, num(9),
            (Let(v, Load("x", step, F32)), Assign(s, add(s, v))),
        ),
        Store("out", lane, s),
    )  # fmt: skip
    assert "  let v: f32 = x[t]\n  lane c" in inner(
        verify(lanes_inward(kernel(lanes(lane, *body))))
    )


def test_lanes_inward_keeps_loops_whose_length_differs_by_lane() -> None:
    ragged = Loop(LoopKind.SERIAL, step, lane, (Assign(s, add(s, s)),))
    body = (Var(s, Load("x", lane, F32)), ragged, Store("out", lane, s))
    assert lanes_inward(kernel(lanes(lane, *body))) == kernel(lanes(lane, *body))


def test_lanes_inward_walks_a_long_body_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name is found varying as soon as it is met: a walk per name would take minutes."""
    names = [Sym(f"v{k}", F32) for k in range(500)]
    lets = [Let(b, add(a, a)) for a, b in zip([Sym("c", F32), *names[:-1]], names, strict=True)]
    again = Loop(LoopKind.SERIAL, step, num(9), (Assign(s, add(s, names[-1])),))
    walks: list[object] = []
    module = import_module("autofuse.kernel.passes.lanes_inward")
    read = module.names_read
    monkeypatch.setattr(module, "names_read", lambda x: (walks.append(x), read(x))[1])
    body = (*lets, Var(s, Lit(0.0, F32)), again)
    assert module.varying_names(lanes(lane, *body)) == {"c", "s", *(n.name for n in names)}
    assert len(walks) < 2 * len(lets)


def test_block_folds_keeps_an_accumulator_per_lane() -> None:
    fold = lanes(lane, Assign(m, call("max", m, Load("x", lane, F32))), folds=(Fold(m, "max"),))
    before = kernel(Var(m, Lit(float("-inf"), F32)), fold, Store("out", r, m))
    assert inner(verify(block_folds(before))) == text("""
        var m: f32 = -inf:f32
        local m_c: f32[64]
        lane c_w < 64:i64
          m_c[c_w] = m
        serial c_c < 1:i64
          lane c_w < 64:i64
            m_c[c_w] = max(m_c[c_w], x[add(mul(c_c, 64:i64), c_w)])
        lane c_w < 36:i64
          m_c[c_w] = max(m_c[c_w], x[add(64:i64, c_w)])
        lane c_w < 32:i64
          m_c[c_w] = max(m_c[c_w], m_c[add(c_w, 32:i64)])
        lane c_w < 16:i64
          m_c[c_w] = max(m_c[c_w], m_c[add(c_w, 16:i64)])
        lane c_w < 8:i64
          m_c[c_w] = max(m_c[c_w], m_c[add(c_w, 8:i64)])
        lane c_w < 4:i64
          m_c[c_w] = max(m_c[c_w], m_c[add(c_w, 4:i64)])
        lane c_w < 2:i64
          m_c[c_w] = max(m_c[c_w], m_c[add(c_w, 2:i64)])
        lane c_w < 1:i64
          m_c[c_w] = max(m_c[c_w], m_c[add(c_w, 1:i64)])
        m = max(m, m_c[0:i64])
        out[r] = m
    """)


def test_block_folds_counts_the_start_of_a_sum_once() -> None:
    element = Load("x", lane, F32)
    top, total = Assign(m, call("max", m, element)), Assign(s, add(s, element))
    both = lanes(lane, top, total, folds=(Fold(m, "max"), Fold(s, "add")))
    start = (Var(m, Lit(0.0, F32)), Var(s, Lit(7.0, F32)))
    done = inner(verify(block_folds(kernel(*start, both))))
    assert "m_c[c_w] = m\n" in done and "s_c[c_w] = 0.0:f32\n" in done
    only_sum = kernel(*start, lanes(lane, total, folds=(Fold(s, "add"),)))
    assert block_folds(only_sum) == only_sum


@pytest.mark.parametrize(("count", "element", "wide"), [
    (256, Load("x", Sym("l", I64, 256), F32), True),
    (255, Load("x", Sym("l", I64, 255), F32), False),
    (256, call("exp", Load("x", Sym("l", I64, 256), F32)), False),
], ids=["long", "short", "busy"])  # fmt: skip
def test_block_folds_widens_long_sums_of_what_is_cheap(
    count: int, element: Expr, wide: bool
) -> None:
    """A vector's additions wait for each other only where nothing else takes longer."""
    total = lanes(Sym("l", I64, count), Assign(s, add(s, element)), folds=(Fold(s, "add"),))
    before = kernel(Var(s, Lit(7.0, F32)), total, Store("out", r, s))
    done = verify(block_folds(before))
    assert (done != before) == wide
    assert ("s = add(s, s_l[0:i64])" in inner(done)) == wide


def test_drop_dead_removes_values_that_only_dead_values_read() -> None:
    body = (Let(v, Load("x", r, F32)), Let(e, call("exp", v)), Let(s, Load("x", r, F32)))
    before = kernel(*body, lanes(lane, Let(m, add(e, e)), Store("out", lane, s)))
    assert inner(verify(drop_dead(before))) == text("""
        let s: f32 = x[r]
        lane c < 100:i64
          out[c] = s
    """)


def test_drop_dead_knows_equal_names_of_segments_apart() -> None:
    """A value is not kept for another of its name in a later body."""
    dead, used = Let(v, Load("x", r, F32)), Let(s, Load("x", r, F32))
    segments = lanes(lane, dead, used, Store("out", lane, s)), lanes(lane, dead, Store("out", r, v))
    assert inner(verify(drop_dead(kernel(*segments)))) == text("""
        lane c < 100:i64
          let s: f32 = x[r]
          out[c] = s
        lane c < 100:i64
          let v: f32 = x[r]
          out[r] = v
    """)


MALFORMED = {
    "s is read before it is defined": (Store("out", r, s),),
    "v is defined twice": (Let(v, Lit(1.0, F32)), Let(v, Lit(2.0, F32))),
    "s is not writable here": (Assign(s, Lit(1.0, F32)),),
    "v is not writable here": (Let(v, Lit(1.0, F32)), Assign(v, Lit(2.0, F32))),
    "m is read before it is defined": (lanes(lane, folds=(Fold(m, "max"),)),),
    "y is read before it is defined": (Ahead("y", r, num(1), False),),
    "x is not writable": (Ahead("x", r, num(1), True),),
    "x is not writable here": (Store("x", r, Lit(1.0, F32)),),
    "row is read before it is defined": (Store("out", r, Load("row", r, F32)),),
    "row is defined twice": (Local("row", F32, 2), Local("row", F32, 2)),
    "c is read before it is defined": (lanes(lane, Store("out", lane, s)), Store("out", lane, s)),
}


@pytest.mark.parametrize("reason", MALFORMED)
def test_verify_names_what_is_malformed(reason: str) -> None:
    body = MALFORMED[reason]
    start = (Var(s, Lit(0.0, F32)),) if reason.startswith("c ") else ()
    with pytest.raises(AssertionError, match=reason):
        verify(kernel(*start, *body))


def test_verify_refuses_lanes_without_a_grid() -> None:
    with pytest.raises(AssertionError):
        verify(Kernel("k", PARAMS, (lanes(lane, Store("out", lane, Lit(1.0, F32))),)))


def test_loops_that_were_cut_from_one_stream_through_scratch_of_their_own() -> None:
    """A transpose leaves what does not fill a block to a loop of the same lanes."""
    first, later = Sym("l", I64, 40), Sym("l", I64, 30)
    halves = (
        lanes(first, Store("out", first, Load("x", first, F32))),
        lanes(later, Store("out", call("add", num(40), later), Load("x", later, F32))),
    )
    streamed = stream_stores(replace(kernel(*halves), facts=(("stream", True),)))
    verify(streamed)
    names = [s.name for s in statements(streamed.body) if isinstance(s, Local)]
    assert len(names) == len(set(names)) == 2
