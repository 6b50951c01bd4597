"""Device "cuda-emulated": the very CUDA texts of a plan, run on the host. Right or wrong, no time.

Kernels run in the emulator, library calls in NumPy.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from autofuse.backends.aligned import aligned_copy, aligned_empty
from autofuse.backends.base import BoundEntry, Built, LaunchError
from autofuse.backends.cuda.in_numpy import Memory, multiply, multiply_and_more, transform
from autofuse.backends.cuda.program import (
    Action,
    Argument,
    CudaProgram,
    Fft,
    Gemm,
    KernelLaunch,
    LoopAction,
    Matmul,
    WhileAction,
)
from autofuse.backends.emulator.emulator import ORDERS, Emulated, EmulatorError, Order
from autofuse.backends.emulator.maps import as_argument, encoded
from autofuse.backends.library import check_types
from autofuse.backends.toolchain import find_cxx
from autofuse.ops.dtypes import DType
from autofuse.ops.types import AutofuseError, TensorType
from autofuse.plan.program.schedule import Copy

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

    def bound_entry(self, stream: Callable[[], int]) -> BoundEntry:
        """See `Runnable`; a call is over when it returns."""
        free = self.program.binding.free(self.program.inputs)
        types = (*free, *self.program.outputs)
        table = (ctypes.c_void_p * len(types))()

        def issue() -> int:
            arrays = [_at(address, type_) for address, type_ in zip(table, types, strict=True)]
            self.run(arrays[: len(free)], arrays[len(free) :])
            return 0

        places = tuple(range(len(free)))
        return BoundEntry(table, places, len(free), threading.Lock(), issue, self)

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

    def _memory(self, given: Sequence[np.ndarray], results: Arrays, workspace: int) -> Memory:
        p = self.program
        return Memory(
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

    def _issue(self, actions: Iterable[Action], memory: Memory) -> None:
        try:
            self._do(actions, memory)
        except EmulatorError as error:
            raise LaunchError(str(error)) from error

    def _do(self, actions: Iterable[Action], memory: Memory) -> None:
        for action in actions:
            match action:
                case KernelLaunch():
                    self._launch(action, memory)
                case Gemm():
                    multiply(action, memory)
                case Matmul():
                    multiply_and_more(action, memory)
                case Fft():
                    transform(action, memory)
                case Copy(source, target, nbytes):
                    memory.bytes(target, nbytes)[...] = memory.bytes(source, nbytes)
                case LoopAction(trip, level, turns):
                    for t in range(trip):
                        memory.trips[level] = t
                        self._do(turns[t % len(turns)], memory)
                case WhileAction():
                    self._do_while(action, memory)

    def _do_while(self, loop: WhileAction, memory: Memory) -> None:
        t, count = 0, len(loop.turns)
        while t < loop.trip and memory.array(loop.go[t % count], DType.BOOL, loop.flags).any():
            memory.array(loop.counter, DType.I32, 1)[0] = t
            memory.trips[loop.level] = t
            self._do(loop.turns[t % count], memory)
            t += 1
        self._do(loop.ends[t % len(loop.ends)], memory)

    def _launch(self, launch: KernelLaunch, memory: Memory) -> None:
        if self.kernels is None:
            raise LaunchError("the program has been unloaded")
        shape = launch.geometry
        self.kernels.launch(
            launch.symbol,
            shape.grid,
            shape.block,
            [_given(a, memory.array(a.ref, a.dtype, a.size)) for a in launch.arguments],
            shape.shared,
            self.orders,
            shape.cooperative,
        )


def _given(argument: Argument, array: np.ndarray) -> np.ndarray:
    """What a kernel is given for an array."""
    if argument.map is None:
        return array
    return as_argument(encoded(argument.map, array.ctypes.data))


def _at(address: int | None, type_: TensorType) -> np.ndarray:
    """The array of this type at an address of the host; no address is given for an empty one."""
    if not address or not type_.size:
        return np.empty(type_.shape, type_.dtype.numpy)
    memory = (ctypes.c_uint8 * type_.nbytes).from_address(address)
    return np.frombuffer(memoryview(memory), np.uint8).view(type_.dtype.numpy).reshape(type_.shape)


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _filled(nbytes: int, byte: int) -> np.ndarray:
    memory = aligned_empty(TensorType((max(nbytes, 1),), DType.U8))
    memory.fill(byte)
    return memory


def load_emulated(artifact: EmulatedArtifact, mode: str = "") -> EmulatedPlan:
    """`artifact` in this process; raises CompileError or CompilerMissing."""
    return EmulatedPlan(artifact, mode)
