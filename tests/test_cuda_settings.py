"""Launch settings of CUDA kernels: every way to launch gives the reference result, on the emulator
with its checks, and compiles without a word."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.backends.cuda.nvrtc import FLAGS, compile_cubin
from autofuse.backends.emulator.emulator import Emulated
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.launching import (
    block_threads,
    blocks_wanted,
    is_cooperative,
    scratch_params,
    shared_bytes,
)
from autofuse.kernel.render import render_cuda
from autofuse.kernel.text.dialects import CUDA
from autofuse.measure.check.compare import WorkloadReference, check, reference_of
from autofuse.plan.parameters import LaunchSettingError
from autofuse.plan.types import LaunchConfig, Setting
from tests.support.cuda_settings_cases import cases, reduction, softmax
from tests.support.one_kernel import TWO, OneKernel, launched, one_kernel

CASES = {name: (canonical(graph), launch) for name, graph, launch in cases()}
References = dict[Graph, tuple[tuple[np.ndarray, ...], WorkloadReference]]


@pytest.fixture(scope="module")
def kernels() -> dict[str, OneKernel]:
    return {name: one_kernel(graph, name, launch) for name, (graph, launch) in CASES.items()}


@pytest.fixture(scope="module")
def library(kernels: dict[str, OneKernel]) -> Emulated:
    return Emulated(*(made.text for made in kernels.values()))


@pytest.fixture(scope="module")
def references() -> References:
    return {}


@pytest.mark.parametrize("name", CASES)
def test_every_launch_gives_the_reference_result(
    name: str, kernels: dict[str, OneKernel], library: Emulated, references: References
) -> None:
    made = kernels[name]
    if made.graph not in references:
        inputs = random_inputs(made.graph, 5)
        references[made.graph] = inputs, reference_of(made.graph, inputs)
    inputs, reference = references[made.graph]
    result = check(tuple(launched(library, made, inputs)), reference)
    assert result.ok, result.message


def test_a_sample_compiles_without_a_word(kernels: dict[str, OneKernel]) -> None:
    texts = [render_cuda(made.kernel) for made in list(kernels.values())[::7]]
    quick = (*FLAGS, "-Xptxas", "-O0")
    _, log = compile_cubin("\n".join([CUDA.prelude, *texts]), flags=quick)
    assert log == ""


def test_split_kernels_leave_their_scratch_usable(
    kernels: dict[str, OneKernel], library: Emulated
) -> None:
    """A launch finds the counters as the launch before has left them."""
    for name in ("row_long_6", "row_standard_long_9"):
        made = kernels[name]
        inputs = random_inputs(made.graph, 5)
        reference = reference_of(made.graph, inputs)
        given = dict(zip(made.graph.inputs, inputs, strict=True))
        work = [np.zeros(p.size, p.dtype.numpy) for p in scratch_params(made.kernel)]
        assert work
        for _ in range(3):
            types = [made.graph.type_of(v) for v in sorted(set(made.graph.outputs))]
            outs = [np.full(t.shape, np.nan, t.dtype.numpy) for t in types]
            library.launch(
                name, blocks_wanted(made.kernel), block_threads(made.kernel),
                [*(given[v.node] for v in made.reads), *outs, *work], orders=TWO[:1],
                cooperative=is_cooperative(made.kernel),
            )  # fmt: skip
            where = dict(zip(sorted(set(made.graph.outputs)), outs, strict=True))
            assert check(tuple(where[v] for v in made.graph.outputs), reference).ok


def shape_of(graph: Graph, **chosen: Setting) -> tuple[int, int, int, bool]:
    kernel = one_kernel(graph, "k", LaunchConfig.of(**chosen)).kernel
    return (
        blocks_wanted(kernel), shared_bytes(kernel), len(scratch_params(kernel)),
        is_cooperative(kernel),
    )  # fmt: skip


def test_the_shape_of_a_launch() -> None:
    rows, long = softmax(1000, 640), softmax(3, 1 << 14)
    assert shape_of(rows) == (1000, 0, 0, False)
    assert shape_of(rows, reduce="warp", threads=128) == (250, 0, 0, False)
    # The row and the exponentials of eight warps, more than static shared memory holds.
    kept = {"reduce": "warp", "keep": "shared", "rows": 8}
    assert shape_of(softmax(1000, 1280), **kept) == (125, 2 * 8 * 1280 * 4, 0, False)
    assert shape_of(softmax(1000, 1280), **{**kept, "keep": "registers"}) == (125, 0, 0, False)
    split = shape_of(long, reduce="barrier", keep="registers", parts=4)
    # A ticket per row and a slot per block for the maximum, and the same for the sum.
    assert split == (12, 0, 4, True)
    assert shape_of(reduction("reduce_sum", (1 << 20,), (0,), "f32"), reduce="split")[0] == 512


def test_settings_that_no_kernel_can_have() -> None:
    for name, value, reason in (
        ("threads", 100, "a block of 100 threads"),
        ("threads", 2048, "a block of 2048 threads"),
        ("vector", 3, "vector=3 is none of"),
        ("keep", "l2", "keep='l2' is none of"),
        ("compiler_unroll", -1, "compiler_unroll=-1 is no count"),
    ):
        kernel = one_kernel(softmax(4, 8), "k", LaunchConfig.of(**{name: value})).kernel
        with pytest.raises(LaunchSettingError, match=reason):
            render_cuda(kernel)


@pytest.mark.parametrize("how", ["", "block", "warp", "split"])
def test_half_a_warp_folds_no_row(how: str) -> None:
    kernel = one_kernel(softmax(4, 64), "k", LaunchConfig.of(threads=16, reduce=how)).kernel
    with pytest.raises(LaunchSettingError, match="whole warps do"):
        render_cuda(kernel)
