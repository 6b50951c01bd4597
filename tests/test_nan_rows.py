"""A NaN anywhere in a row reaches every fold of the row, vectorised or not."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import reference_of
from autofuse.ops.dtypes import DType
from autofuse.plan.types import LaunchConfig
from tests.support.batching import Case, build, verdict
from tests.support.op_cases import whole

# Around the thresholds at which loops are unrolled, walked by lanes, or blocked.
WIDTHS = (3, 16, 17, 40, 64, 65, 130)


def extrema(width: int, dtype: DType, outer: int = 1) -> Graph:
    """Largest, smallest, their difference and the sum, over `outer` x `width` elements a row."""
    b = GraphBuilder()
    shape = (width + 2, outer, width) if outer > 1 else (width + 2, width)
    axes = tuple(range(1, len(shape)))
    x = b.input("x", shape, dtype)
    top, low, total = (b.add(f"reduce_{f}", x, axes=axes) for f in ("max", "min", "sum"))
    centred = b.add("sub", x, b.add("broadcast", top, shape=shape, dims=(0,)))
    return b.build([top, low, total, b.add("reduce_max", centred, axes=axes)])


def planted(graph: Graph) -> np.ndarray:
    """Row k has a NaN at column k; the last two rows have none."""
    (own,) = graph.input_types
    x = np.random.default_rng(0).normal(size=own.shape)
    for k in range(own.shape[-1]):
        x[(k, k) if x.ndim == 2 else (k, k % own.shape[1], k)] = np.nan
    return x.astype(own.dtype.numpy)


@pytest.mark.parametrize("level", ["-O1", "-O3"])
def test_nan_reaches_the_folds_of_its_row(level: str) -> None:
    graphs = [extrema(n, d) for n in WIDTHS for d in (DType.F32, DType.F64, DType.F16)]
    graphs += [extrema(n, DType.F32, 3) for n in WIDTHS]
    cases = [
        Case(graph, whole(graph, LaunchConfig.of(math=math)), f"{graph.input_types[0]} {math}")
        for graph in graphs
        for math in ("strict", "relaxed")
    ]
    for case, artifact in zip(cases, build(cases, level), strict=True):
        x = planted(case.graph)
        result = verdict(artifact, (x,), reference_of(case.graph, (x,)))
        assert result.ok, f"{case.label}: {result.message}"
