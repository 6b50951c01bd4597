"""Some rows as loops written by hand in C: what the machine gives to whoever writes them so."""

from __future__ import annotations

import ctypes
import subprocess
import time
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np

from autofuse.backends.toolchain import find_compiler
from autofuse.peers.types import BenchError
from benchmarks.jax_cpu.calls import Prepared

# The file in which a row's function is.
FILES = {
    ("logistic_map", "values"): "loops.c",
    ("long_rotations", "values"): "loops.c",
    ("neuron_cable", "values"): "cable.c",
    ("neuron_cable", "gradients"): "cable.c",
}
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")


def by_hand(
    name: str, what: str, leaves: tuple[np.ndarray, ...], like: tuple[np.ndarray, ...], folder: Path
) -> Prepared:
    """A row of FILES called on these leaves of its arguments, with results in the shapes of `like`.
    Raises BenchError where it does not compile."""
    begun, file = time.perf_counter(), FILES[name, what]
    source, library = files(__package__).joinpath(file), folder / "by_hand.so"
    command = [*find_compiler().command, *FLAGS, "-o", str(library), str(source), "-lm"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise BenchError(f"{file} does not compile: {made.stderr[:300]}")
    function = ctypes.CDLL(str(library))[f"{name}_{what}"]
    function.restype = None
    results = tuple(np.empty(a.shape, a.dtype) for a in like)
    arrays = (*(np.ascontiguousarray(a) for a in leaves), *results)
    call = partial(function, *(a.ctypes.data_as(ctypes.c_void_p) for a in arrays))
    call()
    return Prepared(call, time.perf_counter() - begun, results)
