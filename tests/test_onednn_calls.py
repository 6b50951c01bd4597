"""Plans that call oneDNN: what they compute, and what is said where it fails."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import autofuse
from autofuse.backends.base import LaunchError
from autofuse.backends.cpu import onednn, onednn_calls
from autofuse.backends.cpu.onednn import OneDnn, OneDnnError
from autofuse.backends.cpu.onednn_calls import does
from autofuse.backends.machine import multiplies_pairs
from autofuse.devices import DEVICES
from autofuse.frontends.array_api.array import TracedArray as Array
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.library.onednn import dnnl_group
from autofuse.ops.spec import spec_of
from autofuse.ops.types import AutofuseError
from autofuse.plan.types import Candidate, LaunchConfig
from autofuse.tuning import compile
from tests.support.batching import Case, failures
from tests.support.library_calls import KERNEL_LAST, LAST, candidate, convolution, product, whole
from tests.support.moved_products import moved_product
from tests.support.seeds import seeds


def installed() -> bool:
    try:
        return onednn.onednn() is not None
    except OneDnnError:
        return False


needs_pairs = pytest.mark.skipif(
    not multiplies_pairs(), reason="oneDNN has only its reference where no instruction is for bf16"
)
needs_onednn = pytest.mark.skipif(not installed(), reason="optional: autofuse[onednn]")


def done(cases: list[Case]) -> list[Case]:
    """Those of which oneDNN is asked, and does them other than by its reference."""
    found = []
    for case in cases:
        (group,) = case.candidate.plan.groups
        own = dnnl_group(case.graph, group)
        if own and does(own.call, int(case.candidate.launches[0]["threads"])):
            found.append(case)
    return found


@needs_onednn
@pytest.mark.parametrize("dtype", ["f32", pytest.param("bf16", marks=needs_pairs)])
def test_products_with_moves(dtype: str) -> None:
    cases = []
    for seed in seeds(80):
        graph = moved_product(seed, dtype)
        launch = LaunchConfig.of(impl="onednn", threads=1 + seed % 3)
        cases.append(Case(graph, candidate(graph, launch), f"{seed} {dtype}"))
    cases = done(cases)
    assert len(cases) > 20
    wrong = failures(cases)
    assert not wrong, "\n".join(wrong)


def convolutions() -> Iterator[Graph]:
    """The samples of the op, and larger ones of every layout."""
    for sample in spec_of("conv").samples():
        image, kernel = sample.ins
        yield convolution(image.shape, kernel.shape, str(image.dtype), **sample.attrs)
    last = {"lhs_axes": LAST, "rhs_axes": KERNEL_LAST, "out_axes": LAST}
    padded = {"low": (1, 2), "high": (2, 1)}
    for groups in (1, 2, 16):
        yield convolution((2, 16, 13, 14), (16, 16 // groups, 3, 3), groups=groups, **padded)
        image, kernel = (1, 13, 14, 16), (3, 3, 16 // groups, 16)
        yield convolution(image, kernel, groups=groups, **padded, **last)
        yield convolution(image, kernel, groups=groups, stride=(2, 3), rhs_dilation=(2, 1), **last)
        yield convolution(image, kernel, "bf16", groups=groups, **padded, **last)


@needs_onednn
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_convolutions(threads: int) -> None:
    launch = LaunchConfig.of(impl="onednn", threads=threads)
    every = [Case(g, candidate(g, launch), str(g.output_types)) for g in convolutions()]
    cases = done(every)
    assert len(cases) > 15
    wrong = failures(cases)
    assert not wrong, "\n".join(wrong)


@needs_onednn
def test_a_plan_may_have_several_calls_in_a_loop_and_out_of_it() -> None:
    def fn(x: Array, y: Array) -> Array:
        turned = autofuse.xp.fori_loop(3, lambda _, a: autofuse.xp.matmul(a, y) * 0.25, x)
        return autofuse.xp.matmul(turned, autofuse.xp.matmul(x, y))

    graph = canonical(autofuse.trace(fn, autofuse.spec((32, 32)), autofuse.spec((32, 32))))
    base = compile(graph, device="cpu", plan="unfused").candidate

    def called(launch: LaunchConfig) -> LaunchConfig:
        return LaunchConfig.of(**dict(launch.settings) | {"impl": "onednn"})

    told = Candidate(base.plan, tuple(one.changed(called) for one in base.launches))
    inputs = random_inputs(graph, 0)
    plan = compile(graph, device="cpu", plan=told)
    for _ in range(2):
        (found,) = plan(*inputs)
        (wanted,) = compile(graph, device="cpu", plan=base)(*inputs)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@needs_onednn
def test_threads_of_the_library_are_as_they_were() -> None:
    dnnl = onednn.onednn()
    many = dnnl._dnnl.omp_get_max_threads
    dnnl._dnnl.omp_set_num_threads(3)
    with dnnl.one_thread():
        assert many() == 1
    compile(product(), device="cpu", plan=candidate(product()))(*random_inputs(product(), 0))
    assert many() == 3


@needs_onednn
def test_a_call_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(lambda *_: 5)
    real = OneDnn.address

    def address(self: OneDnn, name: str) -> int:
        if name == "dnnl_primitive_execute":
            return ctypes.cast(refusing, ctypes.c_void_p).value or 0
        return real(self, name)

    monkeypatch.setattr(OneDnn, "address", address)
    plan = compile(product(), device="cpu", plan=candidate(product()))
    with pytest.raises(LaunchError, match="the program failed with code 5"):
        plan(*random_inputs(product(), 0))


@needs_onednn
def test_only_what_is_done_well_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dnnl_group(product(), whole(product()))
    assert found is not None and does(found.call, 2)
    does.cache_clear()
    monkeypatch.setattr(OneDnn, "implementation_of", lambda *_: "ref:any")
    assert not does(found.call, 2), "its reference is no competitor"
    does.cache_clear()
    monkeypatch.setattr(onednn_calls, "_REFERENCE", "nothing")
    half = dnnl_group(product(dtype="f16"), whole(product(dtype="f16")))
    assert half is not None
    refused = replace(half.call, weights=half.call.src)
    assert not does(refused, 1)
    with pytest.raises(AutofuseError, match=r"the plan cannot run here: oneDNN .* refuses m"):
        DEVICES["cpu"].backend.load(_artifact(refused), "")


def _artifact(refused: object) -> object:
    backend = DEVICES["cpu"].backend
    built = backend.build(backend.program(product(), candidate(product(), LaunchConfig())))
    return replace(built.artifact, calls=((refused,),))
