"""pair_stores: before and after, on kernels made by hand and on one of attention."""

from __future__ import annotations

from autofuse.kernel.ir.types import Kernel, Let, Local, Loop, LoopKind, Param, Store, StoreVector
from autofuse.kernel.passes.pair_stores import pair_stores
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Load, Sym, call
from tests.support.emulation import library_of
from tests.support.fragment_cases import in_registers
from tests.support.fragment_errors import error_of

F32, I64 = DType.F32, DType.I64
K, V = Sym("k", I64, 2), Sym("v", F32)


def kernel(stride: int, first: int = 0, extent: int = 2) -> Kernel:
    """sums[k] * 2 to out[stride * k + first], for each of a thread's neighbours."""
    value = call("mul", V, V)
    place = ix.iadd(ix.imul(K, stride), ix.lit(first))
    body = (Let(V, Load("sums", K, F32)), Store("out", place, value))
    loop = Loop(LoopKind.UNROLLED, K, ix.lit(extent), body)
    return Kernel("f", (Param("out", F32, 8, "out"),), (Local("sums", F32, 4, True), loop))


def test_neighbours_are_stored_together_and_sums_stay_single() -> None:
    _, loop = pair_stores(kernel(1)).body
    assert isinstance(loop, Loop) and loop.extent == ix.lit(1)
    *lets, store = loop.body
    assert [type(s) for s in lets] == [Let, Let]
    assert isinstance(store, StoreVector) and len(store.values) == 2


def test_what_is_no_pair_stays() -> None:
    for one in (kernel(2), kernel(1, first=1), kernel(1, extent=4)):
        assert pair_stores(one) == one


def test_results_of_attention_are_stored_in_pairs() -> None:
    one = in_registers("attention", (64, 72, 64, 64), "bf16")
    text = one.unit.source.text
    assert "af_store_vector(af_bf16x2, out0" in text and "\n                out0[" not in text
    assert error_of(library_of([one]), one)[0] < 2e-2
