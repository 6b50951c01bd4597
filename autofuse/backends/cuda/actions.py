"""What a CUDA program does: launches, library calls, copies and host loops over named spaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from autofuse.backends.cuda.geometry import Geometry
from autofuse.kernel.ir.tensor_map import TensorMap
from autofuse.ops.contraction import GemmForm
from autofuse.ops.dtypes import DType
from autofuse.ops.library_forms import Transform
from autofuse.plan.fusion.epilogues import GELU
from autofuse.plan.program.schedule import Copy, Ref


@dataclass(frozen=True, slots=True)
class Argument:
    """An array that a kernel is given: where it is, its `size` elements of `dtype`, and whether
    the kernel writes any of them; with a `map`, that of the array is given instead of its address.
    """

    ref: Ref
    dtype: DType
    size: int
    written: bool
    map: TensorMap | None = None


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One launch of the kernel `symbol`; arguments are in the kernel's order."""

    symbol: str
    geometry: Geometry
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Gemm:
    """A matrix product by cuBLAS, elements of `dtype`, of arrays A and B as `form` reads them.
    `relaxed`: factors of f32 may be rounded to 11 bits, partial sums of 16-bit products to 16."""

    form: GemmForm
    dtype: DType
    a: Ref
    b: Ref
    c: Ref
    relaxed: bool = False


@dataclass(frozen=True, slots=True)
class Matmul:
    """A product and what follows it by cuBLASLt (see `plan.epilogues.Epilogue`), by the algorithm
    at a place of the library's list. Where arrays lie is a multiple of `boundary` bytes."""

    form: GemmForm
    dtype: DType
    a: Ref
    b: Ref
    c: Ref
    bias: Ref | None = None
    residual: Ref | None = None
    aux: Ref | None = None
    activation: str = ""
    algorithm: int = 0
    relaxed: bool = False
    boundary: int = 16

    @property
    def beside(self) -> tuple[tuple[str, Ref | None], ...]:
        """What else is read, or written, by name."""
        return ("bias", self.bias), ("residual", self.residual), ("aux", self.aux)

    @property
    def writes_aux(self) -> bool:
        return self.aux is not None and self.activation == GELU

    @property
    def refs(self) -> tuple[Ref, ...]:
        """Where all its arrays are, in the order in which a call is given them."""
        return (self.a, self.b, self.c, *(ref for _, ref in self.beside if ref is not None))

    def at(self, place: Callable[[Ref], Ref]) -> Matmul:
        """The same with its arrays elsewhere."""

        def there(ref: Ref | None) -> Ref | None:
            return None if ref is None else place(ref)

        return replace(
            self, a=place(self.a), b=place(self.b), c=place(self.c), bias=there(self.bias),
            residual=there(self.residual), aux=there(self.aux),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fft:
    """Fourier transforms by cuFFT of an array of `dtype`, into another one."""

    transform: Transform
    dtype: DType
    source: Ref
    target: Ref

    @property
    def sizes(self) -> tuple[int, int]:
        """Floats that are read, and those that are written."""
        given, made = self.transform.sides
        return self.transform.count * given[0] * given[1], self.transform.count * made[0] * made[1]


@dataclass(frozen=True, slots=True)
class LoopAction:
    """`trip` times the steps of one of the `turns`, in rotation; `level` is what their Refs'
    strides go by."""

    trip: int
    level: int
    turns: tuple[tuple[Action, ...], ...]


@dataclass(frozen=True, slots=True)
class WhileAction:
    """As LoopAction, at most `trip` times and only as long as one of the `flags` bools at `go` is
    true (see `plan.steps.While`): the host reads them. `counter` gets the iteration number."""

    trip: int
    level: int
    counter: Ref
    turns: tuple[tuple[Action, ...], ...]
    go: tuple[Ref, ...]
    flags: int
    ends: tuple[tuple[Copy, ...], ...]


Action = KernelLaunch | Gemm | Matmul | Fft | Copy | LoopAction | WhileAction


def moved(ref: Ref, trips: Mapping[int, int]) -> Ref:
    """`ref` on given iterations of the loops around, by level: without a stride."""
    if not ref.stride:
        return ref
    return replace(ref, offset=ref.offset + ref.stride * trips[ref.level], level=0, stride=0)
