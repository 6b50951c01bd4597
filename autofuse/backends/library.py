"""A built program in this process: checked arrays in, arrays out."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from autofuse.backends.aligned import OutputPool, address_of, aligned_bytes, copied_to
from autofuse.backends.base import AMX_USED, ArrayType, Artifact, BoundEntry, LaunchError
from autofuse.backends.cpu.pool import pool_pointer
from autofuse.backends.cpu.tables import library_tables
from autofuse.backends.dlpack import host_array
from autofuse.backends.machine import has_tiles, multiplies_tiles
from autofuse.backends.sealed import load_checked
from autofuse.errors import AutofuseError, Blame

if TYPE_CHECKING:
    from autofuse.backends.cpu.onednn_calls import PreparedCalls

Arrays = tuple[np.ndarray, ...]
# Bytes of prepared buffers that nobody has written: NaN in floats.
_UNPREPARED = 0xFF
_OPENMP_RUNTIMES = ("libgomp.so.1", "libomp.so.5", "libomp.so", "libiomp5.so")


class ArrayError(AutofuseError):
    """An argument that does not fit the program."""


def _is_whole(artifact: Artifact, error: Exception) -> bool:
    """Whether a library that cannot be loaded is there (another process may have evicted it), and
    there was memory to map it."""
    return artifact.path.is_file() and "Cannot allocate memory" not in str(error)


def _ask_for_tiles(library: ctypes.CDLL) -> None:
    """Raises LaunchError where kernels multiply tiles that this process may not use."""
    if hasattr(library, AMX_USED) and has_tiles() and not multiplies_tiles():
        raise LaunchError("the system does not let this process use AMX", Blame.MACHINE)


def _prepared(artifact: Artifact) -> PreparedCalls | None:
    """The artifact's calls of oneDNN, which is not even looked for where there are none."""
    if not artifact.calls:
        return None
    # Most plans have no such call, and it takes graphs and kernels to say what one is.
    from autofuse.backends.cpu.onednn import OneDnnError
    from autofuse.backends.cpu.onednn_calls import PreparedCalls

    try:
        return PreparedCalls(artifact.calls)
    except OneDnnError as error:
        raise LaunchError(f"the plan cannot run here: {error}", error.blame) from error


@dataclass(frozen=True, slots=True)
class CallFrame:
    """What a caller in C passes to the entry at address `entry`: `table` has the addresses of
    `buffers`, null where the arrays of a call go, which are inputs at `inputs` and outputs from
    `first_output`. It is for one call at a time, under `lock`, and as long as the library is
    loaded."""

    entry: int
    workspace: int
    blas: Any
    table: Any
    inputs: tuple[int, ...]
    first_output: int
    lock: threading.Lock


