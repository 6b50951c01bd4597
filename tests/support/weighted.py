"""Programs whose weights are declared constants, and their candidates."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from autofuse import spec, trace, xp
from autofuse.backends.library import LoadedLibrary
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.settled import constant_inputs
from autofuse.graph.types import Graph
from autofuse.plan.fusion.groups import group_of, is_source, ordered_plan
from autofuse.plan.parameters import MICRO, LaunchConfig
from autofuse.plan.types import Candidate, FusionPlan
from tests.support.batching import quick_library
from tests.support.tile_programs import PROGRAMS, whole

TOLERANCE = {"f32": 2e-5, "f64": 1e-12, "f16": 2e-3, "bf16": 2e-2}
SETTINGS = st.fixed_dictionaries(
    {
        "micro": st.sampled_from(MICRO.choices),
        "row_block": st.sampled_from((8, 20, 128)),
        "column_block": st.sampled_from((0, 64)),
        "term_block": st.sampled_from((0, 32)),
        "pack": st.booleans(),
        "vector_bits": st.sampled_from((512, 256)),
        "threads": st.sampled_from((1, 2)),
    }
)


def weighted(name: str, dtype: str = "f32") -> Graph:
    """A program of the tile schedule whose operands but the first are constants."""
    fn, (first, *others) = PROGRAMS[name]
    weights = (spec(shape, dtype, constant=True) for shape in others)
    return canonical(trace(fn, spec(first, dtype), *weights))


def packed_launch(**chosen: int | str | bool) -> LaunchConfig:
    plain: dict[str, int | str | bool] = {
        "threads": 1, "impl": "loops", "micro": "6x64", "row_block": 128, "pack": True,
        "stage": True, "prepack": True,
    }  # fmt: skip
    return LaunchConfig.of(**{**plain, **chosen})


def in_one(graph: Graph, launch: LaunchConfig) -> Candidate:
    return Candidate(FusionPlan((whole(graph),)), (launch,))


def each_alone(graph: Graph, launch: LaunchConfig = packed_launch()) -> Candidate:  # noqa: B008 - frozen
    nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
    plan = ordered_plan(graph, [group_of(graph, [n]) for n in nodes])
    return Candidate(plan, (launch,) * len(plan.groups))


def built(graph: Graph, candidate: Candidate) -> LoadedLibrary:
    return quick_library(graph, candidate)


def split(graph: Graph, inputs: tuple[np.ndarray, ...]) -> tuple[list[Any], list[Any]]:
    """What is constant, and the rest."""
    fixed = constant_inputs(graph)
    rest = [a for k, a in enumerate(inputs) if k not in fixed]
    return [inputs[k] for k in fixed], rest


def error(graph: Graph, candidate: Candidate) -> float:
    """The largest error of two calls with one preparation, against the float64 reference."""
    library, worst = built(graph, candidate), 0.0
    inputs = random_inputs(graph, 3)
    library.prepare(split(graph, inputs)[0])
    for seed in (3, 4):
        fresh = random_inputs(graph, seed)
        fixed = constant_inputs(graph)
        inputs = tuple(inputs[k] if k in fixed else a for k, a in enumerate(fresh))
        found = library.run(split(graph, inputs)[1])
        for got, want in zip(found, evaluate(graph, inputs), strict=True):
            apart = np.abs(got.astype(np.float64) - want)
            worst = max(worst, float(np.max(apart) / max(1.0, float(np.max(np.abs(want))))))
    return worst


def quantised(x: Any, w: Any, scale: Any) -> Any:
    return np.maximum(x @ (xp.astype(w, "f32") * scale).mT, 0)


def dequantising(constant: bool = True, rows: int = 5) -> Graph:
    weight = spec((96, 40), "i8", constant=constant), spec((96, 1), constant=constant)
    return canonical(trace(quantised, spec((rows, 40)), *weight))


def layer(constant: bool = True) -> Graph:
    def fn(x: Any, w: Any, b: Any) -> Any:
        return np.tanh(x @ w.T + b)

    return trace(fn, spec((4, 8)), spec((16, 8), constant=constant), spec(16, constant=constant))


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"w": rng.random((16, 8), np.float32), "b": rng.random(16, np.float32)}


def expected(x: np.ndarray, given_: dict[str, np.ndarray]) -> np.ndarray:
    return np.tanh(x @ given_["w"].T + given_["b"])
