"""What is served was checked: in this process, before it runs for a user, once on a machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import autofuse
from autofuse import spec, trace, xp
from autofuse.backends.cpu import backend as cpu
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.surgery.narrowed import narrowed, picked, places_of, work_of
from autofuse.graph.types import Graph
from autofuse.graph.verify import verify
from autofuse.kernel.ir.types import Kernel
from autofuse.measure.truth import expected as truth
from autofuse.records import CHECKED, UNVERIFIED
from autofuse.runtime.by_reference import ByReference
from autofuse.simplify import normal_form
from autofuse.tuning.serve import served
from autofuse.zoo import ZOO, zoo_graph


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache and a database of its own: nothing was built or checked before."""
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    cpu.rendered.cache_clear()


def turned(rows: int = 1024, columns: int = 9) -> Graph:
    return trace(lambda a: {"y": xp.permute_dims(xp.maximum(a, 0), (1, 0))}, spec((rows, columns)))


def summed() -> Graph:
    return trace(lambda x: {"y": xp.sum(xp.exp(x), axis=-1)}, spec((100, 40)))


def compiled(graph: Graph, **options: Any) -> Any:
    return autofuse.compile(graph, device="cpu", **options)


def run_of(plan: Any, graph: Graph) -> None:
    """Whether a plan gives what the graph as it was written says."""
    inputs = random_inputs(graph, 5)
    for found, wanted in zip(plan(*inputs), evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def few_pieces(count: Callable[[Kernel], int]) -> Callable[[Kernel], int]:
    """The fault of a grid that a pass had cut anew: threads share fewer pieces than there are."""
    return lambda kernel: max(1, count(kernel) * 9 // 16)


def test_a_plan_says_that_it_was_checked() -> None:
    plan = compiled(summed())
    assert plan.checked and plan.trust.state == CHECKED and plan.check_s > 0
    assert "checked" in repr(plan) and plan.notes == ("database: new graph",)
    run_of(plan, summed())


def test_a_wrong_program_is_never_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "c_iterations", few_pieces(cpu.c_iterations))
    plan = compiled(turned())
    told = [note for note in plan.notes if "is wrong and not served" in note]
    assert told and "output 0" in told[0]
    assert plan.origin == served.BY_REFERENCE and plan.checked
    run_of(plan, turned())


def test_the_next_plan_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what was chosen is wrong: of the rules' simpler plans the first that is right serves."""
    printed = cpu.print_c

    def planted(kernel: Kernel) -> str:
        text = printed(kernel)
        fused = "sin" in text and "exp" in text
        return text.replace("out0[", "out0[0 * ") if fused else text

    monkeypatch.setattr(cpu, "print_c", planted)
    graph = trace(lambda x: {"y": xp.sin(xp.exp(x)) + xp.sum(x, axis=-1, keepdims=True)},
                  spec((64, 50)))  # fmt: skip
    plan = compiled(graph)
    assert plan.origin == "unfused" and "is wrong and not served" in plan.notes[-1]
    run_of(plan, graph)


def test_a_pinned_plan_that_is_wrong_is_not_served_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "c_iterations", few_pieces(cpu.c_iterations))
    plan = compiled(turned(), plan="xla-2022")
    assert plan.origin == served.BY_REFERENCE
    run_of(plan, turned())


def test_a_verdict_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made = served.first_check
    calls: list[Graph] = []

    def counting(graph: Graph, *rest: Any) -> Any:
        calls.append(graph)
        return made(graph, *rest)

    monkeypatch.setattr(served, "first_check", counting)
    first, second = compiled(summed()), compiled(summed())
    assert len(calls) == 1 and first.check_s > 0
    assert second.checked and second.check_s == 0
    monkeypatch.setattr(cpu, "FLAGS", (*cpu.FLAGS, "-fno-unroll-loops"))
    cpu.rendered.cache_clear()
    assert compiled(summed()).checked and len(calls) == 2, "other code was not checked"


def test_that_a_program_is_wrong_is_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "c_iterations", few_pieces(cpu.c_iterations))
    first = compiled(turned())
    monkeypatch.setattr(served, "first_check", None)
    again = compiled(turned())
    assert (again.origin, again.notes) == (first.origin, first.notes)


def test_what_ended_its_process_is_checked_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(served, "first_check", dies)
    kept: list[dict[str, Any]] = []
    keep = served.keep
    monkeypatch.setattr(served, "keep", lambda key, data: kept.append({**data, "key": key}))
    with pytest.raises(KeyboardInterrupt):
        compiled(summed())
    begun, undone = kept
    assert (begun["state"], begun["process"]) == ("begun", os.getpid())
    assert set(undone) == {"key"}, "an interrupt counts against no plan"
    keep(begun["key"], {"state": "begun", "process": 2**22 + 1})  # no process has such a number
    monkeypatch.setattr(served, "keep", keep)
    assert compiled(summed()).checked
    monkeypatch.setattr(served, "in_a_child", None)
    assert compiled(summed()).checked


