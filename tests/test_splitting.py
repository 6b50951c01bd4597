"""Terms of a product summed in parts: two kernels, the same sums every time, on every device."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse import trace
from autofuse.backends.codes import group_code
from autofuse.backends.cpu import backend as cpu
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph, Value
from autofuse.plan.program.schedule import Run, schedule
from autofuse.plan.program.splitting import splitting_of
from autofuse.plan.types import Candidate, FusionPlan, LaunchConfig, Setting
from search_spaces.splits import busiest, split_options, split_time, tail_options
from search_spaces.tile_facts import tile_facts
from tests.support.batching import quick_library
from tests.support.emulation import library_of, run_kernel
from tests.support.splitting import on_gpu
from tests.support.tile_programs import program, whole

USUAL: dict[str, Setting] = {
    "impl": "loops", "micro": "4x24", "row_block": 32, "pack": True, "vector_bits": 256,
}  # fmt: skip


def plain(rows: int, columns: int, terms: int, dtype: str = "f32") -> Graph:
    return canonical(
        trace(lambda a, b: a @ b, spec((rows, terms), dtype), spec((terms, columns), dtype))
    )


def candidate(graph: Graph, **settings: Setting) -> Candidate:
    launch = LaunchConfig.of(**{**USUAL, "threads": 1, **settings})
    return Candidate(FusionPlan((whole(graph),)), (launch,))


@pytest.mark.parametrize("name", ["product", "epilogue", "softmax_after", "prologue"])
def test_a_group_that_is_split_is_two_kernels(name: str) -> None:
    graph = program(name)
    found = schedule(graph, candidate(graph, split=2))
    first, second = found.steps
    assert isinstance(first, Run) and isinstance(second, Run)
    assert first.writes[0] in second.reads
    (product,) = (n for n in graph.nodes if n.op == "dot_general")
    assert first.graph.output_types[0].shape == (2, *product.types[0].shape)
    assert found.workspace >= 2 * product.types[0].nbytes
    assert set(found.owners) == {0}


@pytest.mark.parametrize(
    "graph",
    [plain(8, 16, 71), plain(8, 16, 70, "f16"), program("gated"), program("convolution")],
    ids=["no equal parts", "narrow sums", "two products", "convolution"],
)
def test_what_cannot_be_split_is_one_kernel(graph: Graph) -> None:
    assert len(schedule(graph, candidate(graph, split=2)).steps) == 1


def test_sums_are_the_same_every_time() -> None:
    graph = plain(5, 40, 512)
    inputs = random_inputs(graph, 1)
    found = [
        quick_library(graph, candidate(graph, **chosen)).run(inputs)
        for chosen in ({"split": 4}, {"split": 4, "threads": 2})
    ]
    assert np.array_equal(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][0], evaluate(graph, inputs)[0], rtol=1e-4, atol=1e-4)


def test_the_code_of_a_split_group_is_that_of_both_kernels() -> None:
    graph = plain(5, 40, 512)
    codes = {
        group_code(graph, whole(graph), candidate(graph, split=parts).launches[0], cpu.kernel_code)
        for parts in (1, 2, 4)
    }
    assert len(codes) == 3


def test_both_kernels_are_right_on_a_gpu() -> None:
    graph = program("epilogue")
    launch = LaunchConfig.of(
        **{**USUAL, "threads": 64, "micro": "32x32", "grid": "stride", "split": 2}
    )
    found = splitting_of(graph, whole(graph), launch)
    assert found is not None
    inputs = random_inputs(graph, 4)
    given = dict(zip(map(Value, graph.inputs), inputs, strict=True))
    halves = [on_gpu(half) for half in (found.sums, found.rest)]
    library = library_of(halves)
    (parts,) = run_kernel(
        library, halves[0], [given[v] for v in found.sums.reads if isinstance(v, Value)]
    )
    rest = [parts if isinstance(v, int) else given[v] for v in found.rest.reads]
    (result,) = run_kernel(library, halves[1], rest)
    np.testing.assert_allclose(result, evaluate(graph, inputs)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("sizes", "workers", "first"),
    [((16, 64, 8192), 8, 8), ((16, 64, 8191), 8, None), ((2000, 2000, 512), 8, None),
     ((16, 64, 300), 8, None), ((16, 64, 8192), 1, None)],
)  # fmt: skip
def test_parts_are_offered_where_blocks_are_few(
    sizes: tuple[int, int, int], workers: int, first: int | None
) -> None:
    graph = plain(*sizes)
    facts = tile_facts(graph, whole(graph))
    assert facts is not None
    options = split_options(facts, {"row_block": 32, "column_block": 64}, workers)
    assert (options[0] if options else None) == first


def test_a_tail_is_cut_where_that_saves_more_than_meeting_takes() -> None:
    """Tiles of 4096 terms for 10 multiprocessors, of which 5 are no whole turn: in two parts each
    of these has half a tile, and what meeting takes."""
    assert busiest(25, 10, 4096, 1, 128) == 3 * 4096
    assert busiest(25, 10, 4096, 2, 128) == 2 * 4096 + 2048 + 128 + 2 * 128
    assert busiest(20, 10, 4096, 4, 128) == 2 * 4096
    assert busiest(27, 10, 4096, 4, 0) == 2 * 4096 + 3 * 1024
    assert split_time(5, 10, 4096, 2, 128) == 2048 + 128 + 0.5 * 3 * 128
    facts = tile_facts(plain(64 * 5, 64 * 5, 4096), whole(plain(64 * 5, 64 * 5, 4096)))
    assert facts is not None
    made = {"micro": "64x64", "row_block": 64, "column_block": 64}
    assert tail_options(facts, made, 10, 128)[0] == 2
    assert tail_options(facts, made, 25, 128) == () == tail_options(facts, made, 10, 2048)
    assert tail_options(facts, {**made, "split": 2}, 10, 128) == ()
