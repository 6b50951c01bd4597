"""Convolutions in the tile schedule: right however patches are read, and made of what is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from autofuse.graph.canonical import canonical
from autofuse.graph.composites.activations import softmax
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.graph.writer import GraphWriter
from autofuse.kernel.ir.types import TileProduct, statements
from autofuse.kernel.lower import extract, lower
from autofuse.ops.convolution import conv_attrs
from autofuse.ops.dtypes import DType
from autofuse.ops.index import lit
from autofuse.ops.scalar import Lit
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.parameters import DIAGONAL, ITEM, PRODUCT, LaunchConfig
from autofuse.simplify import normal_form
from autofuse.zoo.convnets import convnet_block
from benchmarks.contraction_cases import Convolution
from benchmarks.contraction_cases import convolutions as layers
from benchmarks.contraction_graphs import graph_of as graph_of_layer
from search_spaces import CpuLaunchSpace
from tests.support.convolution_programs import convolutions, graph_of
from tests.support.emulation import library_of, one_kernel, run_kernel
from tests.support.seeds import examples
from tests.support.tile_launches import error, launch_of
from tests.support.tile_programs import whole
from tests.support.weighted import error as prepared_error
from tests.support.weighted import in_one

SETTINGS = st.fixed_dictionaries(
    {
        "walk": st.booleans(),
        "lines": st.booleans(),
        "micro": st.sampled_from(("6x64", "14x32", "1x64", "6x16", "3x32")),
        "row_block": st.sampled_from((8, 20, 128)),
        "column_block": st.sampled_from((0, 64)),
        "term_block": st.sampled_from((0, 32)),
        "pack": st.booleans(),
        "vector_bits": st.sampled_from((512, 256)),
    }
)
F32 = DType.F32
PLAIN: dict[str, Any] = {
    "batch": 2, "groups": 1, "ins": 16, "outs": 70, "last": True, "sizes": (9, 11), "taps": (3, 3),
    "stride": (1, 1), "low": (1, 1), "high": (1, 1), "lhs_dilation": (1, 1), "rhs_dilation": (1, 1),
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "strided": {"stride": (2, 2)},
    "dilated": {"rhs_dilation": (2, 1)},
    "transposed": {"lhs_dilation": (2, 2), "low": (2, 2), "high": (2, 2)},
    "cut": {"low": (-1, 0), "high": (2, -1)},
    "grouped": {"groups": 3, "outs": 20},
    "depthwise": {"groups": 40, "ins": 1, "outs": 1},
    "wide depthwise": {"groups": 40, "ins": 1, "outs": 1, "sizes": (12, 12), "taps": (7, 7),
                       "low": (3, 3), "high": (3, 3)},
    "one channel": {"outs": 1},
    "one channel of few": {"ins": 5, "outs": 1, "stride": (1, 2)},
    "first layer": {"ins": 3, "taps": (5, 5), "low": (2, 2), "high": (2, 2)},
    "one pixel": {"sizes": (3, 3), "low": (0, 0), "high": (0, 0), "batch": 1},
    "channels first": {"last": False},
    "one axis": {k: (v[0],) for k, v in PLAIN.items() if isinstance(v, tuple)},
    "three axes": {k: (*v, v[0]) for k, v in {**PLAIN, "sizes": (4, 5)}.items()
                   if isinstance(v, tuple)},
}  # fmt: skip


def one_of(case: dict[str, Any]) -> Graph:
    """The graph of a case that may be one kernel."""
    graph = canonical(graph_of(case))
    group = whole(graph)
    assume(not isinstance(check_group(graph, group.nodes, group.outputs), Refusal))
    return graph


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=convolutions(), chosen=SETTINGS)
def test_every_convolution_is_right_under_every_setting(
    case: dict[str, Any], chosen: dict[str, int | str | bool]
) -> None:
    assert error(one_of(case), launch_of(**chosen)) < 2e-5


@pytest.mark.wide(13)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("terms", "lines"), [(0, True), (8, False), (32, True)])
def test_every_kind_is_right_where_it_lies(kind: str, terms: int, lines: bool) -> None:
    graph = canonical(graph_of({**PLAIN, **KINDS[kind]}))
    assert error(graph, launch_of(walk=True, row_block=24, term_block=terms, lines=lines)) < 2e-5


@pytest.mark.parametrize("kind", ["plain", "depthwise", "first layer"])
def test_wide_floats_are_walked_too(kind: str) -> None:
    graph = canonical(graph_of({**PLAIN, **KINDS[kind]}, DType.F64))
    assert error(graph, launch_of(walk=True)) < 1e-12


def test_every_kind_is_right_on_a_gpu() -> None:
    """Nothing is walked there, whatever is said."""
    small = LaunchConfig.of(threads=64, micro="16x32", row_block=32, column_block=32, walk=True)
    graphs = {k: canonical(graph_of({**PLAIN, **case, "batch": 1})) for k, case in KINDS.items()}
    made = {kind: one_kernel(graph, small) for kind, graph in graphs.items()}
    library = library_of(list(made.values()))
    for one in made.values():
        inputs = random_inputs(one.graph, 1)
        (found,), (wanted,) = run_kernel(library, one, inputs), evaluate(one.graph, inputs)
        assert np.max(np.abs(found - wanted)) < 2e-4
    tiled = {kind for kind, one in made.items() if "sums[ti]" in one.text}
    assert made.keys() - tiled == {"depthwise", "wide depthwise"}


def pointwise_after(kind: str, between: str = "tanh") -> Graph:
    """A convolution, what is done `between`, and one of 1 x 1 places with what follows."""
    w, case = GraphWriter(), {**PLAIN, **KINDS[kind]}
    ins, outs, size, taps = case["ins"], case["outs"], case["sizes"], case["taps"]
    axes = {"lhs_axes": (0, 3, 1, 2), "rhs_axes": (3, 2, 0, 1), "out_axes": (0, 3, 1, 2)}
    numbers = {k: case[k] for k in ("stride", "low", "high", "lhs_dilation", "rhs_dilation")}
    # The kernels lie as frameworks keep them: turned on the way.
    shapes = {"k": (outs, ins, *taps), "k1": (12, outs, 1, 1)}
    kernels = (w.input(name, shape, F32, constant=True) for name, shape in shapes.items())
    first, last = (w.transpose(kernel, (2, 3, 1, 0)) for kernel in kernels)
    x = w.input("x", (case["batch"], *size, ins), F32)
    made = w.op("conv", x, first, **conv_attrs(2, **axes, **numbers))
    small = w.mul(made, 0.1)
    made = softmax(w, small) if between == "norm" else w.map(between, small)
    made = w.op("conv", made, last, **conv_attrs(2, **axes))
    return canonical(w.build([w.map("max", made, 0.0)], ["y"]))


@pytest.mark.parametrize("between", ["tanh", "norm"])
@pytest.mark.parametrize("kind", ["plain", "strided", "first layer"])
@pytest.mark.parametrize("prepack", [False, True])
def test_a_convolution_of_single_places_goes_on_from_another_one(
    kind: str, between: str, prepack: bool
) -> None:
    """What the second one multiplies is read from the first one's rows, not computed again."""
    graph = pointwise_after(kind, between)
    launch = launch_of(micro="6x16", row_block=24, vector_bits=256, prepack=prepack)
    assert prepared_error(graph, in_one(graph, launch)) < 2e-5


