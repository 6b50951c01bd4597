"""What follows a product is folded as its columns come: where that is possible, and that it is
right under every setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autofuse import trace
from autofuse.backends.cuda.devices import TARGETS
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.ir.types import Local, statements
from autofuse.kernel.launching import shared_bytes
from autofuse.kernel.lower import extract, lower
from autofuse.plan.fusion.legality import check_group
from autofuse.plan.parameters import LaunchConfig
from autofuse.plan.schedules.online import Online, online_of
from autofuse.plan.schedules.tiles import tiles_of
from search_spaces import CpuLaunchSpace, CudaLaunchSpace
from search_spaces.cpu_rows import one_pass_options
from search_spaces.tile_facts import tile_facts
from tests.support.emulation import library_of, one_kernel, run_kernel
from tests.support.online_cases import (
    KEYS,
    QKV,
    RELATIVES,
    ROWS,
    check,
    launch_of,
    relative,
    scores,
)
from tests.support.seeds import examples
from tests.support.tile_programs import program, softmax, whole

SETTINGS = st.fixed_dictionaries(
    {
        "micro": st.sampled_from(("6x64", "14x32", "8x48", "6x16", "4x24", "1x64")),
        "row_block": st.sampled_from((8, 64, 100)),
        "column_block": st.sampled_from((16, 64, 100, 1024)),
        "pack": st.booleans(),
        "vector_bits": st.sampled_from((512, 256)),
        "threads": st.sampled_from((1, 2)),
    }
)


def two_values(q: Any, k: Any, v: Any) -> Any:
    weights = softmax(scores(q, k))
    return weights @ v, weights @ (v * v)


def vocabulary(h: Any, w: Any, labels: Any) -> Any:
    logits = h @ w.mT
    right = xp.arange(KEYS) == labels[:, None]
    log_sum = xp.logsumexp(logits, axis=1)
    return log_sum - xp.sum(xp.where(right, logits, 0.0), axis=1), log_sum


def analysed(graph: Graph) -> Online | None:
    group = whole(graph)
    forms = check_group(graph, group.nodes, group.outputs)
    assert isinstance(forms, tuple)
    tiles = tiles_of(graph, forms[0])
    assert tiles is not None
    return online_of(graph, forms[0], tiles)


@pytest.mark.wide(7)
@pytest.mark.parametrize("name", RELATIVES)
@settings(max_examples=1, deadline=None)
@given(chosen=SETTINGS)
def test_relatives_of_attention_are_right(name: str, chosen: dict[str, int | str | bool]) -> None:
    graph = relative(name)
    assert analysed(graph) is not None
    check(graph, launch_of(**chosen))


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
@pytest.mark.parametrize("name", ["causal", "with log-sum-exp", "two layers"])
def test_every_type_is_right(name: str, dtype: str) -> None:
    graph = relative(name, dtype)
    check(graph, launch_of(), {"f64": 1e-12, "f16": 2e-3, "bf16": 2e-2}[dtype])


@settings(max_examples=examples(8), deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 140), st.integers(2, 200), st.integers(1, 40)),
    wide=st.integers(2, 90),
    chosen=SETTINGS,
)
@example(sizes=(65, 150, 16), wide=20, chosen={"micro": "1x64", "column_block": 1})
@example(sizes=(1, 150, 16), wide=20, chosen={})
def test_attention_of_any_size_is_right(
    sizes: tuple[int, int, int], wide: int, chosen: dict[str, int | str | bool]
) -> None:
    rows, keys, depth = sizes
    shapes = ((rows, depth), (keys, depth), (keys, wide))
    graph = canonical(trace(lambda q, k, v: softmax(q @ k.T) @ v, *(spec(s) for s in shapes)))
    check(graph, launch_of(**chosen))


def test_a_loss_over_a_vocabulary_and_its_log_sum() -> None:
    labels = spec(ROWS, "i32", low=0, high=KEYS - 1)
    graph = canonical(trace(vocabulary, spec((ROWS, 30)), spec((KEYS, 30)), labels))
    assert analysed(graph) is not None
    check(graph, launch_of())


def test_rows_of_any_length_take_little_scratch() -> None:
    length = 1 << 17
    shapes = ((64, 16), (length, 16), (length, 16))
    graph = canonical(trace(lambda q, k, v: softmax(q @ k.T) @ v, *(spec(s) for s in shapes)))
    launch = CpuLaunchSpace().default(graph, whole(graph))
    for chosen in (launch, launch_of(column_block=0)):
        kernel = lower(extract(graph, whole(graph))[0], chosen)
        kept = [s for s in statements(kernel.body) if isinstance(s, Local)]
        assert sum(s.size for s in kept) < 1 << 15
    check(graph, launch)


def test_a_total_goes_on_from_block_to_block() -> None:
    found = analysed(relative("causal"))
    assert found is not None
    top, total, product = found.folds
    assert (top.anchors, total.anchors, product.anchors) == ((), (top.node,), (top.node,))
    assert total.operand == product.operand and len(product.due) == 1
    assert total.frontier == (relative("causal")[top.node].inputs[0],)


def reduced(terms: Callable[[Any, Any], Any]) -> Graph:
    """A sum over columns of what is made of scores and their maximum."""

    def function(q: Any, k: Any) -> Any:
        s = scores(q, k)
        return np.sum(terms(s, np.max(s, axis=-1, keepdims=True)), axis=-1)

    return canonical(trace(function, *(spec(shape) for shape in QKV[:2])))


@pytest.mark.parametrize(
    ("terms", "separate"),
    [
        (lambda s, m: np.exp(s - m), True),
        (lambda s, m: np.exp((s - m) * 0.7), True),
        (lambda s, m: np.exp(2 * s - m) * 3, True),
        (lambda s, m: np.exp(s) * np.exp(-m) / (1 + m * m), True),
        (lambda s, m: np.exp(s - m) + 1, False),
        (lambda s, m: np.tanh(s - m), False),
        (lambda s, m: (s - m) ** 2, False),
        (lambda s, m: np.exp(-s) * np.exp(m), False),  # not zero where nothing has been seen
    ],
)
def test_terms_must_be_separable(terms: Callable[[Any, Any], Any], separate: bool) -> None:
    graph = reduced(terms)
    assert (analysed(graph) is not None) == separate
    check(graph, launch_of())


def test_what_needs_whole_rows_keeps_them() -> None:
    for name in ("softmax_after", "layer_norm_between", "norm_before", "residual"):
        assert analysed(program(name)) is None
    both = canonical(trace(two_values, *map(spec, QKV)))
    assert analysed(both) is None, "weights that are read twice are divided at once"
    check(both, launch_of())
    linear = canonical(trace(lambda q, k, v: (q @ np.swapaxes(k, -1, -2)) @ v, *map(spec, QKV)))
    assert analysed(linear) is not None, "no reduction between two products: nothing to correct"


def test_the_next_block_corrects_only_rows_whose_maximum_moved() -> None:
    text = str(lower(extract(relative("causal"), whole(relative("causal")))[0], launch_of()))
    assert "when ne(" in text
    assert "serial q0 < div(" in text, "columns past the mask are not computed"


def test_short_rows_may_also_stay_whole() -> None:
    short = tile_facts(relative("attention"), whole(relative("attention")))
    assert short is not None and short.one_pass
    made = {"micro": "6x64", "threads": 1}
    assert one_pass_options("row_block", short, made, 512) == (64, 128)
    assert one_pass_options("column_block", short, {"row_block": 64}, 512) == (128, 64, 256, 0)
    assert one_pass_options("pack", short, {"column_block": 0}, 512) is None
    chosen = CpuLaunchSpace().default(relative("attention"), whole(relative("attention")))
    assert chosen["column_block"] == 128


@pytest.mark.parametrize(
    ("bits", "length", "depth", "micro"),
    [(512, 2048, 64, "6x64"), (512, 128, 32, "12x32"), (256, 2048, 64, "6x16")],
)
def test_of_tiles_that_divide_what_is_summed_the_fullest_comes_first(
    bits: int, length: int, depth: int, micro: str
) -> None:
    shapes = ((64, length, depth),) * 3
    graph = canonical(trace(lambda q, k, v: softmax(q @ k.mT) @ v, *map(spec, shapes)))
    assert CpuLaunchSpace(bits).default(graph, whole(graph))["micro"] == micro


@pytest.mark.parametrize(
    "name", ["causal", "first blocks and some rows masked", "bias", "keys lying across"]
)
def test_one_pass_on_a_gpu(name: str) -> None:
    graph = relative(name)
    launch = LaunchConfig.of(
        threads=64, impl="loops", micro="16x32", row_block=32, column_block=32, pack=False
    )
    one = one_kernel(graph, launch)
    inputs = random_inputs(graph, 5)
    found = run_kernel(library_of([one]), one, inputs)
    with np.errstate(all="ignore"):
        wanted = evaluate(graph, inputs)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=2e-4, atol=2e-4)


def test_long_rows_fit_a_gpu_in_one_pass_only() -> None:
    shapes = ((256, 64), (20_000, 64), (20_000, 64))
    graph = canonical(trace(lambda q, k, v: softmax(q @ k.T) @ v, *(spec(s) for s in shapes)))
    space = CudaLaunchSpace(TARGETS["H100"])
    chosen = space.default(graph, whole(graph))
    kernel = lower(extract(graph, whole(graph))[0], chosen)
    assert shared_bytes(kernel) <= TARGETS["H100"].shared_per_block
