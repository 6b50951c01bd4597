"""Device "cuda-emulated": the very CUDA texts of a plan, run on the host. Right or wrong, no time.

Kernels run in the emulator, library calls in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from autofuse.backends.base import Built, LaunchError
from autofuse.backends.ccompiler import find_cxx
from autofuse.backends.cuda.program import (
    Action,
    CudaProgram,
    Fft,
    Gemm,
    KernelLaunch,
    LoopAction,
    WhileAction,
    moved,
)
from autofuse.backends.emulator.emulator import ORDERS, Emulated, EmulatorError, Order
from autofuse.backends.library import aligned_copy, aligned_empty, check_types
from autofuse.ops.contraction import Matrix
from autofuse.ops.dtypes import DType
from autofuse.ops.types import AutofuseError, TensorType
from autofuse.plan.schedule import Copy, Ref

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class EmulatedArtifact:
    """A program; its kernels are compiled for the host when it is loaded."""

    program: CudaProgram

    @property
    def inputs(self) -> tuple[TensorType, ...]:
        return self.program.inputs

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        return self.program.outputs


def build_emulated(program: CudaProgram, *, timeout_s: float = math.inf) -> Built[EmulatedArtifact]:
    """Nothing is built before it is run, however long that takes.

    Raises CompilerMissing without a C++ compiler."""
    find_cxx()
    return Built(EmulatedArtifact(program), 0.0, 0.0, 0, "")


@dataclass
class _Memory:
    """The buffers of one call, as bytes, by space."""

    spaces: dict[str, list[np.ndarray]]
    trips: dict[int, int] = field(default_factory=dict)

    def bytes(self, ref: Ref, nbytes: int) -> np.ndarray:
        own = moved(ref, self.trips)
        return self.spaces[own.space][own.index][own.offset : own.offset + nbytes]

    def array(self, ref: Ref, dtype: DType, size: int) -> np.ndarray:
        return self.bytes(ref, size * dtype.itemsize).view(dtype.numpy)


class EmulatedPlan:
    """A loaded program on NumPy arrays. `orders`: in which orders threads run, each of which must
    give the same result. `kernels`: the program's own, and others', built already."""

    def __init__(
        self,
        artifact: EmulatedArtifact,
        mode: str = "",
        orders: Sequence[Order] = ORDERS,
        kernels: Emulated | None = None,
    ) -> None:
        """Raises CompileError for a text that the emulator cannot build."""
        if mode:
            raise AutofuseError(f"device 'cuda-emulated' has no mode '{mode}'")
        self.program, self.orders = artifact.program, tuple(orders)
        texts = [source.text for source in self.program.sources]
        self.kernels: Emulated | None = kernels or Emulated(*texts)
        # Constants, all of them, and what is prepared of them.
        self._constants: tuple[np.ndarray, ...] = ()
        self._held = _filled(self.program.binding.held, 0xFF)

    def prepare(self, constants: Sequence[np.ndarray]) -> None:
        """See `Runnable`."""
        p = self.program
        types = p.binding.chosen(p.inputs)
        check_types("constant", constants, types)
        self._constants = tuple(
            _bytes(aligned_copy(a, t)) for a, t in zip(constants, types, strict=True)
        )
        self._held = _filled(p.binding.held, 0xFF)
        others = (_filled(0, 0),) * len(p.binding.free(p.inputs))
        self._issue(p.prepare, self._memory(others, (), p.binding.workspace))
        unread = {k for k in p.binding.bound if k not in p.binding.read}
        for k, array in zip(p.binding.bound, self._constants, strict=True):
            if k in unread:
                array.fill(0xFF)

    @property
    def prepared_bytes(self) -> int:
        read = (self.program.inputs[k].nbytes for k in self.program.binding.read)
        return self.program.binding.held + sum(read)

    def close(self) -> None:
        """Calling it afterwards raises LaunchError."""
        self.kernels = None

    def run(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray] | None = None
    ) -> Arrays:
        """The outputs for these inputs. Raises ArrayError for arguments that do not fit,
        LaunchError for a kernel that did what it must not do."""
        p = self.program
        free = p.binding.free(p.inputs)
        check_types("input", inputs, free)
        if len(self._constants) < len(p.binding.bound):
            raise LaunchError("the program's constants have not been bound")
        if outputs is not None:
            check_types("output", outputs, p.outputs)
        results = tuple(aligned_empty(t) for t in p.outputs)
        for result in results:
            _bytes(result).fill(0xFF)
        given = tuple(_bytes(aligned_copy(a, t)) for a, t in zip(inputs, free, strict=True))
        self._issue(p.actions, self._memory(given, results, p.workspace))
        if outputs is None:
            return results
        for target, result in zip(outputs, results, strict=True):
            target[...] = result
        return tuple(outputs)

    def _memory(self, given: Sequence[np.ndarray], results: Arrays, workspace: int) -> _Memory:
        p = self.program
        return _Memory(
            {
                "in": list(p.binding.together(self._constants, given)),
                "out": [_bytes(result) for result in results],
                "held": [self._held],
                "const": [_bytes(aligned_copy(c.array(), c.type)) for c in p.constants],
                "work": [_filled(workspace, 0xFF)],
                "scratch": [_filled(p.scratch, 0)],
                "trip": [_bytes(np.arange(max(p.trips, 1), dtype=np.int32))],
            }
        )

    def _issue(self, actions: Iterable[Action], memory: _Memory) -> None:
        try:
            self._do(actions, memory)
        except EmulatorError as error:
            raise LaunchError(str(error)) from error

    def _do(self, actions: Iterable[Action], memory: _Memory) -> None:
        for action in actions:
            match action:
                case KernelLaunch():
                    self._launch(action, memory)
                case Gemm():
                    _multiply(action, memory)
                case Fft():
                    _transform(action, memory)
                case Copy(source, target, nbytes):
                    memory.bytes(target, nbytes)[...] = memory.bytes(source, nbytes)
                case LoopAction(trip, level, turns):
                    for t in range(trip):
                        memory.trips[level] = t
                        self._do(turns[t % len(turns)], memory)
                case WhileAction():
                    self._do_while(action, memory)

    def _do_while(self, loop: WhileAction, memory: _Memory) -> None:
        t, count = 0, len(loop.turns)
        while t < loop.trip and memory.array(loop.go[t % count], DType.BOOL, loop.flags).any():
            memory.array(loop.counter, DType.I32, 1)[0] = t
            memory.trips[loop.level] = t
            self._do(loop.turns[t % count], memory)
            t += 1
        self._do(loop.ends[t % len(loop.ends)], memory)

    def _launch(self, launch: KernelLaunch, memory: _Memory) -> None:
        if self.kernels is None:
            raise LaunchError("the program has been unloaded")
        shape = launch.geometry
        self.kernels.launch(
            launch.symbol,
            shape.grid,
            shape.block,
            [memory.array(a.ref, a.dtype, a.size) for a in launch.arguments],
            shape.shared,
            self.orders,
            shape.cooperative,
        )


def _multiply(product: Gemm, memory: _Memory) -> None:
    """In NumPy, 16 bits summed in f32; whatever lies outside the arrays is refused."""
    form, dtype = product.form, product.dtype
    shape = tuple(axis.extent for axis in form.batch)

    def matrix(
        ref: Ref, lies: Matrix, rows: int, columns: int, steps: tuple[int, ...]
    ) -> np.ndarray:
        own = (1, lies.leading) if lies.transposed else (lies.leading, 1)
        extents = (*shape, rows, columns)
        inside = sum((n - 1) * by for n, by in zip(extents, (*steps, *own), strict=True))
        whole = memory.array(ref, dtype, lies.offset + inside + 1)
        strides = tuple(dtype.itemsize * by for by in (*steps, *own))
        return np.ndarray(extents, dtype.numpy, whole, dtype.itemsize * lies.offset, strides)

    left = matrix(product.a, form.a, form.m, form.k, tuple(axis.a for axis in form.batch))
    right = matrix(product.b, form.b, form.k, form.n, tuple(axis.b for axis in form.batch))
    out = matrix(product.c, Matrix(0, form.n), form.m, form.n, tuple(axis.c for axis in form.batch))
    summed = dtype.compute.numpy
    out[...] = left.astype(summed) @ right.astype(summed)


def _transform(made: Fft, memory: _Memory) -> None:
    """In NumPy; inverse transforms divide by nothing."""
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


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _filled(nbytes: int, byte: int) -> np.ndarray:
    memory = aligned_empty(TensorType((max(nbytes, 1),), DType.U8))
    memory.fill(byte)
    return memory


def load_emulated(artifact: EmulatedArtifact, mode: str = "") -> EmulatedPlan:
    """`artifact` in this process; raises CompileError or CompilerMissing."""
    return EmulatedPlan(artifact, mode)