class LoadedLibrary:
    """A loaded program. Calls are serialised: the workspace is shared.

    Results of `run` stay valid as long as the caller (or any view) holds them; their memory is
    used again for a later call after that.
    """

    def __init__(
        self, artifact: Artifact, memory: Callable[[int], np.ndarray] = aligned_bytes,
        like: LoadedLibrary | None = None,
    ) -> None:  # fmt: skip
        """`memory` gives the bytes of all buffers that are the program's own. The code is that of
        `like`, which must outlive this one, with whatever it remembers of its calls."""
        self.artifact, self._memory = artifact, memory
        self._lock = threading.Lock()
        self._pools = tuple(OutputPool(t) for t in artifact.outputs)
        # Constants that calls read, by position, and what was prepared of all of them.
        self._bound: dict[int, np.ndarray] = {}
        self.held: np.ndarray | None = None
        # The table of a call with nothing where the arrays of the call go; of constants it may
        # hold hundreds of addresses, and to ask NumPy for one takes microseconds.
        self._standing: Any = None
        self.constants = tuple(self._copied(c.array(), c.type) for c in artifact.constants)
        self.workspace = memory(artifact.workspace)
        self._work = address_of(self.workspace)
        self._calls = _prepared(artifact)
        dnnl = 0 if self._calls is None else self._calls.address
        # Positions and types of the inputs of a call.
        self._places = artifact.binding.free(range(len(artifact.inputs)))
        self._types = artifact.binding.free(artifact.inputs)
        self._wanted = [(t.shape, t.dtype.numpy) for t in self._types]
        self._first_output = len(artifact.inputs) + len(artifact.constants)
        *blas, transforms, solvers = library_tables() if artifact.blas else (0,) * 5
        pool = pool_pointer(artifact.pool)
        self._blas = (ctypes.c_void_p * 7)(*blas, pool, dnnl, transforms, solvers)
        try:
            self._is_own = like is None
            held = load_checked(artifact.path, artifact.digest) if like is None else like._handle
            assert held is not None
            self._handle: ctypes.CDLL | None = held
            self._entry = self._handle[artifact.entry]
        except (OSError, AttributeError) as error:
            blame = Blame.CANDIDATE if _is_whole(artifact, error) else Blame.MACHINE
            raise LaunchError(f"cannot load {artifact.path.name}: {error}", blame) from error
        _ask_for_tiles(self._handle)
        _pin_openmp()
        self._entry.restype = ctypes.c_int32
        self._entry.argtypes = [ctypes.c_void_p] * 3

    def __enter__(self) -> LoadedLibrary:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unload; calling it afterwards raises LaunchError. Results stay valid."""
        with self._lock:
            if self._handle is not None:
                if self._is_own:
                    _ctypes.dlclose(self._handle._handle)
                self._handle = None
                if self._calls is not None:
                    self._calls.close()

    def prepare(self, constants: Sequence[np.ndarray]) -> None:
        """See `Runnable`. What calls read of constants is copied; the rest is let go."""
        binding = self.artifact.binding
        types = binding.chosen(self.artifact.inputs)
        check_types("constant", constants, types)
        copies = {
            k: self._copied(array, type_) if k in binding.read else np.ascontiguousarray(array)
            for k, array, type_ in zip(binding.bound, constants, types, strict=True)
        }
        held = self._memory(binding.held)
        held.fill(_UNPREPARED)
        workspace = self._memory(binding.workspace)
        table = self._table(
            tuple(copies.get(k) for k in range(len(self.artifact.inputs))), (), held
        )
        with self._lock:
            if self._handle is None:
                raise LaunchError("the program has been unloaded")
            code = 0
            if binding.bound:
                prepare = self._handle[f"{self.artifact.entry}_prepare"]
                prepare.restype, prepare.argtypes = ctypes.c_int32, [ctypes.c_void_p] * 3
                code = prepare(table, workspace.ctypes.data, self._blas)
            if code != 0:
                raise LaunchError(f"constants could not be prepared: code {code}")
            self.held, self._bound = held, {k: copies[k] for k in binding.read}
            self._standing = None

    def _copied(self, array: np.ndarray, type_: ArrayType) -> np.ndarray:
        return copied_to(self._memory(type_.nbytes), array, type_)

    def twin(self) -> LoadedLibrary:
        """The program loaded once more, with a workspace and a lock of its own and the same
        constants."""
        other = LoadedLibrary(self.artifact)
        other.held, other._bound = self.held, dict(self._bound)
        return other

    @property
    def bound(self) -> Arrays:
        """What was made of the constants that were given: prepared values, and what calls read."""
        if not self.artifact.binding.bound or self.held is None:
            return ()
        return (self.held, *self._bound.values())

    @property
    def kept(self) -> Arrays:
        """What calls read besides their arguments: constants, prepared values and literals."""
        own = () if self.held is None else (self.held,)
        return (*self._bound.values(), *own, *self.constants)

    @property
    def prepared_bytes(self) -> int:
        return self.artifact.binding.held + sum(a.nbytes for a in self._bound.values())

    def _table(
        self, inputs: Sequence[np.ndarray | None], outputs: Sequence[np.ndarray], held: np.ndarray
    ) -> Any:
        """Addresses as the entries want them; nothing reads an input that is None."""
        missing = (None,) * (len(self.artifact.outputs) - len(outputs))
        arrays = (*inputs, *self.constants, *outputs, *missing, held)
        return (ctypes.c_void_p * len(arrays))(
            *(None if a is None else address_of(a) for a in arrays)
        )

    def _call_table(self, inputs: Iterable[int | None], outputs: Iterable[int]) -> Any:
        """As `_table`, of one call, from the addresses of inputs that are no constants and of
        outputs."""
        if self._standing is None:
            self._standing = self._standing_table()
        table = type(self._standing).from_buffer_copy(self._standing)
        for place, address in zip(self._places, inputs, strict=True):
            table[place] = address
        for place, address in enumerate(outputs, self._first_output):
            table[place] = address
        return table

    def _standing_table(self) -> Any:
        """What tables of calls have in common. Raises LaunchError where constants are missing."""
        binding, held = self.artifact.binding, self.held
        if held is None:
            if binding.bound:
                raise LaunchError("the program's constants have not been bound")
            held = self.workspace
        bound = tuple(self._bound.get(k) for k in binding.bound)
        return self._table(binding.together(bound, (None,) * len(self._places)), (), held)

    def run(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray] | None = None
    ) -> Arrays:
        """The outputs for these inputs; shapes and dtypes must be those of the program.

        They are NumPy's, or of another package that shares host memory by DLPack. Inputs that are
        not row-major contiguous are copied. Given `outputs` are written in place and must be
        contiguous, writeable and apart from the inputs. Raises ArrayError for arguments that do
        not fit, LaunchError if the program reports failure.
        """
        ready = self._check_inputs(_shared("input", inputs))
        if outputs is None:
            taken = [pool.take() for pool in self._pools]
            results, places = tuple(array for array, _ in taken), [place for _, place in taken]
        else:
            results = self._check_outputs(_shared("output", outputs), ready)
            places = list(map(address_of, results))
        code = self._call(self.kept, self._call_table(map(address_of, ready), places))
        if code != 0:
            raise LaunchError(f"the program failed with code {code}")
        return results

    def bind(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> Callable[[], int]:
        """A call on fixed arrays, for timing: returns the entry's code and checks nothing.

        The arrays must be contiguous and of the program's types; they are kept alive.
        """
        table = self._call_table(map(address_of, inputs), map(address_of, outputs))
        arrays = (*inputs, *self.kept, *outputs)

        def call(_keep: Arrays = arrays) -> int:
            return self._call(_keep, table)

        return call

    def _call(self, keep: Arrays, table: Any) -> int:
        """The entry's code; `keep` are arrays of `table` that nobody else may hold by its end."""
        with self._lock:
            if self._handle is None:
                raise LaunchError("the program has been unloaded")
            code: int = self._entry(table, self._work, self._blas)
            return code

    def frame(self) -> CallFrame:
        """For callers who fill in addresses."""
        table = self._call_table((None,) * len(self._places), ())
        entry = ctypes.cast(self._entry, ctypes.c_void_p).value or 0
        return CallFrame(
            entry, self._work, self._blas, table, self._places, self._first_output, self._lock
        )

    def bound_entry(self, stream: Callable[[], int]) -> BoundEntry:
        """See `Runnable`; a call is over when it returns."""
        frame = self.frame()
        tables = ctypes.addressof(frame.table), frame.workspace, ctypes.addressof(frame.blas)
        issue = partial(self._entry, *tables)
        return BoundEntry(frame.table, frame.inputs, frame.first_output, frame.lock, issue, self)

    def bind_profile(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], groups: int
    ) -> Callable[[], np.ndarray]:
        """Like `bind`, for the profiled entry: each call returns the microseconds spent in each
        of `groups` groups. Raises LaunchError if the program has none or reports failure."""
        arrays = (*inputs, *self.kept, *outputs)
        table = self._call_table(map(address_of, inputs), map(address_of, outputs))
        # The entry that also says how long each group took (see `entry.py`).
        name = f"{self.artifact.entry}_profile"
        if self._handle is None or not hasattr(self._handle, name):
            raise LaunchError("the program cannot be profiled")
        entry = self._handle[name]
        entry.restype, entry.argtypes = ctypes.c_int32, [ctypes.c_void_p] * 4

        def call(_keep: Arrays = arrays) -> np.ndarray:
            us = np.zeros(max(groups, 1), np.float64)
            with self._lock:
                code = entry(table, self._work, self._blas, us.ctypes.data)
            if code != 0:
                raise LaunchError(f"the program failed with code {code}")
            return us[:groups]

        return call

    def _check_inputs(self, inputs: Sequence[np.ndarray]) -> Arrays:
        given = [(a.shape, a.dtype) for a in inputs if isinstance(a, np.ndarray)]
        if given != self._wanted:
            check_types("input", inputs, self._types)
        # (What is not contiguous has an axis, so the copy has its shape.)
        return tuple(a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in inputs)

    def _check_outputs(self, outputs: Sequence[np.ndarray], inputs: Arrays) -> Arrays:
        check_types("output", outputs, self.artifact.outputs)
        for position, array in enumerate(outputs):
            if not (array.flags.c_contiguous and array.flags.writeable):
                raise ArrayError(f"output {position} must be contiguous and writeable")
            others = (*inputs, *outputs[:position])
            if any(np.may_share_memory(array, other) for other in others):
                raise ArrayError(f"output {position} shares memory with another argument")
        return tuple(outputs)


