"""The launch space of CUDA: what it offers each kind of kernel, and what it never offers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.backends.cuda.build import build_cuda
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.cuda.program import Gemm, KernelLaunch, cuda_program
from autofuse.devices import device_named
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.kernel.cuda.settings import Settings
from autofuse.measure.check.compare import NOISE_ULPS
from autofuse.plan.parameters import FAST_DIVISION, FAST_DIVISION_ULPS
from autofuse.plan.types import Candidate, FusionPlan, LaunchConfig, Setting
from autofuse.tuning.plans import fused_candidate
from autofuse.zoo import zoo_graph
from autofuse.zoo.cartpole import cartpole_naive
from search_spaces import CudaLaunchSpace
from tests.support.cuda_spaces import SPACE, folded, offered, whole

RELAXED_SPACE = CudaLaunchSpace(relaxed=True)


def pointwise(dtype: str = "f32", count: int = 1 << 20) -> Graph:
    b = GraphBuilder()
    return canonical(b.build([b.add("exp", b.input("x", (count,), dtype))]))


def turned() -> Graph:
    b = GraphBuilder()
    return canonical(b.build([b.add("transpose", b.input("x", (512, 256), "f32"), perm=(1, 0))]))


def product(dtype: str = "f32") -> Graph:
    b = GraphBuilder()
    x, y = b.input("x", (64, 32), dtype), b.input("y", (32, 48), dtype)
    none: tuple[int, ...] = ()
    made = b.add("dot_general", x, y, lhs_batch=none, rhs_batch=none, lhs_contract=(1,),
                 rhs_contract=(0,))  # fmt: skip
    return canonical(b.build([made]))


def default(graph: Graph, space: CudaLaunchSpace = SPACE) -> dict[str, Setting]:
    return dict(space.default(graph, whole(graph)).settings)


@pytest.mark.parametrize(
    ("dtype", "vector", "widest"), [("f32", 4, 4), ("f64", 2, 2), ("f16", 4, 8), ("i8", 4, 8)]
)
def test_accesses_are_at_most_16_bytes(dtype: str, vector: int, widest: int) -> None:
    graph = pointwise(dtype) if dtype != "i8" else folded(4096, 4096, dtype)
    assert default(graph)["vector"] == vector
    (options,) = [o for name, o in offered(graph).items() if name.endswith("vector")]
    assert max(int(o) for o in options) == widest


@pytest.mark.parametrize(
    ("rows", "length", "reduce", "keep"),
    [
        (4096, 512, "warp", "registers"),
        (4096, 4096, "block", "registers"),
        (64, 20_000, "block", "shared"),
        (4096, 1 << 20, "block", "reread"),
        (8, 1 << 20, "split", "reread"),
    ],
)
def test_rows_are_folded_by_as_many_threads_as_they_need(
    rows: int, length: int, reduce: str, keep: str
) -> None:
    found = default(folded(rows, length))
    assert found["reduce"] == reduce
    assert keep == found["keep"] or (keep == "shared" and found["keep"] == "registers")
    if reduce == "block":
        each = 16 if rows == 4096 else 4
        assert int(found["threads"]) * each >= min(length, 512 * each)


def added(arrays: int, count: int = 1 << 24) -> Graph:
    b = GraphBuilder()
    found, *others = (b.input(f"x{k}", (count,), "f32") for k in range(arrays))
    for other in others:
        found = b.add("add", found, other)
    return canonical(b.build([b.add("neg", found)]))


def test_a_thread_asks_for_64_bytes_where_there_is_enough_work_for_all() -> None:
    assert [default(added(n))["items"] for n in (1, 2, 3, 4, 5)] == [16, 8, 4, 4, 4]
    assert default(added(2, 1 << 20))["items"] == 4, "more would leave threads without work"
    assert [default(folded(rows, 4096))["threads"] for rows in (4096, 64)] == [256, 512]
    assert default(folded(4096, 4096, "f16"))["threads"] == 128
    assert default(folded(4096, 2048, "f64"))["threads"] == 256


def test_only_long_rows_are_shared_by_blocks() -> None:
    assert "split" not in offered(folded(4096, 4096))["row.reduce"]
    assert "barrier" in offered(folded(8, 1 << 16))["row.reduce"]
    assert "warp" not in offered(folded(8, 1 << 17))["row.reduce"]


def test_kinds() -> None:
    graphs = {"item": pointwise(), "row": folded(256, 256), "gemm": product()}
    for kind, graph in graphs.items():
        assert SPACE.kind(graph, whole(graph)) == kind
    assert default(product()) == {}, "cuBLAS"
    assert offered(turned())["item.transpose"] == (False, True)
    assert "item.transpose" not in offered(pointwise())


def test_few_items_of_a_loop_leave_no_multiprocessor_idle() -> None:
    """2048 environments on the 132 multiprocessors of an H100, and as many as fill it."""
    space = CudaLaunchSpace(TARGETS["H100"])
    graph = canonical(zoo_graph("cartpole_naive"))
    (group,) = fused_candidate(graph, space).plan.groups
    assert space.kind(graph, group) == "loop"
    assert space.default(graph, group)["threads"] == 16
    candidate = Candidate(FusionPlan((group,)), (space.default(graph, group),))
    (launch,) = cuda_program(graph, candidate, TARGETS["H100"]).actions
    assert isinstance(launch, KernelLaunch)
    assert (launch.geometry.grid, launch.geometry.block) == (128, 16)
    assert {16, 32, 64, 128} <= set(offered(graph, space)["loop.threads"])
    many = canonical(cartpole_naive(1 << 16, 10))
    assert space.default(many, fused_candidate(many, space).plan.groups[0])["threads"] == 128
    assert 16 not in offered(pointwise())["item.threads"], "only loops take long over an item"


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_a_library_may_round_factors_or_sums_and_divides_nothing(dtype: str) -> None:
    assert "gemm.math" not in offered(product(dtype)), "nobody asked for less than f32"
    asked = offered(product(dtype), RELAXED_SPACE)
    assert asked.get("gemm.math") == (None if dtype == "f64" else ("strict", "relaxed"))
    assert asked.keys() - {"gemm.math"} == {"gemm.impl"}, "the rest is the library's"
    loops = {}

    def by_loops(name: str, options: tuple[Setting, ...]) -> Setting:
        loops[name.split(".")[2]] = options
        return "loops" if "loops" in options else options[-1]

    graph = product(dtype)
    assert (
        dict(RELAXED_SPACE.choose(graph, whole(graph), by_loops, "p").settings)["impl"] == "loops"
    )
    assert loops["math"] == ("strict", "relaxed")


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_products_are_relaxed_only_where_it_was_chosen(dtype: str) -> None:
    graph = product(dtype)
    plan = FusionPlan((whole(graph),))
    for launch, relaxed in ((SPACE.default(graph, whole(graph)), False),
                            (LaunchConfig.of(math="relaxed"), True)):  # fmt: skip
        (called,) = cuda_program(graph, Candidate(plan, (launch,))).actions
        assert isinstance(called, Gemm) and called.relaxed is relaxed


def test_rows_are_copied_ahead_where_a_block_strides_over_many() -> None:
    def stages(rows: int, length: int, others: Mapping[str, Setting]) -> tuple[Setting, ...]:
        """What is offered when `others` are chosen."""
        found: dict[str, tuple[Setting, ...]] = {}
        graph = folded(rows, length)

        def choose(name: str, options: tuple[Setting, ...]) -> Setting:
            parameter = name.split(".")[2]
            found[parameter] = options
            return others.get(parameter, options[0])

        SPACE.choose(graph, whole(graph), choose, "p")
        return found.get("stages", ())

    many = {"grid": "stride"}
    assert default(folded(4096, 4096)).get("stages", 0) == 0, "found, not assumed"
    assert stages(4096, 4096, many) == stages(4096, 512, many) == (0, 2, 3)
    assert stages(4096, 8000, many) == (0, 2), "three rows and a kept one have no room"
    for rows, length, others in (
        (4096, 4096, {"grid": "one"}),
        (4096, 4098, many),
        (100, 4096, many),
        (4096, 512, {**many, "rows": 16}),
        (64, 1 << 16, {**many, "reduce": "barrier"}),
    ):
        assert stages(rows, length, others) == ()


def test_small_work_has_small_blocks() -> None:
    assert default(pointwise(count=1 << 24))["threads"] == 256
    assert default(pointwise(count=1 << 12))["threads"] == 64


def test_options_of_one_name_never_change() -> None:
    """A sampler keeps one distribution per name, whatever kernel asks."""
    seen: dict[str, tuple[Setting, ...]] = {}

    def note(name: str, options: tuple[Setting, ...]) -> Setting:
        assert seen.setdefault(name, options) == options
        return options[-1]

    for graph in (pointwise(), pointwise("f64"), folded(8, 1 << 16), folded(4096, 64), turned()):
        SPACE.choose(graph, whole(graph), note, "all")


def test_what_a_device_cannot_hold_is_not_offered() -> None:
    row = folded(64, 40_000)
    small, large = (CudaLaunchSpace(TARGETS[name]) for name in ("RTX4090", "H100"))
    assert default(row, small)["keep"] == "reread"
    assert default(row, large)["keep"] == "shared"


@pytest.mark.parametrize("target", ["H100", "RTX4090"])
@pytest.mark.parametrize("length", [24_000, 25_000, 57_000, 58_112, 1 << 16])
def test_long_rows_fit_by_default(target: str, length: int) -> None:
    """The limits are those of the target; what folds take and rows that are computed count too."""
    b = GraphBuilder()
    e = b.add("exp", b.input("x", (160, length), "f32"))
    spread = b.add("broadcast", b.add("reduce_max", e, axes=(1,)), shape=(160, length), dims=(0,))
    graph, kind = canonical(b.build([b.add("sub", e, spread)])), TARGETS[target]
    launch = CudaLaunchSpace(kind).default(graph, whole(graph))
    assert (launch["keep"] == "shared") == (4 * length + 1024 <= kind.shared_per_block)
    made = cuda_program(graph, Candidate(FusionPlan((whole(graph),)), (launch,), ((),)), kind)
    facts = dict(build_cuda(made).facts[0])
    assert facts["blocks_per_sm"] >= 1 and facts["shared_bytes"] <= kind.shared_per_block


def test_the_space_of_a_named_target_has_its_limits() -> None:
    limits = device_named("cuda-emulated", "sm_90:H100").space.limits
    assert (limits.sms, limits.shared_per_block, limits.threads_per_sm) == (132, 227 << 10, 2048)


def test_defaults_are_left_out() -> None:
    silent = Settings()
    found = default(folded(4096, 512))
    for name in ("rows", "compiler_unroll", "blocks", "transpose"):
        assert name not in found and getattr(silent, name) in (0, False)
    assert "math" not in found


def quotient(dtype: str, *after: str) -> Graph:
    b = GraphBuilder()
    found = b.add("div", b.input("x", (4096,), dtype), b.input("y", (4096,), dtype))
    for op in after:
        found = b.add(op, found)
    return canonical(b.build([found]))


def test_fast_division_comes_first_where_the_check_has_room_for_it() -> None:
    assert FAST_DIVISION_ULPS <= NOISE_ULPS, "the reference moves by more than that"
    assert default(quotient("f32"))["math"] == FAST_DIVISION
    assert default(quotient("f16"))["math"] == FAST_DIVISION, "computed in f32"
    assert offered(quotient("f32"))["item.math"] == (FAST_DIVISION, "strict")
    asked = offered(quotient("f32"), RELAXED_SPACE)["item.math"]
    assert asked == (FAST_DIVISION, "strict", "relaxed")


def test_division_rounds_exactly_where_it_must_or_where_nothing_is_won() -> None:
    assert "math" not in default(quotient("f32", "floor")), "6 / 3 is 2"
    asked = offered(quotient("f32", "floor"), RELAXED_SPACE)["item.math"]
    assert asked == ("strict", FAST_DIVISION, "relaxed")
    for graph in (quotient("f64"), pointwise()):
        assert "item.math" not in offered(graph)
        assert offered(graph, RELAXED_SPACE)["item.math"] == ("strict", "relaxed")


def test_divisions_inside_loops_count() -> None:
    body = GraphBuilder()
    body.input("t", (), "i32")
    state = body.input("state", (512,), "f32")
    inner = body.build([body.add("reciprocal", state)])
    b = GraphBuilder()
    x = b.input("x", (512,), "f32")
    graph = canonical(b.build([b.add("loop", x, body=inner, trip=4, carries=1)]))
    assert default(graph)["math"] == FAST_DIVISION


GRAPHS = (pointwise(count=5000), pointwise("f16", 4096), folded(40, 300), folded(3, 33_000),
          folded(7, 100, "f64"), turned())  # fmt: skip


@given(st.data())
def test_every_choice_is_a_kernel_that_devices_hold(data: st.DataObject) -> None:
    graph = data.draw(st.sampled_from(GRAPHS))
    target = data.draw(st.sampled_from(sorted(TARGETS)))

    def choose(_: str, options: tuple[Setting, ...]) -> Setting:
        assert len(set(options)) == len(options)
        return data.draw(st.sampled_from(options))

    launch = SPACE.choose(graph, whole(graph), choose, "p")
    candidate = Candidate(FusionPlan((whole(graph),)), (launch,), ((),))
    made = cuda_program(graph, candidate, TARGETS[target])
    assert len(made.sources) == 1 and not Counter(made.owners)[-1]
    assert launch == LaunchConfig.of(**dict(launch.settings))
