"""Columns that are folded in parts at the same time: both graphs, and both kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest

from autofuse.backends.cuda.devices import TARGETS
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph, Value
from autofuse.plan.fusion.groups import reads
from autofuse.plan.parameters import HALF_MMA, SPLIT
from autofuse.plan.program.splitting import HalfOfGroup, Splitting, splitting_of
from autofuse.plan.types import LaunchConfig
from search_spaces import CudaLaunchSpace
from tests.support.emulation import library_of, run_kernel
from tests.support.fragment_cases import PROGRAMS, rows_program
from tests.support.splitting import on_gpu
from tests.support.tile_programs import whole

LAUNCH = LaunchConfig.of(
    impl="loops", mma=HALF_MMA, fragments=True, threads=64, row_block=32, column_block=16,
    stages=2, grid="one", split=2,
)  # fmt: skip
# Runs one half, given what it reads.
Half = Callable[[list[np.ndarray]], list[np.ndarray]]
# What is not cut: products with scores of their own.
WHOLE = {"two products of a row", "two sources"}


def cut(name: str, dtype: str, split: int = 2) -> tuple[Graph, Splitting | None]:
    rows = 32 if name.startswith(("causal", "window")) else 24
    graph = rows_program(name, (rows, 32, 16, 16), dtype)
    launch = LaunchConfig.of(**{**dict(LAUNCH.settings), "split": split})
    return graph, splitting_of(graph, whole(graph), launch)


def referred(half: HalfOfGroup, given: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of one graph by the references, given what it reads in order."""
    inside = set(half.graph.inputs)
    order = [v.node for v in reads(half.graph, half.group.nodes) if v.node in inside]
    arrays = dict(zip(order, given, strict=True))
    with np.errstate(all="ignore"):
        found = evaluate(half.graph, [arrays[n] for n in half.graph.inputs])
    return [found[half.graph.outputs.index(v)] for v in half.group.outputs]


def joined(
    found: Splitting, inputs: dict[Value, np.ndarray], runs: Sequence[Half]
) -> list[np.ndarray]:
    """The outputs of a group by both halves, each by its own run."""
    made = runs[0]([inputs[v] for v in found.sums.reads if isinstance(v, Value)])
    parts = dict(zip(found.sums.writes, made, strict=True))
    rest = runs[1]([parts[v] if isinstance(v, int) else inputs[v] for v in found.rest.reads])
    results = dict(zip(found.rest.writes, rest, strict=True))
    return [results[k] for k in range(len(rest))]


def assert_close(
    graph: Graph, found: Sequence[np.ndarray], inputs: list[np.ndarray], tolerance: float
) -> None:
    with np.errstate(all="ignore"):
        exact = evaluate(graph, inputs)
    for v, got in zip(whole(graph).outputs, found, strict=True):
        wanted = exact[graph.outputs.index(v)]
        np.testing.assert_allclose(
            np.asarray(got, np.float64), wanted, rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - WHOLE))
@pytest.mark.parametrize("split", [2, 4])
def test_both_graphs_are_the_one_that_was_cut(name: str, split: int) -> None:
    graph, found = cut(name, "f32", split)
    assert found is not None
    inputs = random_inputs(graph, 3)
    given = dict(zip(map(Value, graph.inputs), inputs, strict=True))
    halves = found.sums, found.rest
    runs: list[Half] = [partial(referred, half) for half in halves]
    assert_close(graph, joined(found, given, runs), inputs, 1e-5)


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_what_is_not_cut_is_one_kernel(name: str) -> None:
    assert cut(name, "f32")[1] is None


def test_both_kernels_are_right() -> None:
    names = ("causal", "rows that see nothing", "log-sum-exp", "grouped", "one row", "epilogue")
    cases = [(*cut(name, dtype), dtype) for name in names for dtype in ("bf16", "f16")]
    made = [[on_gpu(half) for half in (s.sums, s.rest)] for _, s, _ in cases if s is not None]
    assert len(made) == len(cases)
    library = library_of([one for pair in made for one in pair])
    for (graph, found, dtype), pair in zip(cases, made, strict=True):
        assert found is not None and "af_multiply" in pair[0].text
        inputs = random_inputs(graph, 3)
        given = dict(zip(map(Value, graph.inputs), inputs, strict=True))
        runs: list[Half] = [partial(run_kernel, library, one) for one in pair]
        assert_close(graph, joined(found, given, runs), inputs, 3e-2 if dtype == "bf16" else 4e-3)


def offered(rows: int, columns: int) -> tuple[int | str | bool, ...]:
    """Parts that are offered to 8 heads of so many rows and columns on an A100."""
    graph = rows_program("attention", (rows, columns, 64, 64))
    seen: dict[str, tuple[int | str | bool, ...]] = {}

    def choose(key: str, options: tuple[int | str | bool, ...]) -> int | str | bool:
        seen[key.split(".")[2]] = options
        return options[0]

    CudaLaunchSpace(TARGETS["A100"]).choose(graph, whole(graph), choose, "p")
    return seen.get(SPLIT.name, ())


def test_parts_are_offered_where_rows_are_few() -> None:
    assert offered(1, 8192) == (16, 8, 4, 2, 1)
    assert offered(1, 300) == ()
    assert offered(1 << 15, 8192) == ()
