"""What kernels with products are expected to take, their bounds, and plans chosen by either."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import autofuse.frontends.array_api as xp
from autofuse.cost.amounts import Work
from autofuse.cost.bounds import NOMINAL, Calibration, group_bound_us, usual_peaks
from autofuse.cost.expected import START_US, expected_us, innermost
from autofuse.cost.masked import least_work, masked_shares
from autofuse.cost.work import group_work
from autofuse.devices import device_named
from autofuse.enumerate.enumeration import enumerate_groups
from autofuse.frontends import spec, trace
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family
from autofuse.plan.fusion.groups import needed_outputs
from autofuse.plan.fusion.legality import check_group, check_plan
from autofuse.plan.schedules.tiles import tiles_of
from autofuse.plan.types import FusionGroup, FusionPlan, LaunchConfig
from autofuse.simplify import normal_form
from autofuse.tuning.plans import (
    EXPECTED,
    baseline_plan,
    plan_named,
    untuned_candidate,
)
from autofuse.tuning.serve import untuned
from autofuse.zoo import zoo_graph
from search_spaces import CpuLaunchSpace
from tests.support.tile_programs import program, whole

CPU = CpuLaunchSpace()
MLP = normal_form(zoo_graph("mlp"))
ATTENTION = normal_form(zoo_graph("attention"))


def expected(graph: Graph, group: FusionGroup, peaks: Calibration = NOMINAL) -> float:
    return expected_us(graph, group, CPU.default(graph, group), peaks)


def products(graph: Graph) -> list[int]:
    return [n for n, one in enumerate(graph.nodes) if one.spec.family is Family.CONTRACTION]


def sum_of(graph: Graph, plan: FusionPlan) -> float:
    return sum(expected(graph, group) for group in plan.groups)


def test_two_products_in_one_kernel_are_bound_alike_and_expected_to_take_longer() -> None:
    pair, apart = whole(MLP), baseline_plan(MLP, "tvm")[0]
    assert len(apart.groups) == 2, "each product with what follows it"
    bounds = sum(group_bound_us(MLP, group, NOMINAL) for group in apart.groups)
    assert group_bound_us(MLP, pair, NOMINAL) <= bounds
    assert expected(MLP, pair) > sum_of(MLP, apart)
    for group in (pair, *apart.groups):
        assert expected(MLP, group) >= group_bound_us(MLP, group, NOMINAL)


def test_attention_in_one_kernel_is_expected_to_be_fastest() -> None:
    rules = ("xla-2022", "inductor", "tvm")
    others = [sum_of(ATTENTION, baseline_plan(ATTENTION, name)[0]) for name in rules]
    assert expected(ATTENTION, whole(ATTENTION)) < 0.7 * min(others)


def test_results_that_lie_across_the_lanes_are_expected_to_take_longer() -> None:
    def both(a: Any, b: Any) -> Any:
        return xp.exp(a @ b)

    def turned(a: Any, b: Any) -> tuple[Any, Any]:
        made = xp.exp(a @ b)
        return made, made.T

    shapes = spec((512, 256)), spec((256, 512))
    plain, across = (canonical(trace(f, *shapes)) for f in (both, turned))
    assert expected(across, whole(across)) > expected(plain, whole(plain))


def test_a_right_operand_whose_terms_are_neighbours_is_copied_element_by_element() -> None:
    few = spec((64, 512)), spec((512, 512))
    along = canonical(trace(lambda a, b: xp.exp(a @ b), *few))
    across = canonical(trace(lambda a, b: xp.exp(a @ b.T), *few))
    assert expected(across, whole(across)) > 1.2 * expected(along, whole(along))
    (node,) = products(across)
    left, right = across[node].inputs
    nodes = frozenset(whole(across).nodes)
    assert innermost(across, left, nodes) == 1
    assert innermost(across, right, nodes) == (0 if right.node in nodes else 1)


def test_a_single_row_has_one_thread() -> None:
    """All of it is local to the row, however much that is."""
    one = canonical(trace(lambda x: xp.exp(x) - xp.max(x), spec((64, 512))))
    rows = canonical(trace(lambda x: xp.exp(x) - xp.max(x, axis=1, keepdims=True), spec((64, 512))))
    many = usual_peaks(8)
    assert many.alone is not None
    alone = replace(many.alone, alone=many.alone)
    assert expected(one, whole(one), many) == pytest.approx(expected(one, whole(one), alone))
    assert expected(rows, whole(rows), many) < 0.7 * expected(one, whole(one), many)


def test_vectors_along_terms_pay_for_terms_that_are_no_neighbours() -> None:
    shapes = spec((2000, 2000)), spec(2000)
    both = canonical(trace(lambda a, x: (a @ x, x @ a), *shapes))
    one, other = products(both)
    apart = [FusionGroup((n,), (Value(n),)) for n in (one, other)]
    assert expected(both, whole(both)) > sum(expected(both, group) for group in apart)


def test_patches_and_turned_weights_of_a_convolution_are_copied_element_by_element() -> None:
    image, weights = spec((2, 32, 32, 16)), spec((3, 3, 16, 32))

    def conv(x: Any, w: Any) -> Any:
        return xp.conv(x, w, padding=1, channels_last=True)

    plain = canonical(trace(conv, image, weights))
    launch = CPU.default(plain, whole(plain))
    assert launch["walk"]
    copied = LaunchConfig.of(**{**dict(launch.settings), "walk": False})
    walked = expected_us(plain, whole(plain), launch, NOMINAL)
    assert expected_us(plain, whole(plain), copied, NOMINAL) > 1.5 * walked
    turned = canonical(
        trace(lambda x, w: conv(x, xp.permute_dims(w, (1, 2, 3, 0))), image, spec((32, 3, 3, 16)))
    )
    assert expected_us(turned, whole(turned), launch, NOMINAL) > 1.1 * walked


@pytest.mark.parametrize(("window", "times"), [(1, 1), (3, 9)])
@pytest.mark.parametrize("channels_last", [True, False], ids=["rows", "columns"])
def test_an_image_computed_where_it_is_read_is_computed_for_each_tap(
    channels_last: bool, window: int, times: int
) -> None:
    image, taps = spec((2, 16, 16, 16)), (window, window)
    weights = spec((*taps, 16, 48) if channels_last else (48, 16, *taps))

    def graph_of(function: Callable[[Any], Any]) -> Graph:
        def conv(x: Any, w: Any) -> Any:
            same = window // 2
            return xp.conv(function(x), w, padding=same, channels_last=channels_last)

        return canonical(trace(conv, image, weights))

    one, two = graph_of(xp.exp), graph_of(lambda x: xp.exp(xp.exp(x)))
    launch = CPU.default(one, whole(one))
    before, after = (expected_us(g, whole(g), launch, NOMINAL) for g in (one, two))
    exp = next(n for n, node in enumerate(one.nodes) if node.op == "exp")
    once = NOMINAL.added_us(group_work(one, (exp,), (Value(exp),)))
    assert after - before == pytest.approx(times * once, rel=0.05)


def test_a_transpose_by_blocks_costs_no_line_of_memory_for_each_element() -> None:
    graph = canonical(trace(lambda x: xp.permute_dims(x, (1, 0)), spec((2048, 2048))))
    plain, blocks = (
        expected_us(graph, whole(graph), LaunchConfig.of(transpose=on), NOMINAL)
        for on in (False, True)
    )
    assert plain > 4 * blocks
    assert CPU.default(graph, whole(graph))["transpose"]


def test_sums_without_tiles_compute_what_they_read_for_every_term() -> None:
    block = normal_form(zoo_graph("depthwise_block"), False)
    small = next(n for n in products(block) if block[n].spec.terms(block.call(n)) == 9)
    (before,) = (v.node for v in block[small].inputs if v.node > small - 3)
    fused, alone = (before, small), (small,)
    found = [FusionGroup(n, needed_outputs(block, n)) for n in (fused, alone, (before,))]
    together, sums, made = (expected(block, group) for group in found)
    assert together > sums + made


def test_a_bound_counts_no_score_past_the_mask() -> None:
    for name, masks in (("attention", False), ("masked_attention", True)):
        graph = program(name)
        group = whole(graph)
        shares = masked_shares(graph, group.nodes, group.outputs)
        full = group_work(graph, group.nodes, group.outputs)
        least = least_work(graph, group.nodes, group.outputs)
        assert bool(shares) == masks and least.nbytes == full.nbytes
        if masks:
            rows = 37
            share = (rows + 1) / (2 * rows)
            assert set(shares) == set(products(graph))
            assert list(shares.values()) == pytest.approx([share] * 2)
            assert least.contraction == pytest.approx(share * full.contraction)
            assert least.special == pytest.approx(share * full.special)
        else:
            assert least == full


@pytest.mark.parametrize(
    ("dtype", "kind"), [("f32", "contraction"), ("f64", "wide"), ("bf16", "narrow")]
)
def test_products_are_bound_by_the_peak_of_their_type(dtype: str, kind: str) -> None:
    graph = program("product", dtype)
    group = whole(graph)
    work = group_work(graph, group.nodes, group.outputs)
    assert getattr(work, kind) == work.products == 2 * 13 * 70 * 100
    slow = Calibration(0.0, 1e9, 1e9, 1e9, 100.0, 1e9, wide=50.0, narrow=400.0)
    rate = {"contraction": 100.0, "wide": 50.0, "narrow": 400.0}[kind]
    assert slow.compute_us(work) == pytest.approx(work.products / rate / 1e3)


def test_a_peak_that_was_not_measured_is_that_of_f32() -> None:
    device = Calibration(0.0, 1e9, 1e9, 1e9, 100.0, 1e9)
    for work in (Work(wide=1e5), Work(narrow=1e5), Work(contraction=1e5)):
        assert device.compute_us(work) == pytest.approx(1.0)
    kept = device.to_mapping()
    assert Calibration.kept(kept) == device
    del kept["edition"]
    assert Calibration.kept(kept) is None, "measured before there were times of scalar functions"


def test_no_grown_candidate_has_products_beside_what_shares_no_items_with_them() -> None:
    graph = normal_form(zoo_graph("mlp_train_step", "small"))
    given = baseline_plan(graph, "xla-2022")[0]
    found = enumerate_groups(graph, include=[given])
    assert found.counts["dominated: product beside others"] > 0
    for group in set(found.groups) - set(given.groups):
        verdict = check_group(graph, group.nodes, group.outputs)
        assert isinstance(verdict, tuple)
        tiled = [form for form in verdict if tiles_of(graph, form) is not None]
        assert len(verdict) == 1 or not tiled


def test_what_was_never_tuned_fuses_around_products_where_that_is_expected_to_pay() -> None:
    kind = device_named("cpu")
    for graph, most in ((MLP, 2), (ATTENTION, 1)):
        found = untuned_candidate(graph, kind)
        assert found.origin == EXPECTED and len(found.plan.groups) <= most
        check_plan(graph, found.plan)
        ruled = baseline_plan(graph, "xla-2022")[0]
        assert sum_of(graph, found.plan) < sum_of(graph, ruled)
    assert untuned_candidate(MLP, kind) == untuned_candidate(MLP, kind)


def test_keys_that_are_read_as_they_lie_cost_no_copy_of_their_elements() -> None:
    """Attention without a mask is one kernel too where its scores leave the caches."""
    shape = spec((12, 1024, 64))
    graph = normal_form(
        trace(lambda q, k, v: {"y": xp.softmax(q @ k.mT, axis=-1) @ v}, shape, shape, shape)
    )
    assert len(untuned_candidate(graph, device_named("cpu")).plan.groups) == 1


def test_what_was_never_tuned_fuses_rows_and_loops_where_that_saves_trips_through_memory() -> None:
    kind = device_named("cpu")
    for name in ("softmax", "layer_norm_gelu", "cartpole_noconcat"):
        graph = normal_form(zoo_graph(name, "small"))
        found = untuned_candidate(graph, kind)
        assert found.origin == EXPECTED and len(found.plan.groups) == 1
        assert len(baseline_plan(graph, "xla-2022")[0].groups) > 1
        assert found == untuned_candidate(graph, kind)


def test_what_is_untuned_follows_from_what_the_device_was_calibrated_to() -> None:
    """On a device that computes slowly and moves fast nothing may be computed twice."""
    b = GraphBuilder()
    x = b.input("x", (4096,), DType.F32)
    y = b.add("tanh", x)
    cuts = [b.add("slice", y, start=(k,), stop=(4090 + k,), stride=(1,)) for k in range(6)]
    total = cuts[0]
    for cut in cuts[1:]:
        total = b.add("add", total, cut)
    graph = canonical(b.build([total]))
    kind = device_named("cpu")
    slow = replace(NOMINAL, special=0.1, launch_us=0.01)
    assert len(untuned_candidate(graph, kind, slow).plan.groups) == 2
    dear = replace(NOMINAL, special=1e6, launch_us=1e3)
    assert len(untuned_candidate(graph, kind, dear).plan.groups) == 1


def test_one_thread_does_what_is_too_little_for_two_and_no_kernel_takes_nothing() -> None:
    """Four kernels of one thread take less than one that has every item sum by itself."""
    two = usual_peaks(2)
    assert two.alone is not None and two.launch_us > START_US > two.alone.launch_us
    graph = normal_form(zoo_graph("depthwise_block", "small"))
    for group in baseline_plan(graph, "xla-2022")[0].groups:
        taken = expected_us(graph, group, CPU.default(graph, group), two)
        assert START_US <= taken < two.launch_us
        assert expected_us(graph, group, LaunchConfig.of(threads=2), two) >= two.launch_us
    assert len(untuned_candidate(graph, device_named("cpu"), two).plan.groups) > 1
    assert usual_peaks(1).alone is None


def test_rules_stay_where_nothing_clearly_better_is_expected_and_on_other_devices() -> None:
    kind = device_named("cpu")
    swiglu = normal_form(zoo_graph("swiglu"))
    assert untuned_candidate(swiglu, kind).plan == baseline_plan(swiglu, "xla-2022")[0]
    lone = program("product")
    assert untuned_candidate(lone, kind).origin != EXPECTED
    assert plan_named(MLP, "untuned", device_named("cuda-emulated")).origin != EXPECTED
    assert (
        plan_named(MLP, "xla-2022", device_named("cpu")).plan == baseline_plan(MLP, "xla-2022")[0]
    )


def test_a_rough_plan_that_is_worse_than_a_given_one_does_not_serve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = normal_form(zoo_graph("convnet_block", "small"))
    unfused, fewer = (baseline_plan(graph, name)[0] for name in ("unfused", "inductor"))
    assert sum_of(graph, fewer) < 0.9 * sum_of(graph, unfused)
    for rough in (None, unfused):
        monkeypatch.setattr(untuned, "plan_by_bounds", lambda *args, rough, found=rough: found)
        found = untuned.expected_plan(graph, unfused, [fewer], CPU)
        assert sum_of(graph, found) <= sum_of(graph, fewer)


def test_what_a_loop_in_a_host_loop_reads_is_made_by_vectors() -> None:
    """One item that walks along a row would compute every function by itself, twice."""

    def cable(v: Any) -> Any:
        def step(i: Any, v: Any) -> Any:
            a = xp.exp(-v / 18.0)
            b = a / (1 + xp.exp(v * 0.1))
            c = xp.exp(b - a) + xp.tanh(b) + xp.exp(b * a)
            _, ys = xp.scan(lambda j, s: (s * 0.5 + c[j], s * 0.5 + c[j]), c[0] * 0.5, 16)
            return ys * 0.1 + b

        return {"v": xp.fori_loop(300, step, v)}

    graph = normal_form(trace(cable, spec((16,), "f64")))
    (group,) = untuned_candidate(graph, device_named("cpu")).plan.groups
    assert group.body is not None
    body: Graph = graph.call(group.nodes[0])["body"]
    kernels = [{body[n].op for n in inner.nodes} for inner in group.body.groups]
    assert len(kernels) < 5 and any({"exp", "tanh"} <= ops for ops in kernels)
    assert all({"exp", "tanh"}.isdisjoint(ops) for ops in kernels if "loop" in ops)
