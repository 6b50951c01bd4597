"""Codes: a stored time belongs to the text and flags that ran, kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

import autofuse.frontends.array_api as xp
from autofuse.backends.cpu import backend as cpu
from autofuse.backends.cpu import entry, tasks
from autofuse.backends.cuda import program as cuda
from autofuse.backends.cuda import runs
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.registry import Backend, emulated_backend
from autofuse.devices import DEVICES
from autofuse.frontends import spec, trace
from autofuse.frontends.array_api.array import TracedArray
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.kernel import render
from autofuse.kernel.ir.types import Kernel, Param
from autofuse.ops.dtypes import DType
from autofuse.plan.types import Candidate, FusionPlan, LaunchConfig, PlanError
from autofuse.tuning.plans import baseline_candidate

NAMES = ["cpu", "cuda-emulated"]


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    """Texts rendered under a changed compiler must not be found by other tests, nor theirs here."""
    forget()
    yield
    forget()


def forget() -> None:
    cpu.rendered.cache_clear()
    cuda.rendered.cache_clear()
    render.shaped_cuda.cache_clear()


def parts(x: TracedArray, y: TracedArray) -> dict[str, TracedArray]:
    """Kernels of one and of two inputs, with exp and without; a library call."""
    return {"e": xp.exp(x), "s": xp.sum(x * y, axis=1), "m": xp.matmul(x, y)}


def traced() -> Graph:
    return canonical(trace(parts, spec((64, 64)), spec((64, 64))))


def looped(trips: int) -> Graph:
    def run(x: TracedArray) -> TracedArray:
        return xp.fori_loop(trips, lambda _, a: xp.exp(a) * 0.5, x)

    return canonical(trace(run, spec((8, 64))))


def unfused(graph: Graph, device: str) -> Candidate:
    return baseline_candidate(graph, "unfused", DEVICES[device].space)[0]


def by_op(graph: Graph, backend: Backend) -> dict[str, str]:
    """The code of each kernel of the unfused plan, by its operation."""
    candidate = unfused(graph, backend.name)
    codes = backend.codes(graph, candidate)
    assert all(len(code) == 32 and int(code, 16) >= 0 for code in codes)
    ops = [graph[group.nodes[-1]].op for group in candidate.plan.groups]
    return dict(zip(ops, codes, strict=True))


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    assert before.keys() == after.keys() and len(before) == 4
    return {op for op in before if before[op] != after[op]}


def two_inputs(kernel: Kernel) -> Kernel:
    """A pass that gives kernels of two inputs another parameter."""
    if sum(p.role == "in" for p in kernel.params) != 2:
        return kernel
    return replace(kernel, params=(*kernel.params, Param("extra", DType.F32, 1, "in")))


@pytest.mark.parametrize("device", NAMES)
def test_a_changed_pass_changes_the_codes_of_the_kernels_it_touches(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, backend = traced(), DEVICES[device].backend
    before = by_op(graph, backend)
    forget()
    assert by_op(graph, backend) == before
    forget()
    if device == "cpu":
        monkeypatch.setattr(render, "C_PASSES", (*render.C_PASSES, two_inputs))
    else:
        monkeypatch.setattr(render, "CUDA_PASSES", (*render.CUDA_PASSES, two_inputs))
    assert changed(before, by_op(graph, backend)) == {"mul"}


@pytest.mark.parametrize("device", NAMES)
def test_a_changed_printer_changes_the_codes_of_the_kernels_it_touches(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, backend = traced(), DEVICES[device].backend
    before = by_op(graph, backend)
    forget()
    module, name = (cpu, "print_c") if device == "cpu" else (cuda, "render_cuda")
    printed: Callable[[Kernel], str] = getattr(module, name)
    monkeypatch.setattr(module, name, lambda kernel: printed(kernel).replace("exp", "another_exp"))
    assert changed(before, by_op(graph, backend)) == {"exp"}


def test_flags_and_architecture_belong_to_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = traced()
    before = by_op(graph, DEVICES["cpu"].backend)
    monkeypatch.setattr(cpu, "FLAGS", (*cpu.FLAGS, "-funroll-loops"))
    assert changed(before, by_op(graph, DEVICES["cpu"].backend)) == {"exp", "mul", "reduce_sum"}
    names = {target.arch: name for name, target in TARGETS.items()}
    one, other, *_ = (emulated_backend(TARGETS[name]) for name in names.values())
    assert len(changed(by_op(graph, one), by_op(graph, other))) == 4
    strict = by_op(graph, one)
    monkeypatch.setattr(runs, "FLAGS", (*runs.FLAGS, "--extra"))
    assert changed(strict, by_op(graph, one)) == {"exp", "mul", "reduce_sum"}


@pytest.mark.parametrize("device", NAMES)
def test_a_kernel_has_one_code_wherever_it_stands(device: str) -> None:
    graph, backend = traced(), DEVICES[device].backend
    alone = canonical(trace(lambda y, x: xp.exp(x) * y, spec(64), spec((64, 64))))
    assert by_op(alone, backend)["exp"] == by_op(graph, backend)["exp"]
    candidate = unfused(graph, device)
    backwards = Candidate(
        FusionPlan(candidate.plan.groups[:1] * 2 + candidate.plan.groups[1:]),
        (candidate.launches[0], LaunchConfig.of(threads=32), *candidate.launches[1:]),
    )
    codes, again = backend.codes(graph, candidate), backend.codes(graph, backwards)
    assert again[0] == codes[0] and again[2:] == codes[1:]


@pytest.mark.parametrize("device", NAMES)
def test_a_library_call_goes_by_its_group_and_what_prepares_it(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = DEVICES[device].backend
    code = by_op(traced(), backend)["dot_general"]
    other = canonical(trace(xp.matmul, spec((64, 32)), spec((32, 64))))
    assert by_op(other, backend)["dot_general"] != code
    if device == "cpu":
        monkeypatch.setattr(tasks, "_cuts", lambda _: 3)
        assert by_op(traced(), backend)["dot_general"] != code


@pytest.mark.parametrize("device", NAMES)
def test_a_host_loop_goes_by_its_body_and_its_iterations(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = DEVICES[device].backend

    def code(trips: int) -> str:
        graph = looped(trips)
        candidate = unfused(graph, device)
        assert candidate.plan.groups[0].body is not None
        (found,) = backend.codes(graph, candidate)
        return found

    first = code(4)
    assert code(4) == first and code(5) != first
    forget()
    module, name = (cpu, "print_c") if device == "cpu" else (cuda, "render_cuda")
    printed: Callable[[Kernel], str] = getattr(module, name)
    monkeypatch.setattr(module, name, lambda kernel: printed(kernel).replace("exp", "another_exp"))
    assert code(4) != first


@pytest.mark.parametrize(("device", "module"), [("cpu", cpu), ("cuda-emulated", cuda)])
def test_a_kernel_is_rendered_once(
    device: str, module: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, backend = traced(), DEVICES[device].backend
    candidate, seen = unfused(graph, device), []

    def counting(lower: Callable[..., Kernel], group: Graph, *rest: object) -> Kernel:
        seen.append(group)
        return lower(group, *rest)

    monkeypatch.setattr(module, "lower", partial(counting, module.lower))
    backend.codes(graph, candidate)
    backend.codes(graph, candidate)
    backend.program(graph, candidate)
    assert len(seen) == 3


def test_the_code_of_a_plan_is_that_of_its_groups_and_of_what_all_plans_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend, gpu = DEVICES["cpu"].backend, DEVICES["cuda-emulated"].backend
    whole = backend.plan_code(("a", "b"))
    assert len(whole) == 32 and backend.plan_code(("a", "b")) == whole
    assert len({whole, backend.plan_code(("b", "a")), gpu.plan_code(("a", "b"))}) == 3
    changes = [
        (cpu, "LINK_FLAGS", ("-shared",)),
        (cpu, "ENTRY_FLAGS", ("-O2",)),
        (entry, "_CLOCK", "static double af_now_us(void) { return 0; }"),
        (cpu, "pool_source", lambda: replace(found, text="int pool;")),
    ]
    found = cpu.pool_source()
    for module, name, value in changes:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            assert backend.plan_code(("a", "b")) != whole
    assert gpu.plan_code(("a", "b")) == gpu.plan_code(["a", "b"])


@pytest.mark.parametrize("device", NAMES)
def test_a_plan_that_does_not_fit_has_no_codes(device: str) -> None:
    graph = traced()
    with pytest.raises(PlanError):
        DEVICES[device].backend.codes(graph, Candidate(FusionPlan(()), ()))
