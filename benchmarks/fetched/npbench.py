"""NPBench: numerical programs, as their authors wrote them for JAX.

Ziogas et al., "NPBench: A Benchmarking Suite for High-Performance NumPy", ICS 2021.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.fetched.repository import Repository, file_module
from benchmarks.unseen.making import of_jax
from benchmarks.unseen.types import Made, Program

NPBENCH = Repository(
    "npbench", "https://github.com/spcl/npbench", "f2d7f27d87ba4881991e62c18a607aa6ba52b260",
    "BSD-3-Clause",
)  # fmt: skip
SIZE = "S"
NAMES = (
    "adi", "arc_distance", "atax", "azimint_hist", "azimint_naive", "bicg", "cavity_flow",
    "channel_flow", "cholesky", "cholesky2", "compute", "conv2d_bias", "correlation", "covariance",
    "crc16", "deriche", "doitgen", "durbin", "fdtd_2d", "floyd_warshall", "gemm", "gemver",
    "gesummv", "go_fast", "gramschmidt", "hdiff", "heat_3d", "jacobi_1d", "jacobi_2d", "k2mm",
    "k3mm", "lenet", "lu", "ludcmp", "mlp", "mvt", "nbody", "nussinov", "resnet",
    "scattering_self_energies", "seidel_2d", "softmax", "spmv", "stockham_fft", "symm", "syr2k",
    "syrk", "trisolv", "trmm", "vadv",
)  # fmt: skip
# Those that have a JAX program too, and why they are none of ours.
EXCLUDED: Mapping[str, str] = {
    "contour_integral": "it solves complex systems, which the front end refuses",
    "mandelbrot1": "it is given no array, so all of it is a constant",
    "mandelbrot2": "it is given no array, so all of it is a constant",
}
# Types of JAX where it is not told to use 64 bits.
_NARROW = {"float64": "float32", "int64": "int32", "complex128": "complex64"}


def _made(name: str) -> Made:
    """The program on the arrays that its authors initialise, of JAX's default types. Numbers that
    are no arrays are part of it."""
    told = json.loads((NPBENCH.folder / f"bench_info/{name}.json").read_text(encoding="utf-8"))
    info: dict[str, Any] = told["benchmark"]
    folder = NPBENCH.folder / "npbench/benchmarks" / info["relative_path"]
    module = info["module_name"]
    values = dict(info["parameters"][SIZE])
    make = getattr(file_module(folder / f"{module}.py"), info["init"]["func_name"])
    drawn = make(*(values[each] for each in info["init"]["input_args"]))
    several = info["init"]["output_args"]
    values |= zip(several, drawn if len(several) > 1 else (drawn,), strict=True)
    run = getattr(file_module(folder / f"{module}_jax.py"), info["func_name"])
    given = {each: _narrow(values[each]) for each in info["input_args"]}
    arrays = {each: value for each, value in given.items() if isinstance(value, np.ndarray)}

    def program(*arguments: Any) -> Any:
        return run(*(given | dict(zip(arrays, arguments, strict=True))).values())

    return of_jax(program, *arrays.values())


def _narrow(value: Any) -> Any:
    """An array, or a number of NumPy's, as an array of the type that JAX makes of it."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    return np.asarray(value).astype(_NARROW.get(value.dtype.name, value.dtype.name))


PROGRAMS = tuple(
    Program(
        f"npbench:{name}", "numerical", "npbench", ("jax",), partial(_made, name),
        folder=NPBENCH.folder,
    )
    for name in NAMES
)  # fmt: skip
