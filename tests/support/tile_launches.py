"""Launches of tiles, and how far their results are off."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.ir.types import statements
from autofuse.kernel.lower import extract, lower
from autofuse.plan.parameters import MICRO, LaunchConfig
from autofuse.plan.types import Candidate, FusionPlan
from tests.support.batching import quick_library
from tests.support.tile_programs import whole

SETTINGS = st.fixed_dictionaries(
    {
        "micro": st.sampled_from(MICRO.choices),
        "row_block": st.sampled_from((8, 20, 128)),
        "column_block": st.sampled_from((0, 64)),
        "term_block": st.sampled_from((0, 32)),
        "pack": st.booleans(),
        "pack_left": st.booleans(),
        "split": st.sampled_from((1, 2)),
        "dot": st.booleans(),
        "across": st.booleans(),
        "stage": st.booleans(),
        "vector_bits": st.sampled_from((512, 256)),
        "threads": st.sampled_from((1, 2)),
    }
)


def launch_of(**chosen: int | str | bool) -> LaunchConfig:
    plain: dict[str, int | str | bool] = {
        "threads": 1, "impl": "loops", "micro": "6x64", "row_block": 128, "pack": True,
        "stage": True,
    }  # fmt: skip
    return LaunchConfig.of(**{**plain, **chosen})


def error(graph: Graph, launch: LaunchConfig, level: str = "-O1") -> float:
    """The largest error of the whole graph as one kernel, against the float64 reference and its
    largest element."""
    candidate = Candidate(FusionPlan((whole(graph),)), (launch,))
    inputs = random_inputs(graph, 3)
    found = quick_library(graph, candidate, level).run(inputs)
    errors = [0.0]
    for got, want in zip(found, evaluate(graph, inputs), strict=True):
        apart = np.abs(got.astype(np.float64) - want)
        errors.append(float(np.max(apart) / max(1.0, float(np.max(np.abs(want))))))
    return max(errors)


def kernel_statements(graph: Graph, **chosen: int | str | bool) -> list[object]:
    group, _ = extract(graph, whole(graph))
    return list(statements(lower(group, launch_of(**chosen)).body))