def products(kind: str, **chosen: int | str | bool) -> list[TileProduct]:
    graph = canonical(graph_of({**PLAIN, **KINDS[kind]}))
    own, _ = extract(graph, whole(graph))
    found = statements(lower(own, launch_of(walk=True, **chosen)).body)
    return [s for s in found if isinstance(s, TileProduct)]


def test_patches_are_not_copied_where_runs_are_long() -> None:
    assert all(s.walk is not None and s.left.buffer == "in0" for s in products("plain"))
    assert all(s.walk is None for s in products("first layer"))


def test_rows_away_from_padding_need_one_address() -> None:
    walks = [s.walk for s in products("plain")]
    assert any(walk is not None and not walk.zeros for walk in walks)


def test_tiles_that_end_with_a_line_leave_out_what_is_padding_to_all_rows() -> None:
    rows, walks = zip(*((s.rows, s.walk) for s in products("plain", lines=True)), strict=True)
    assert set(rows) == {6, 5}, "a line of 11 as two tiles"
    needed = [walk.needed for walk in walks if walk is not None and walk.zeros]
    assert needed and all(not isinstance(condition, Lit) for condition in needed)


def test_a_long_tap_is_summed_in_equal_parts() -> None:
    found = products("plain", term_block=8)
    assert {s.extent for s in found} == {lit(8)} and not any(s.fresh for s in found)


