"""Rules for aten overloads whose right operands are narrow whole numbers."""

from __future__ import annotations

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.torch.types import TorchCall, TorchRule, torch_module
from autofuse.graph.composites import layers as composites
from autofuse.graph.types import Value
from autofuse.ops.dtypes import DType

F32, I32 = DType.F32, DType.I32
# Rows that lie together where PyTorch packs weights of four bits, by the instructions that it has
# (aten/src/ATen/native/cpu/int4mm_kernel.cpp): term by term, a byte for two rows half of these
# apart.
_TOGETHER = {"AVX2": 32, "AVX512": 64}


def _int_mm(c: TorchCall) -> Value:
    """Bytes by bytes, summed in i32."""
    return composites.matmul(c.w, c.value("self", I32), c.value("mat2", I32))


def _int8pack_mm(c: TorchCall) -> Value:
    """Weights [N, K] of i8 and a scale for each of their rows."""
    w = c.w
    weights = w.transpose(c.value("mat2", F32), (1, 0))
    made = composites.matmul(w, c.value("self", F32), weights)
    return w.cast(w.mul(made, c.value("scales", F32)), c.out.dtype)


def _int4pack_mm(c: TorchCall) -> Value:
    """Packed weights [N, K / 2] of u8; for each group of terms a scale and what is added to it:
    (number - 8) * scale + zero."""
    w, group = c.w, int(c["qGroupSize"])
    (rows, half), together = c.shape("mat2"), _TOGETHER.get(_instructions(), 0)
    if not together or rows % together:
        raise FrontendError(f"{rows} rows of packed weights")
    terms, each = 2 * half, together // 2
    packed = w.reshape(c.value("mat2"), (rows // together, terms, each))
    apart = (w.map("and", packed, 15), w.map("shr_logical", packed, 4))
    numbers = w.concat([w.reshape(part, (*w.shape(part)[:2], 1, each)) for part in apart], 2)
    by_terms = w.transpose(w.reshape(numbers, (rows // together, terms, together)), (1, 0, 2))
    grouped = w.reshape(by_terms, (terms // group, group, rows))
    about = c.value("qScaleAndZeros", F32)
    scales, zeros = (w.reshape(w.part(about, 2, k, k + 1), (-1, 1, rows)) for k in (0, 1))
    wide = w.add(w.mul(w.sub(w.cast(grouped, F32), 8.0), scales), zeros)
    made = composites.matmul(w, c.value("self", F32), w.reshape(wide, (terms, rows)))
    return w.cast(made, c.out.dtype)


def _instructions() -> str:
    """What PyTorch computes by on this machine, where such weights were packed."""
    return str(torch_module().backends.cpu.get_cpu_capability())


TORCH_QUANTISED: dict[str, TorchRule] = {
    "aten._int_mm.default": _int_mm,
    "aten._weight_int4pack_mm_for_cpu.default": _int4pack_mm,
    "aten._weight_int8pack_mm.default": _int8pack_mm,
}