def test_what_tuning_has_checked_is_not_checked_again(
    two_baselines: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = str(tmp_path / "t.db")
    autofuse.tune(summed(), device="cpu", db=db, budget_s=6)
    monkeypatch.setattr(served, "first_check", None)
    plan = compiled(summed(), db=db)
    assert plan.origin.startswith("best") and str(plan.trust) == "checked: by tuning"


def test_results_that_are_no_normal_numbers_may_be_zero() -> None:
    assert compiled(trace(lambda x: {"y": xp.exp(x)}, spec(400, low=-103.0, high=-88.0))).checked


def test_what_cannot_be_checked_in_time_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "CHECK_S", 0.0)
    plan = compiled(summed())
    assert plan.trust.state == UNVERIFIED and not plan.checked
    assert plan.notes[-1] == "not verified: computing what it must give takes more than 0 s"
    run_of(plan, summed())


def stepped() -> Graph:
    """A loop of many small operations, each of which takes NumPy microseconds to begin."""

    def step(i: Any, x: Any) -> Any:
        return x * 0.5 + xp.maximum(x, 0.25) * 0.125

    return trace(lambda x: {"y": xp.fori_loop(20_000, step, x)}, spec((3,)))


def test_long_loops_of_small_things_are_compiled_to_be_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = stepped()
    inputs = random_inputs(graph, 1)
    runs = Mock(side_effect=truth.CompiledRuns)
    monkeypatch.setattr(truth, "CompiledRuns", runs)
    (found,) = truth.expected(graph, inputs, 1.0) or ()
    assert runs.called and np.array_equal(found, evaluate(graph, inputs)[0])
    assert compiled(graph).trust.state == CHECKED
    runs.side_effect = truth.LateTruthError("late")
    assert truth.expected(graph, inputs, 1.0) is None
    runs.reset_mock()
    assert truth.expected(summed(), random_inputs(summed(), 1), 1.0) and not runs.called


def test_a_chaotic_program_is_not_called_checked() -> None:
    def steps(x: Any) -> Any:
        for _ in range(40):
            x = 3.99 * x * (1 - x)
        return {"x": x}

    plan = compiled(trace(steps, spec((500,), low=0.1, high=0.9)))
    assert plan.trust.state == UNVERIFIED and plan.trust.why.startswith("not verifiable: rounding")


def test_rounding_that_a_program_magnifies_is_no_fault() -> None:
    def magnified(x: Any) -> Any:
        return {"y": (x + 1000.0) * 3.0 - 3000.0, "z": xp.sin(1e3 * x)}

    assert compiled(trace(magnified, spec((300,)))).checked


def test_weights_are_drawn_for_a_check_and_given_for_calls() -> None:
    graph = trace(lambda x, w: {"y": x * xp.exp(w)}, spec((64, 32)), spec(32, constant=True))
    weights = np.linspace(-1, 1, 32, dtype=np.float32)
    plan = compiled(graph, constants={"w": weights})
    x = np.ones((64, 32), np.float32)
    assert plan.checked
    np.testing.assert_allclose(plan(x)[0], np.exp(weights) * x, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(ZOO))
def test_a_few_places_are_what_the_whole_program_gives_there(name: str) -> None:
    graph = normal_form(zoo_graph(name, "small"))
    few = narrowed(graph, 1e3)
    verify(few.graph)
    inputs = random_inputs(graph, 2)
    given = [picked(a, w).copy() for a, w in zip(inputs, few.inputs, strict=True)]
    with np.errstate(all="ignore"):
        whole, part = evaluate(graph, inputs), evaluate(few.graph, given)
    for all_of, some, places in zip(whole, part, few.outputs, strict=True):
        np.testing.assert_allclose(picked(all_of, places), some, rtol=1e-6, atol=1e-9)


def test_a_large_program_is_computed_at_a_few_places() -> None:
    graph = normal_form(zoo_graph("layer_norm_gelu"))
    assert work_of(narrowed(graph, 4e6).graph) < work_of(graph) / 100


@pytest.mark.parametrize("extent", [24, 25, 63, 64, 65, 127, 1000, 1024, 1 << 20])
def test_places_reach_the_end_and_no_block_is_always_missed(extent: int) -> None:
    found = places_of(extent)
    places = range(extent)[found.slice()]
    assert len(places) == found.count and places[-1] == extent - 1
    assert places[0] < max(2 * found.count, 3) and found.step % 2 == 1


def test_the_reference_serves_behind_the_same_interface() -> None:
    graph = normal_form(trace(lambda x, w: {"y": x * w}, spec((3, 4)), spec(4, constant=True)))
    plan = ByReference(graph)
    with pytest.raises(autofuse.AutofuseError, match="constants have not been bound"):
        plan.run([np.ones((3, 4), np.float32)])
    plan.prepare([np.arange(4, dtype=np.float32)])
    x = np.full((3, 4), 2, np.float32)
    (y,) = plan.run([x])
    assert y.dtype == np.float32 and np.array_equal(y, x * np.arange(4))
    entry, out = plan.bound_entry(lambda: 0), np.empty((3, 4), np.float32)
    entry.table[entry.inputs[0]], entry.table[entry.first_output] = x.ctypes.data, out.ctypes.data
    assert entry.issue() == 0 and np.array_equal(out, y)
    with pytest.raises(autofuse.AutofuseError, match="input 0 must be"):
        plan.run([np.ones((3, 5), np.float32)])