def test_a_depthwise_convolution_reads_columns_side_by_side() -> None:
    assert {s.walk.across for s in products("depthwise") if s.walk} == {1}
    graph = canonical(graph_of({**PLAIN, **KINDS["depthwise"]}))
    assert CpuLaunchSpace().kind(graph, whole(graph)) == DIAGONAL


def test_one_channel_is_a_column_of_its_own_and_of_few_channels_no_tile() -> None:
    many, few = (normal_form(graph_of(PLAIN | {"ins": n, "outs": 1})) for n in (16, 4))
    assert products("one channel", lines=True, micro="28x16", pack=False)
    space = CpuLaunchSpace()
    assert space.kind(many, whole(many)) == PRODUCT and space.kind(few, whole(few)) == ITEM
    assert space.default(many, whole(many))["walk"] is True


def test_groups_are_tiles_of_their_own() -> None:
    assert {s.columns for s in products("grouped")} <= {20, 32}


def test_images_that_lie_channels_first_are_turned_once_on_the_way_in_and_out() -> None:
    graph = normal_form(convnet_block(1, 8, 16))
    turned = [node.inputs[0] for node in graph.nodes if node.op == "transpose"]
    inputs = [value for value in turned if graph[value.node].op == "input"]
    assert len(inputs) == 3 and len(turned) == 4, "the image, two kernels, and the result"


@pytest.mark.parametrize("case", layers(), ids=lambda case: case.name)
def test_every_layer_of_the_benchmark_is_one_kernel(case: Convolution) -> None:
    graph = canonical(graph_of_layer(case))
    assert graph.output_types[0].shape == (case.out_size, case.out_size, case.out_channels)
    kind = CpuLaunchSpace().kind(graph, whole(graph))
    assert kind == (DIAGONAL if case.groups > 1 else PRODUCT)


@pytest.mark.parametrize("groups", [1, 24])
def test_a_layer_of_the_benchmark_is_what_it_says(groups: int) -> None:
    case = Convolution("test", 24, 7, 24, 3, 2, groups, "gelu")
    graph = graph_of_layer(case)
    image, kernel, bias, scale, residual = inputs = random_inputs(graph, 2)
    wide = np.pad(image[0], ((1, 1), (1, 1), (0, 0))).astype(np.float64)
    size, each = case.out_size, 24 // groups
    made = np.zeros((size, size, 24))
    for y, x, o in np.ndindex(made.shape):
        first = o // (24 // groups) * each
        patch = wide[2 * y : 2 * y + 3, 2 * x : 2 * x + 3, first : first + each]
        made[y, x, o] = np.sum(patch * kernel[:, :, :, o])
    v = (made + bias) * scale + residual
    wanted = 0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3)))
    (found,) = evaluate(graph, inputs)
    assert np.max(np.abs(found - wanted)) < 1e-6
