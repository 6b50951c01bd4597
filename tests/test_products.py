"""Products that a library computes with the moves of their operands: by strides, without copies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.backends.cuda.blas import Cublas
from autofuse.backends.cuda.emulated import EmulatedArtifact, EmulatedPlan
from autofuse.backends.cuda.program import Gemm, cuda_program
from autofuse.cost.bounds import NOMINAL, plan_bound_us
from autofuse.cover import k_best
from autofuse.devices import device_named
from autofuse.enumerate.enumeration import enumerate_groups
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.array import TracedArray as Array
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.canonical import canonical
from autofuse.graph.composites import layers as composites
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.kernel.library.gemm import library_of, library_product
from autofuse.kernel.text.dialects import CUDA, C
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import spec_of
from autofuse.ops.views import row_major
from autofuse.plan.fusion.legality import check_group, check_plan
from autofuse.plan.fusion.partition import plan_with_moves
from autofuse.plan.fusion.products import folded_moves, product_of, with_moves
from autofuse.plan.launch_types import BLAS
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig, Refusal
from autofuse.tuning.plans import DEFAULT_PLAN, fused_candidate, plan_named
from autofuse.tuning.search.cover import cover_problem
from autofuse.zoo import zoo_graph
from search_spaces import CpuLaunchSpace, CudaLaunchSpace, FusionSpace
from search_spaces.launch import first_option
from tests.support.batching import Case, failures
from tests.support.fake_cublas import FakeCublas
from tests.support.gemm_forms import multiplied
from tests.support.moved_products import moved_product
from tests.support.seeds import seeds

SEEDS = st.integers(0, 2**31)


def dot_of(graph: Graph) -> int:
    (node,) = (n for n, made in enumerate(graph.nodes) if made.op == "dot_general")
    return node


@given(SEEDS)
def test_a_view_is_what_the_moves_make(seed: int) -> None:
    graph = moved_product(seed, moves=5)
    for value in graph[dot_of(graph)].inputs:
        chain = []
        while graph[value.node].op != "input":
            chain.append(value.node)
            (value,) = graph[value.node].inputs
        wanted = np.arange(graph.type_of(value).size, dtype=np.float64)
        memory = wanted.copy()
        wanted = wanted.reshape(graph.type_of(value).shape)
        view = row_major(wanted.shape)
        for node in reversed(chain):
            call, moves = graph.call(node), spec_of(graph[node].op).view
            assert moves is not None
            (wanted,) = spec_of(graph[node].op).reference((wanted,), call)
            after = moves(call, view)
            if after is None:
                assert graph[node].op == "reshape"
                break
            view = after
            strides = tuple(8 * by for by in view.strides)
            found = np.ndarray(view.shape, np.float64, memory, 8 * view.offset, strides)
            np.testing.assert_array_equal(found, wanted)


@given(SEEDS)
def test_the_form_of_a_product_with_moves_reads_its_operands_where_they_lie(seed: int) -> None:
    graph = moved_product(seed)
    node = dot_of(graph)
    found = product_of(graph, (*folded_moves(graph, node), node))
    if found is None:
        return
    arrays = dict(zip(graph.inputs, random_inputs(graph, seed), strict=True))
    arrays = {n: array.astype(np.float64) for n, array in arrays.items()}
    if {found.lhs.node, found.rhs.node} <= arrays.keys():
        product = multiplied(found.form, arrays[found.lhs.node], arrays[found.rhs.node])
        (wanted,) = evaluate(graph, list(arrays.values()))
        np.testing.assert_allclose(product.reshape(wanted.shape), wanted, rtol=1e-9, atol=1e-9)


def all_fused(graph: Graph, launch: LaunchConfig) -> Candidate:
    """Whatever is legal fused, the moves of products with them."""
    plan = FusionSpace(graph).choose(first_option)
    check_plan(graph, plan)
    return Candidate(plan, (launch,) * len(plan.groups))


def folding(count: int, dtype: str) -> list[tuple[int, Graph]]:
    """Seeds of random products that take in at least one move."""
    made = ((seed, moved_product(seed, dtype)) for seed in seeds(4 * count))
    return [(s, g) for s, g in made if folded_moves(g, dot_of(g))][:count]


@pytest.mark.wide(3)
@pytest.mark.parametrize("impl", ["blas", "loops"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_products_with_moves_on_the_cpu(dtype: str, impl: str) -> None:
    cases = []
    for seed, graph in folding(40, dtype):
        launch = LaunchConfig.of(impl=impl, threads=1 + seed % 3)
        cases.append(Case(graph, all_fused(graph, launch), f"{seed} {dtype}"))
    assert len(cases) > 20
    wrong = failures(cases)
    assert not wrong, "\n".join(wrong)


@pytest.mark.wide(2)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_products_with_moves_by_cublas(dtype: str) -> None:
    """The emulated device multiplies as a program says; cuBLAS is told the same."""
    calls = 0
    error = 3e-2 if dtype in ("f16", "bf16") else 1e-4
    for seed, graph in folding(60, dtype):
        program = cuda_program(graph, all_fused(graph, LaunchConfig()))
        action = program.actions[0]
        if program.sources or not isinstance(action, Gemm):
            continue
        inputs = random_inputs(graph, seed)
        (wanted,) = evaluate(graph, inputs)
        (found,) = EmulatedPlan(EmulatedArtifact(program)).run(inputs)
        out, library = np.zeros_like(found), FakeCublas()
        a, b, c = (x.ctypes.data for x in (inputs[action.a.index], inputs[action.b.index], out))
        Cublas(library).multiply(action, (a, b, c), 0, 256)
        for made in (found, out):
            np.testing.assert_allclose(made.astype(np.float64), wanted, rtol=error, atol=error)
        assert len(library.streams) == action.form.products // action.form.walked.extent
        calls += 1
    assert calls > 20


# --- where copies are saved -------------------------------------------------------------------


def turned(size: int = 64, dtype: str = "f32", *, keep: bool = False) -> Graph:
    """Running sums, which no product can take in, times a weight stored the other way; `keep`: the
    turned weight is returned too."""

    def fn(x: Array, w: Array) -> object:
        t = xp.permute_dims(w, (1, 0))
        made = xp.matmul(xp.cumulative_sum(x, axis=0), t)
        return (made, t) if keep else made

    traced = trace(fn, spec((size, size), dtype), spec((size, size), dtype))
    return canonical(traced)


def ops_of(graph: Graph, plan: FusionPlan) -> list[list[str]]:
    return [[graph[n].op for n in group.nodes] for group in plan.groups]


def test_a_weight_used_transposed_is_one_library_call() -> None:
    graph = turned()
    plan = fused_candidate(graph, CpuLaunchSpace()).plan
    assert ops_of(graph, plan) == [["cumsum"], ["transpose", "dot_general"]]
    call = plan.groups[1]
    for dialect in (C, CUDA):
        assert library_of(graph, call, LaunchConfig(), dialect) == BLAS
    assert CpuLaunchSpace().kind(graph, call) == CudaLaunchSpace().kind(graph, call) == "gemm"


def test_moves_that_others_need_are_computed_again() -> None:
    graph = turned(keep=True)
    plan = fused_candidate(graph, CpuLaunchSpace()).plan
    assert ["transpose", "dot_general"] in ops_of(graph, plan)
    assert ["transpose"] in ops_of(graph, plan)


def test_what_only_a_product_moved_is_left_out_of_the_kernel_before_it() -> None:
    """The kernel that made the transpose together with what it moves now makes only the latter."""

    def fn(x: Array, w: Array) -> Array:
        return xp.matmul(x, xp.permute_dims(xp.cumulative_sum(w, axis=0), (1, 0)))

    graph = canonical(trace(fn, spec((64, 64), "f32"), spec((64, 64), "f32")))
    plan = fused_candidate(graph, CpuLaunchSpace()).plan
    assert ops_of(graph, plan) == [["cumsum"], ["transpose", "dot_general"]]
    found = enumerate_groups(graph)
    assert set(plan.groups) <= set(found.groups)
    assert any([graph[n].op for n in g.nodes] == ["cumsum", "transpose"] for g in found.groups)


def test_moves_stay_where_a_kernel_would_have_to_write_what_it_moves_too() -> None:
    """Scores read heads of what a product and a reshape have made, and so do the caches."""
    graph = canonical(zoo_graph("decode_step", "small"))
    made = ops_of(graph, all_fused(graph, LaunchConfig()).plan)
    assert ["dot_general", "reshape"] in made and ["reshape", "dot_general"] in made


def test_candidates_have_products_with_their_moves_and_the_bound_charges_no_copy() -> None:
    graph = turned()
    cover = cover_problem(enumerate_groups(graph))
    best = cover.plan(k_best(cover.problem)[0].plan)
    assert ops_of(graph, best) == [["cumsum"], ["transpose", "dot_general"]]
    node = dot_of(graph)
    moves = folded_moves(graph, node)
    copied = [FusionGroup((n,), (Value(n),)) for n in (*moves, node)]
    folded = FusionPlan((FusionGroup((*moves, node), (Value(node),)),))
    nbytes = 64 * 64 * 4
    apart = plan_bound_us(graph, FusionPlan(tuple(copied)), NOMINAL)
    saved = apart - plan_bound_us(graph, folded, NOMINAL)
    assert saved == pytest.approx(NOMINAL.launch_us + NOMINAL.move_us(2 * nbytes))


def test_choices_encode_products_with_and_without_moves() -> None:
    graph = turned()
    space = FusionSpace(graph)
    name = f"moves:{dot_of(graph)}"
    for wanted in (True, False):
        plan = space.choose(lambda n, options, w=wanted: w if n == name else options[0])
        assert (["transpose"] in ops_of(graph, plan)) is not wanted
        known = space.encode(plan)
        assert known[name] is wanted
        assert space.choose(lambda n, options, k=known: k.get(n, options[0])) == plan


def heads(batch: int, heads: int = 4, length: int = 32, width: int = 16) -> Graph:
    """Scores of attention from one array of all heads: reshaped and transposed before it."""

    def fn(q: Array, k: Array) -> Array:
        parts = (xp.reshape(v, (batch, length, heads, width)) for v in (q, k))
        left, right = (xp.permute_dims(p, (0, 2, 1, 3)) for p in parts)
        return xp.matmul(left, xp.permute_dims(right, (0, 1, 3, 2)))

    shape = (batch, length, heads * width)
    return canonical(trace(fn, spec(shape, "f32"), spec(shape, "f32")))


def test_heads_are_read_out_of_one_array() -> None:
    graph = heads(3)
    plan = fused_candidate(graph, CudaLaunchSpace()).plan
    (group,) = plan.groups
    found = library_product(graph, group, CUDA)
    assert found is not None
    assert [axis.extent for axis in found.form.batch] == [3, 4], "no one stride walks both"
    assert found.form.a.leading == 64
    assert isinstance(check_group(graph, group.nodes, group.outputs), tuple)


def test_so_many_calls_that_copies_are_better_are_no_library_call() -> None:
    graph = heads(33, 33, 2, 2)
    assert not any(graph[n].op == "reshape" for n in folded_moves(graph, dot_of(graph)))


def test_products_of_halves_are_the_librarys_on_cuda_alone() -> None:
    for dtype in ("f16", "bf16"):
        graph = turned(dtype=dtype)
        (*_, group) = fused_candidate(graph, CudaLaunchSpace()).plan.groups
        assert CudaLaunchSpace().kind(graph, group) == "gemm"
        assert CpuLaunchSpace().kind(graph, group) != "gemm"
        assert library_of(graph, group, LaunchConfig.of(impl="blas"), C) != BLAS


def test_only_moves_of_its_operands_may_be_with_a_product() -> None:
    graph = turned()
    node = dot_of(graph)
    (before,) = (n for n, made in enumerate(graph.nodes) if made.op == "cumsum")
    for nodes in ((before, node), tuple(sorted((before, *folded_moves(graph, node), node)))):
        refused = check_group(graph, nodes, (Value(node),))
        assert isinstance(refused, Refusal) and refused.rule == "tile"
    both = tuple(sorted((*folded_moves(graph, node), node)))
    group = FusionGroup(both, tuple(map(Value, both)))
    assert library_of(graph, group, LaunchConfig(), C) != BLAS, "a library writes the product alone"


def test_what_was_never_tuned_copies_no_weight_on_either_device() -> None:
    graph = turned()
    for device in ("cpu", "cuda-emulated"):
        found = plan_named(graph, "untuned", device_named(device), simplify=False)
        assert ops_of(graph, found.plan) == [["cumsum"], ["transpose", "dot_general"]]
        assert found.origin == "untuned"
    plain = canonical(trace(lambda x: xp.abs(x), spec((64, 64))))
    assert plan_named(plain, "untuned", device_named("cpu")).origin == DEFAULT_PLAN


def test_a_given_plan_takes_moves_only_where_what_they_read_is_in_memory() -> None:
    graph = turned(keep=True)
    node, (move,) = dot_of(graph), folded_moves(graph, dot_of(graph))
    (before,) = (n for n, made in enumerate(graph.nodes) if made.op == "cumsum")
    groups = [FusionGroup((n,), (Value(n),)) for n in (before, move, node)]
    kept = with_moves(graph, FusionPlan(tuple(groups)))
    assert [g.nodes for g in kept.groups] == [(before,), (move,), (move, node)], "it is returned"
    inside = canonical(
        trace(
            lambda x, w: xp.matmul(x, xp.permute_dims(xp.cumulative_sum(w, axis=0), (1, 0))),
            *[spec((64, 64))] * 2,
        )
    )
    made = [n for n, one in enumerate(inside.nodes) if one.op != "input"]
    parts = (tuple(made[:2]), (made[2],))
    joined = FusionPlan(tuple(FusionGroup(nodes, (Value(nodes[-1]),)) for nodes in parts))
    assert with_moves(inside, joined) == joined, "nobody writes what would be read"


def test_a_product_never_writes_a_move_that_its_other_operand_waits_for() -> None:
    def both(x: Array, w: Array) -> tuple[Array, Array]:
        moved = xp.exp(x).mT
        return moved.mT @ xp.exp(moved @ w), xp.tanh(moved)

    graph = trace(both, spec((4, 6)), spec((4, 5)))
    # The set that has the move ends after the product that takes it in.
    sets = [frozenset(s) for s in ({2, 3, 8}, {4}, {5}, {6}, {7})]
    assert graph[3].op == "transpose" and graph[7].op == "dot_general" and graph[8].op == "tanh"
    plan = plan_with_moves(graph, sets, [7], {})
    assert [group.nodes for group in plan.groups] == [(2, 3, 8), (5,), (6,), (3, 4, 7)]


def test_a_move_that_others_read_is_not_taken_in_where_sets_would_wait_in_a_circle() -> None:
    """The backward pass of a linear layer: two products and a sum read one reshaped array."""
    w = GraphWriter()
    a, x = w.input("a", (8, 16, 16), DType.F32), w.input("x", (8, 16, 3), DType.F32)
    k = w.input("k", (16, 3), DType.F32)
    rows, y = w.reshape(a, (128, 16)), w.map("max", x, 0.0)
    weights = composites.dot(w, rows, w.reshape(y, (128, 3)), ((0,), (0,)), ((), ()))
    inner = composites.dot(w, rows, k, ((1,), (0,)), ((), ()))
    passed = w.select(w.map("le", y, 0.0), 0.0, w.reshape(inner, (8, 16, 3)))
    bias = w.op("reduce_sum", w.map("neg", rows), axes=(0,))
    graph = w.build([w.map("neg", weights), bias, passed])
    plan = FusionSpace(graph).choose(first_option)
    assert {v for group in plan.groups for v in group.outputs} >= set(graph.outputs)
