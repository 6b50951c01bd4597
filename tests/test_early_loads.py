"""Loads of inputs come before arithmetic in the text of a lane."""

from __future__ import annotations

from autofuse.kernel.ir.types import Let, Local, Store
from autofuse.kernel.passes import (
    early_loads,
)
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Lit, Load, Sym, call
from tests.support.kernel_texts import text
from tests.support.loop_kernels import F32, I64, body_of, c, kernel, loop, m, r, v, w, x


def test_early_loads_asks_for_inputs_before_it_computes() -> None:
    quotient = call("div", v, Lit(3.0, F32))
    again = call("add", w, x(ix.iadd(c, ix.lit(64))))
    lane = loop("lane", c, Let(v, x(c)), Let(w, quotient), Store("out", c, again))
    assert body_of(early_loads(kernel(loop("grid", r, lane)))) == text("""
        grid r < 10:i64
          lane c < 64:i64
            let v: f32 = x[c]
            let ld0: f32 = x[add(c, 64:i64)]
            let w: f32 = div(v, 3.0:f32)
            out[c] = add(w, ld0)
    """)


def test_early_loads_leaves_what_depends_on_data() -> None:
    """Loads at computed places, in one side of a choice, and of what the kernel itself writes."""
    place, even = Sym("p", I64, 64), Call("lt", (v, w), DType.BOOL)
    chosen = Call("select", (even, x(ix.iadd(c, ix.lit(64))), v), F32)
    written = Load("row", c, F32)
    lane = loop(
        "lane", c, Let(v, x(c)), Let(w, call("div", v, v)), Let(place, Call("cast", (w,), I64)),
        Let(m, x(place)), Store("row", c, m), Store("out", c, call("add", chosen, written)),
    )  # fmt: skip
    body = kernel(loop("grid", r, Local("row", F32, 64), lane))
    assert early_loads(body) == body


def test_early_loads_takes_addresses_along_and_no_other_numbers() -> None:
    n, p = Sym("n", DType.U32), Sym("p", I64, 64)
    other = Let(n, call("mul", Sym("n0", DType.U32), Sym("n0", DType.U32)))
    lane = loop("lane", c, Let(v, x(c)), Let(m, call("div", v, v)), other, Let(p, ix.imod(c, 8)),
                Let(w, x(p)), Store("out", c, call("add", m, w)))  # fmt: skip
    body = (Let(Sym("n0", DType.U32), Lit(7, DType.U32)), loop("grid", r, lane))
    lines = [line.split(":")[0].strip() for line in body_of(early_loads(kernel(*body))).split("\n")]
    assert [line for line in lines if "let" in line] == [f"let {k}" for k in ("n0", *"vpwmn")]


def test_early_loads_stops_before_registers_run_out() -> None:
    body = [
        s
        for k in range(80)
        for s in (
            Let(Sym(f"a{k}", F32), x(ix.iadd(c, ix.lit(64 * k)))),
            Let(Sym(f"q{k}", F32), call("div", Sym(f"a{k}", F32), Lit(3.0, F32))),
            Store("out", ix.iadd(c, ix.lit(64 * k)), Sym(f"q{k}", F32)),
        )
    ]
    lines = body_of(early_loads(kernel(loop("grid", r, loop("lane", c, *body))))).splitlines()
    first = next(k for k, line in enumerate(lines) if "div(" in line)
    assert sum("= x[" in line for line in lines[:first]) == 16
    assert sum("= x[" in line for line in lines) == 80
