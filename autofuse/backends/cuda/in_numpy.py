"""What libraries do in a CUDA program, done in NumPy on the buffers of a call."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from autofuse.backends.cuda.actions import Fft, Gemm, Matmul, moved
from autofuse.ops.contraction import GemmForm, Matrix
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion.epilogues import activated
from autofuse.plan.program.schedule import Ref


@dataclass
class Memory:
    """The buffers of one call, as bytes, by space."""

    spaces: dict[str, list[np.ndarray]]
    trips: dict[int, int] = field(default_factory=dict)

    def bytes(self, ref: Ref, nbytes: int) -> np.ndarray:
        own = moved(ref, self.trips)
        return self.spaces[own.space][own.index][own.offset : own.offset + nbytes]

    def array(self, ref: Ref, dtype: DType, size: int) -> np.ndarray:
        return self.bytes(ref, size * dtype.itemsize).view(dtype.numpy)


def multiply(product: Gemm, memory: Memory) -> None:
    """A product, 16 bits summed in f32."""
    _result(product.form, product.dtype, product.c, memory)[...] = _product(product, memory)


def multiply_and_more(product: Matmul, memory: Memory) -> None:
    """A product and what follows it, in f32 until it is written."""
    form, dtype = product.form, product.dtype
    made, summed = _product(product, memory), dtype.compute.numpy
    if product.bias is not None:
        made = made + memory.array(product.bias, dtype, form.n).astype(summed)
    if product.residual is not None:
        made = made + _result(form, dtype, product.residual, memory).astype(summed)
    aux = None if product.aux is None else _result(form, dtype, product.aux, memory)
    if aux is not None and product.writes_aux:
        aux[...] = made
    other = None if aux is None else aux.astype(summed)
    _result(form, dtype, product.c, memory)[...] = activated(product.activation, made, other)


def transform(made: Fft, memory: Memory) -> None:
    """Fourier transforms; inverse ones divide by nothing."""
    own, dtype = made.transform, made.dtype
    arrays = []
    for ref, size, side in zip((made.source, made.target), made.sizes, own.sides, strict=True):
        whole = memory.array(ref, dtype, size)
        arrays.append(whole.reshape(own.before, side[0], own.after, side[1]))
    source, target = arrays
    z = source[..., 0] + 1j * source[..., 1] if source.shape[-1] == 2 else source[..., 0]
    norm = "backward" if own.kind in ("fft", "rfft") else "forward"
    given = {"n": own.n} if own.kind == "irfft" else {}
    found = getattr(np.fft, own.kind)(z, axis=1, norm=norm, **given)
    target[..., 0] = found.real
    if target.shape[-1] == 2:
        target[..., 1] = found.imag


def _product(product: Gemm | Matmul, memory: Memory) -> np.ndarray:
    form, summed = product.form, product.dtype.compute.numpy
    a = _Side(form.a, (form.m, form.k), tuple(axis.a for axis in form.batch))
    b = _Side(form.b, (form.k, form.n), tuple(axis.b for axis in form.batch))
    left, right = (
        _matrices(form, product.dtype, ref, side, memory).astype(summed)
        for ref, side in ((product.a, a), (product.b, b))
    )
    return np.asarray(left @ right)


def _result(form: GemmForm, dtype: DType, ref: Ref, memory: Memory) -> np.ndarray:
    """An array that lies as the result does."""
    steps = tuple(axis.c for axis in form.batch)
    side = _Side(Matrix(0, form.n), (form.m, form.n), steps)
    return _matrices(form, dtype, ref, side, memory)


@dataclass(frozen=True, slots=True)
class _Side:
    """An operand or the result of a product: how a matrix lies, its rows and columns, and how many
    elements it is from one matrix to the next along each axis of the batch."""

    lies: Matrix
    shape: tuple[int, int]
    steps: tuple[int, ...]


def _matrices(form: GemmForm, dtype: DType, ref: Ref, side: _Side, memory: Memory) -> np.ndarray:
    """The matrices of a batch in place; whatever lies outside the array is refused."""
    lies = side.lies
    own = (1, lies.leading) if lies.transposed else (lies.leading, 1)
    extents = (*(axis.extent for axis in form.batch), *side.shape)
    inside = sum((n - 1) * by for n, by in zip(extents, (*side.steps, *own), strict=True))
    whole = memory.array(ref, dtype, lies.offset + inside + 1)
    strides = tuple(dtype.itemsize * by for by in (*side.steps, *own))
    return np.ndarray(extents, dtype.numpy, whole, dtype.itemsize * lies.offset, strides)
