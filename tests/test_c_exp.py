"""The exponential that C kernels compute by themselves."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse import trace
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.canonical import canonical
from autofuse.plan.types import Candidate, FusionPlan, LaunchConfig
from tests.support.batching import quick_library
from tests.support.tile_programs import whole

MOST_ULPS = 2.0
SPECIAL = (np.inf, -np.inf, np.nan, 0.0, 88.72, 88.73, 89.4, 89.6, 1e30, -1e30, -86.9, -200.0)


@pytest.mark.parametrize("math", ["strict", "relaxed"])
@pytest.mark.parametrize("bits", [512, 256])
def test_exp_errs_by_two_units_and_knows_its_ends(math: str, bits: int) -> None:
    rng = np.random.default_rng(11)
    x = np.concatenate([SPECIAL, rng.uniform(-86.9, 88.7, 1 << 16)]).astype(np.float32)
    graph = canonical(trace(lambda x: {"y": xp.exp(x)}, spec(x.size)))
    launch = LaunchConfig.of(math=math, vector_bits=bits)
    candidate = Candidate(FusionPlan((whole(graph),)), (launch,))
    (found,) = quick_library(graph, candidate, "-O3").run([x])
    with np.errstate(over="ignore", invalid="ignore"):
        exact = np.exp(x.astype(np.float64))
        wanted = exact.astype(np.float32)
        near = np.abs(found - exact) <= MOST_ULPS * np.spacing(wanted)
    ends = len(SPECIAL)
    same = (found == wanted) | np.isnan(wanted) & np.isnan(found)
    assert np.all((same | near)[:ends]), (x[:ends], found[:ends])
    assert np.all(near[ends:])
