"""Products on tensor cores, and how far they are off."""

from __future__ import annotations

import numpy as np

from autofuse.backends.emulator.emulator import Emulated
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.plan.parameters import HALF_MMA, Setting
from tests.support.emulation import OneKernel, counted, one_kernel
from tests.support.mma_cases import launch, program

USUAL: dict[str, Setting] = {
    "impl": "loops", "mma": HALF_MMA, "threads": 64, "micro": "32x64", "row_block": 64,
    "column_block": 64, "stages": 3,
}  # fmt: skip

LAYOUTS = ("product", "right turned", "left turned", "both turned")


def made(name: str, dtype: str = "bf16", sizes: tuple[int, int, int] = (40, 72, 104),
         **settings: Setting) -> OneKernel:  # fmt: skip
    return one_kernel(program(name, sizes, dtype), launch({**USUAL, **settings}))


def difference(library: Emulated, one: OneKernel) -> tuple[float, int]:
    """The largest difference from the reference, relative to 1 + |wanted|, and the turns that
    conflicts of banks cost."""
    inputs = random_inputs(one.graph, 1)
    found, counts = counted(library, one, inputs)
    most = 0.0
    for got, wanted in zip(found, evaluate(one.graph, inputs), strict=True):
        error = np.abs(got.astype(np.float64) - wanted) / (1 + np.abs(wanted))
        assert np.isfinite(error).all()
        most = max(most, float(error.max()))
    return most, counts.conflicts
