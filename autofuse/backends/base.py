"""What backends exchange: text to be compiled, and the library it became.

The entry of a program has the C signature `int32_t ENTRY(void **buffers, void *workspace,
void **blas)`. `buffers` holds inputs, then literals, then outputs, all row-major contiguous, and
in a program with declared constants last what is prepared of them: ENTRY_prepare, of the same
signature, runs before the first call and writes that (outputs are null then);
`workspace` is 64-byte aligned scratch of `workspace` bytes; `blas` is (sgemm, dgemm,
set_threads or null, the thread pool's af_parallel, the table of `onednn.c` or null, that of
`pocketfft.py` or null). A nonzero result is a launch failure code.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from autofuse.errors import AutofuseError, Blame
from autofuse.plan.program.bound import NOTHING_BOUND, Binding

# What is served from a bundle is loaded without graphs, ops and kernels, which take long to import.
if TYPE_CHECKING:
    import numpy as np

    from autofuse.kernel.library.onednn import DnnlCall
    from autofuse.ops.types import Literal, TensorType

ALIGNMENT = 64
DnnlCalls = tuple[tuple["DnnlCall", ...], ...]
# Raised when programs and what calls them no longer fit: the entry, its tables, the pool.
INTERFACE = 2
# What a program has of whose kernels some multiply tiles by AMX.
AMX_USED = "af_amx_used"


class BlamedError(AutofuseError):
    """A failure of a candidate, unless `blame` says that the machine is at fault."""

    def __init__(self, message: str, blame: Blame = Blame.CANDIDATE) -> None:
        super().__init__(message)
        self.blame = blame


class CompileError(BlamedError):
    """The compiler refused a program, could not do its work, or took too long."""


class CompilerMissing(BlamedError):  # noqa: N818 - the name is what the user is told
    """There is no compiler on this machine."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Blame.MACHINE)


class LaunchError(BlamedError):
    """A built program that cannot be loaded or that reported failure."""


@contextmanager
def building(what: str) -> Iterator[None]:
    """What the machine does to a build (a full disk, no memory) is a CompileError of its blame."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise CompileError(f"{what} could not be built: {reason}", Blame.MACHINE) from error
    except MemoryError as error:
        reason = "out of host memory"
        raise CompileError(f"{what} could not be built: {reason}", Blame.MACHINE) from error


@dataclass(frozen=True, slots=True)
class Source:
    """One translation unit; `flags` are added to those every unit is compiled with.

    What has a `head` is a part of a unit: it follows the head, and parts of equal flags and heads
    may be compiled together. Parts of one name are the same."""

    name: str
    text: str
    flags: tuple[str, ...] = ()
    head: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """Everything one shared library is built from; `workspace` is in bytes. `inputs` are all of
    the graph's; constants among them are bound as `binding` says. `calls` are those of oneDNN, each
    by its pieces, that are made ready when the library is loaded; `blas`: it calls BLAS."""

    sources: tuple[Source, ...]
    entry: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    constants: tuple[Literal, ...] = ()
    workspace: int = 0
    calls: DnnlCalls = ()
    binding: Binding = NOTHING_BOUND
    blas: bool = True

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.entry):
            raise CompileError(f"entry name {self.entry!r} is not a C identifier")
        if self.workspace < 0:
            raise CompileError(f"workspace of {self.workspace} bytes is negative")


class ElementType(Protocol):
    """How the elements of an array are stored."""

    @property
    def numpy(self) -> np.dtype: ...


class ArrayType(Protocol):
    """What calls know of an array: a `TensorType`, or what a bundle says of one."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> ElementType: ...

    @property
    def nbytes(self) -> int: ...


class ArrayLiteral(Protocol):
    """A constant of a program: a `Literal`, or one that is kept in a bundle."""

    @property
    def type(self) -> ArrayType: ...

    def array(self) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class Artifact:
    """A built program: the library file and what is needed to call it (see `Program`).

    `pool` is the library of its thread pool where that came along; None: it is built here.
    `digest` is the SHA-256 that the file has to have when it is loaded, in hexadecimal; "" where
    `path` is one that nobody can change."""

    path: Path
    entry: str
    inputs: tuple[ArrayType, ...]
    outputs: tuple[ArrayType, ...]
    constants: tuple[ArrayLiteral, ...]
    workspace: int
    calls: DnnlCalls = ()
    binding: Binding = NOTHING_BOUND
    blas: bool = True
    pool: Path | None = None
    digest: str = ""


class AnyArtifact(Protocol):
    """What every device's artifact says of itself; it can be pickled."""

    @property
    def inputs(self) -> tuple[ArrayType, ...]: ...

    @property
    def outputs(self) -> tuple[ArrayType, ...]: ...


@dataclass(frozen=True, slots=True)
class BoundEntry:
    """A loaded program for callers who know addresses, not arrays.

    `table` has room for the address of each array of a call, row-major and dense: its inputs at
    `inputs`, outputs from `first_output` on. `issue` starts the program on what the table says and
    returns 0 or a code of failure; on a GPU it is then under way on the caller's stream. It is for
    one call at a time, under `lock`, and `program` is loaded for as long as this is held."""

    table: Any
    inputs: tuple[int, ...]
    first_output: int
    lock: threading.Lock
    issue: Callable[[], int]
    program: object


class Runnable(Protocol):
    """A loaded program: arrays in the graph's input order in (those of constants once, to
    `prepare`, before the first call), a tuple of arrays out."""

    def prepare(self, constants: Sequence[Any]) -> None:
        """Bind constants, in the graph's input order, and compute what depends on them alone.

        They are copied: what becomes of the arrays afterwards does not matter. Raises
        AutofuseError for arrays that do not fit, LaunchError on failure."""
        ...

    @property
    def prepared_bytes(self) -> int:
        """What is kept for calls: prepared values and panels, and constants that calls read."""
        ...

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> tuple[Any, ...]:
        """Raises AutofuseError for arguments that do not fit, LaunchError on failure."""
        ...

    def bound_entry(self, stream: Callable[[], int]) -> BoundEntry:
        """For callers with addresses, once constants are bound. `stream` gives the handle of the
        stream that a call is to be issued on; what runs on the host does not ask for it.

        Raises LaunchError where constants are missing."""
        ...

    def close(self) -> None: ...


A_co = TypeVar("A_co", bound=AnyArtifact, covariant=True)
Facts = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Built(Generic[A_co]):
    """A build and its cost in seconds of compiler time.

    `compile_s` is what building from nothing costs (kept beside cached objects), `spent_s` the
    wall seconds spent now; `cached_objects` counts objects, and the library, that were not built.
    `facts` are the compiler's named numbers (registers, spills, ...) for each group of the plan, or
    nothing where it gives none.
    """

    artifact: A_co
    compile_s: float
    spent_s: float
    cached_objects: int
    log: str
    facts: tuple[Facts, ...] = ()
