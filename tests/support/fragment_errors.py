"""How far a kernel of matrix fragments is off its reference."""

from __future__ import annotations

import numpy as np

from autofuse.backends.emulator.emulator import Emulated
from autofuse.graph.reference import evaluate, random_inputs
from tests.support.emulation import OneKernel, counted


def error_of(library: Emulated, one: OneKernel) -> tuple[float, int]:
    """The largest difference from the reference, relative to 1 + |wanted|, and the turns that
    conflicts of banks cost. Raises AssertionError where NaN is not where it should be."""
    inputs = random_inputs(one.graph, 1)
    found, counts = counted(library, one, inputs)
    most = 0.0
    for got, wanted in zip(found, evaluate(one.graph, inputs), strict=True):
        assert (np.isnan(got.astype(np.float64)) == np.isnan(wanted)).all()
        away = np.abs(got.astype(np.float64) - wanted) / (1 + np.abs(wanted))
        most = max(most, float(np.nanmax(away, initial=0.0)))
    return most, counts.conflicts
