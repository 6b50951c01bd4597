"""Convolutions on tensor cores as implicit products: patches go to the stages by index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from autofuse import spec, trace
from autofuse.backends.cuda.build import build_flags
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.cuda.facts import parse_log
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.backends.emulator.emulator import EmulatorError
from autofuse.frontends import array_api as xp
from autofuse.graph.canonical import canonical
from autofuse.kernel.cuda import shape as cuda_shape
from autofuse.plan.parameters import GROUP_MMA, HALF_MMA, STRICT_MMA, TF32_MMA, Setting
from benchmarks.sass_convolution import Layer, convolution_graph, convolution_report
from search_spaces import CudaLaunchSpace
from tests.support.emulation import OneKernel, library_of, one_kernel
from tests.support.mma_cases import launch
from tests.support.mma_runs import USUAL, difference
from tests.support.planted import body, changed
from tests.support.tile_programs import whole

GROUPS: dict[str, Setting] = {"mma": GROUP_MMA, "threads": 256, "micro": "64x64", "row_block": 128}
WARPS: dict[str, Setting] = {}
Shape = tuple[int, ...]


def convolved(
    image: Shape, weight: Shape, dtype: str = "bf16", *, first: bool = False,
    options: dict[str, Any] | None = None, by: Mapping[str, Setting] = WARPS, **settings: Setting,
) -> OneKernel:  # fmt: skip
    """A convolution and a relu; channels last unless they are `first`."""

    def fn(x: Any, w: Any) -> Any:
        return xp.maximum(xp.conv(x, w, channels_last=not first, **(options or {})), 0.0)

    graph = canonical(trace(fn, spec(image, dtype), spec(weight, dtype)))
    return one_kernel(graph, launch({**USUAL, **by, **settings}))


def by_index(one: OneKernel) -> bool:
    """Whether pieces of the image are copied to the stages, and no patch lies in scratch."""
    return "int32_t step = " in body(one) and " left0[" not in body(one)


def cases() -> list[OneKernel]:
    """Whole runs of one tap, taps within a run, strides, dilation, groups, borders that differ,
    windows of nothing but padding, one tap, more taps than a word has bits, parts of terms."""
    return [
        convolved((2, 5, 6, 32), (3, 3, 32, 40), options={"padding": 1}),
        convolved((1, 9, 7, 32), (3, 3, 32, 64), "f16", options={"padding": 1, "stride": 2}),
        convolved((1, 7, 8, 8), (3, 3, 8, 33), options={"padding": 2, "dilation": 2}),
        convolved((1, 5, 5, 32), (3, 3, 16, 32), options={"padding": 1, "groups": 2}),
        convolved((1, 6, 5, 24), (3, 2, 24, 16), options={"padding": [(0, 2), (1, 0)]}),
        convolved((1, 3, 3, 8), (2, 2, 8, 16), options={"padding": [(0, 3), (0, 2)]}, stages=0),
        convolved((2, 7, 7, 64), (1, 1, 64, 24), options={"stride": 2}, stages=2),
        convolved((1, 8, 8, 8), (7, 7, 8, 16), options={"padding": 3}, grid="stride"),
        convolved((1, 5, 9, 16), (3, 3, 16, 16), options={"padding": 1}, term_block=32),
        convolved((1, 6, 6, 64), (3, 3, 64, 64), options={"padding": 1}, micro="32x64",
                  row_block=32, tail=2, wave=3),
        convolved((1, 5, 6, 8), (3, 3, 8, 16), "f32", options={"padding": 1}, mma=STRICT_MMA),
        convolved((1, 5, 6, 16), (3, 3, 16, 16), "f32", options={"padding": 1}, mma=TF32_MMA),
        convolved((2, 9, 5, 64), (3, 3, 64, 64), options={"padding": 1}, by=GROUPS),
        convolved((1, 9, 9, 8), (3, 3, 8, 24), options={"padding": 1, "stride": 2}, by=GROUPS),
    ]  # fmt: skip


def test_convolutions_of_all_kinds_are_right() -> None:
    kernels = cases()
    library = library_of(kernels)
    for one in kernels:
        assert by_index(one), str(one.graph)
        error, conflicts = difference(library, one)
        assert error < 2e-2 and conflicts == 0, str(one.graph)


def test_what_is_no_run_of_pieces_is_copied_before() -> None:
    """Channels that are apart, and taps that begin within a piece."""
    kernels = [
        convolved((1, 16, 5, 6), (16, 16, 3, 3), first=True, options={"padding": 1}),
        convolved((1, 5, 6, 12), (3, 3, 12, 16), options={"padding": 1}),
    ]
    library = library_of(kernels)
    for one in kernels:
        assert not by_index(one)
        assert difference(library, one)[0] < 2e-2


FAULTS = {
    "another_tap": ("there |= ", "there |= 2u * "),
    "another_row": ("line * 2, ", "(line ^ 1) * 2, "),
    "no_padding": (">> k0 / 32 & 1u", ">> k0 / 32 | 1u"),
    "another_place": ("+ step + piece", "+ step"),
    "no_barrier": ("__syncthreads();\n          const int32_t runs", "const int32_t runs"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_shape, "STATIC_SHARED", 0)  # where the emulator sees races
    faulty = changed(cases()[0], f"patches_{fault}", *FAULTS[fault])
    library = library_of([faulty])
    with pytest.raises((EmulatorError, AssertionError)):
        assert difference(library, faulty)[0] < 2e-2
        pytest.fail(f"{fault} was not seen")


@pytest.mark.parametrize("device", ["A100", "H100", "B200"])
@pytest.mark.parametrize(("side", "channels"), [(56, 64), (28, 128), (14, 256), (7, 512)])
def test_defaults_spill_nothing(device: str, side: int, channels: int) -> None:
    graph, target = convolution_graph(Layer(side, channels, channels)), TARGETS[device]
    default = CudaLaunchSpace(target).default(graph, whole(graph))
    source = one_kernel(graph, default).unit.source
    log = compile_cubin(source.text, target.code_for, build_flags(source))[1]
    assert parse_log(log)[source.name].spilled == 0
    assert dict(default.settings)["mma"] == (GROUP_MMA if device == "H100" else HALF_MMA)


def test_a_convolution_loads_and_fetches_as_a_product_does() -> None:
    """Warps of 64x64; as much under way as the published rung has, and a larger share."""
    for row in convolution_report(["A100", "B200"]):
        rung = row["rung"]
        assert row["products_per_load"] == 4 and row["spilled_bytes"] == 0
        assert row["multiply_adds_per_byte"] >= rung["multiply_adds_per_byte"]
        assert row["bytes_in_flight"] >= rung["bytes_in_flight"]
        assert row["predicted_share"] >= rung["predicted_share"]


def test_deep_layers_have_the_share_of_the_rung() -> None:
    """Few tiles are cut in parts, and their last rows, 32 of a tile, have no text of their own."""
    deep = [Layer(14, 256, 256), Layer(7, 512, 512), Layer(14, 512, 512, 3, 2)]
    for row in convolution_report(["A100", "H100", "B200"], deep):
        rung = row["rung"]
        assert row["spilled_bytes"] == 0 and row["instructions"] < 1600, row
        assert row["predicted_share"] >= rung["predicted_share"], row