def _shared(what: str, arrays: Sequence[Any]) -> list[Any]:
    """Arguments as NumPy arrays on the same memory, as far as there are any."""
    found = []
    for position, array in enumerate(arrays):
        try:
            found.append(host_array(array))
        except (BufferError, RuntimeError) as error:  # of other packages
            raise ArrayError(f"{what} {position} cannot be read: {error}") from error
    return found


def check_types(what: str, arrays: Sequence[np.ndarray], types: Sequence[ArrayType]) -> None:
    """Raises ArrayError unless `arrays` (called `what`) are NumPy arrays of these types."""
    if len(arrays) != len(types):
        raise ArrayError(f"the program has {len(types)} {what}s, not {len(arrays)}")
    for position, (array, type_) in enumerate(zip(arrays, types, strict=True)):
        if not isinstance(array, np.ndarray):
            raise ArrayError(f"{what} {position} is a {type(array).__name__}, not a NumPy array")
        if array.shape != type_.shape or array.dtype != type_.dtype.numpy:
            given = f"{array.dtype}[{','.join(map(str, array.shape))}]"
            raise ArrayError(f"{what} {position} must be {type_}, not {given}")


def _pin_openmp() -> None:
    """Keep the OpenMP runtime loaded for good: its idle threads outlive the last library."""
    for name in _OPENMP_RUNTIMES:
        with suppress(OSError):  # this runtime is not the one in use
            ctypes.CDLL(name, os.RTLD_NOLOAD | os.RTLD_NODELETE | os.RTLD_NOW)


def load(
    artifact: Artifact, memory: Callable[[int], np.ndarray] = aligned_bytes,
    like: LoadedLibrary | None = None,
) -> LoadedLibrary:  # fmt: skip
    """`artifact` loaded into this process; raises LaunchError."""
    return LoadedLibrary(artifact, memory, like)


def load_library(artifact: Artifact, mode: str = "") -> LoadedLibrary:
    """As `load`, for a caller who may ask for a mode of issuing: there is none to choose here."""
    if mode:
        raise AutofuseError(f"device 'cpu' has no mode '{mode}'")
    return load(artifact)
