"""Plans as calls of JAX programs, by XLA's foreign function interface (`ffi.c`).

The handler is built by our C compiler against the headers that come with jax. No Python runs in a
call, so none can hold it up.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

import numpy as np

from autofuse.backends.base import Program, Source
from autofuse.backends.cache import content_key
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.library import CallFrame, LoadedLibrary
from autofuse.backends.sealed import load_kept
from autofuse.errors import AutofuseError
from autofuse.frontends.jax.types import jax_module
from autofuse.graph.canonical import digest
from autofuse.runtime.compiled import CompiledPlan

TARGET, _HERE = "autofuse_plan", "cpu"
_ADD, _CALL = "af_jax_add", "af_jax_call"
# By key. They stay, because JAX keeps compiled programs that call them.
Added = tuple[LoadedLibrary, CallFrame, ctypes.Array[ctypes.c_int64]]
_added: dict[int, Added] = {}
_adding = threading.Lock()


def plan_call(plan: CompiledPlan, results: Sequence[Any]) -> Callable[..., list[Any]]:
    """A function for JAX programs: arrays of the plan's input types, in order and without its
    constants, to its outputs.

    `results` are the outputs as `jax.ShapeDtypeStruct`s. Raises AutofuseError where the handler
    cannot be built, jax is too old to have `jax.ffi`, or programs do not run on a CPU."""
    platform = _platform()
    if platform != _HERE:
        raise AutofuseError(
            f"JAX runs its programs on '{platform}' here, and plans are a part of those on "
            f"'{_HERE}' (set jax_default_device or JAX_PLATFORMS)"
        )
    library = plan.loaded
    if not isinstance(library, LoadedLibrary):
        raise AutofuseError(f"JAX programs cannot call {plan.origin}: {'; '.join(plan.notes)}")
    told = [digest(plan.graph), plan.candidate.digest, *map(_content, library.bound)]
    # 63 bits: an attribute of a program is a signed number.
    key = int(content_key(told)[:16], 16) >> 1
    with _adding:
        if key not in _added:
            _added[key] = _add(key, library)
    call = jax_module().ffi.ffi_call(TARGET, list(results))

    def apply(*arrays: Any) -> list[Any]:
        return list(call(*arrays, plan=np.int64(key)))

    return apply


def _platform() -> str:
    """Where JAX runs a program now."""
    jax = jax_module()
    chosen = jax.config.jax_default_device
    return str(getattr(chosen, "platform", chosen) or jax.default_backend())


def _content(array: np.ndarray) -> str:
    return sha256(array.tobytes()).hexdigest()


def _add(key: int, given: LoadedLibrary) -> Added:
    """The library loaded for the handler alone: its lock is not that of Python's callers."""
    add, library = _handler()[_ADD], given.twin()
    frame = library.frame()
    places = (ctypes.c_int64 * len(frame.inputs))(*frame.inputs)
    add.argtypes = [ctypes.c_int64, *[ctypes.c_void_p] * 5, *[ctypes.c_int64] * 3]
    counts = (len(frame.inputs), len(library.artifact.outputs), frame.first_output)
    if add(key, frame.entry, frame.workspace, frame.blas, frame.table, places, *counts) != 0:
        raise AutofuseError("there is no memory for a plan")
    return library, frame, places


@lru_cache(maxsize=1)
def _handler() -> ctypes.CDLL:
    """The handler, built and made known to JAX."""
    jax = jax_module()
    if not hasattr(jax, "ffi"):
        raise AutofuseError(f"jax_jit needs jax.ffi, which jax {jax.__version__} does not have")
    text = files("autofuse.interop.jax").joinpath("ffi.c").read_text()
    # Headers change with the version, not with their path.
    told = f"/* {jax.lib.__version__} */\n"
    source = Source("jax_ffi", told + text, ("-O2", f"-I{jax.ffi.include_dir()}"))
    built = compile_program(Program((source,), _CALL, (), ()))
    handler = load_kept(built.artifact.path, built.artifact.digest)
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(handler[_CALL]), platform=_HERE)
    return handler
