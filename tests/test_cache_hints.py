"""What wide loads tell the second-level cache: in the kernel, in the text and in machine code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.graph.canonical import canonical
from autofuse.kernel.ir.types import Kernel, LoadVector, Stmt, StoreVector
from autofuse.kernel.passes import cache_hints
from autofuse.kernel.text.dialects import CUDA
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Sym
from autofuse.plan.types import LaunchConfig
from autofuse.zoo import zoo_graph
from benchmarks.sass import code_facts, kernel_code
from tests.support.emulation import one_kernel
from tests.support.kernel_texts import text as plain
from tests.support.loop_kernels import ITEMS, at, body_of, c, kernel, loop, r


def wide(name: str, index: Expr) -> LoadVector:
    return LoadVector((Sym(f"{name}0", DType.F32), Sym(f"{name}1", DType.F32)), "x", index)


def hinted(*body: Stmt, size: int = 1280) -> Kernel:
    made = kernel(loop("grid", r, *body), hints=True)
    return replace(made, params=(replace(made.params[0], size=size), made.params[1]))


def test_what_is_read_in_a_later_pass_or_by_every_row_is_kept() -> None:
    row = at(r, 128, ix.imul(c, 2))
    a, b, shared = wide("a", row), wide("b", row), wide("s", ix.imul(c, 2))
    store = StoreVector("out", row, (b.syms[0], b.syms[1]))
    assert body_of(cache_hints(hinted(loop("lane", c, a), loop("lane", c, b, store)))) == plain("""
        grid r < 10:i64
          lane c < 64:i64
            let a0 a1 = x[add(mul(r, 128:i64), mul(c, 2:i64)) ..] again
          lane c < 64:i64
            let b0 b1 = x[add(mul(r, 128:i64), mul(c, 2:i64)) ..] once
            out[add(mul(r, 128:i64), mul(c, 2:i64)) ..] = b0, b1
    """)
    assert "again" in str(cache_hints(hinted(loop("lane", c, shared), size=128)))
    assert "once" in str(cache_hints(hinted(loop("lane", c, a), size=1200))), "a rest of lanes"
    silent = kernel(loop("grid", r, loop("lane", c, a)))
    assert cache_hints(silent) == silent and cache_hints(kernel(ITEMS, hints=True)).body == (ITEMS,)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_machine_code_loads_as_wide_and_as_early_with_hints(arch: str) -> None:
    facts = {}
    for hints in (False, True):
        launch = LaunchConfig.of(
            threads=256, vector=4, reduce="warp", keep="registers", hints=hints
        )
        made = one_kernel(canonical(zoo_graph("layer_norm_gelu", "small")), launch)
        text = made.text.removeprefix(CUDA.prelude)
        assert [f"af_load_vector_{k}(" in text for k in ("once", "again")] == [hints, hints]
        cubin, log = compile_cubin(made.text, arch, made.unit.source.flags)
        assert log == ""
        facts[hints] = code_facts(kernel_code(cubin, made.unit.source.name))
    assert facts[True].wide_loads == facts[True].loads == facts[False].loads
    assert facts[True].in_flight >= facts[False].in_flight
    assert facts[True].instructions < facts[False].instructions + 16, "a policy is made once"
