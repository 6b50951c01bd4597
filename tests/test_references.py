"""References prepared ahead: by digest, once, by other processes, and never a wrong one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import reference_of
from autofuse.measure.truth import references
from autofuse.measure.truth.references import (
    Preparation,
    load_or_make,
    prepare,
    prepared,
    reference_key,
)
from autofuse.measure.workload import Workload, draw_inputs


def graph(op: str = "exp") -> Graph:
    b = GraphBuilder()
    return canonical(b.build([b.add(op, b.input("x", (7, 5), "f32"))]))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "references"


def test_what_is_prepared_is_taken_and_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = Workload(graph())
    inputs = draw_inputs(workload)
    wanted = reference_of(workload.graph, inputs)
    assert prepared(workload) is None
    prepare(workload)

    def never(*_: object) -> None:
        raise AssertionError("it was prepared")

    monkeypatch.setattr(references, "reference_of", never)
    prepare(workload)
    (found,) = load_or_make(workload, inputs, tmp_path / "session.npz").outputs
    (exact,) = wanted.outputs
    assert np.array_equal(found.expected, exact.expected) and found.type == exact.type
    assert np.array_equal(found.tolerance, exact.tolerance)
    assert (found.norm_bound, found.outliers) == (exact.norm_bound, exact.outliers)


def test_measuring_never_fills_the_cache(tmp_path: Path, own_cache: Path) -> None:
    workload, path = Workload(graph()), tmp_path / "session.npz"
    made = load_or_make(workload, draw_inputs(workload), path)
    assert path.exists() and not own_cache.exists()
    again = load_or_make(workload, (), path)
    assert np.array_equal(made.outputs[0].expected, again.outputs[0].expected)


def test_other_workloads_and_other_code_have_other_references(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Workload(graph())
    given = tuple(np.full_like(array, 2) for array in draw_inputs(one))
    keys = [reference_key(w) for w in (one, replace(one, seed=1), replace(one, arrays=given))]
    keys += [reference_key(Workload(graph("log")))]
    monkeypatch.setattr(references, "_rules", lambda: "another trust rule")
    assert len({*keys, reference_key(one)}) == 5
    assert keys[0] != reference_key(one)


def test_a_damaged_one_is_as_good_as_none(own_cache: Path) -> None:
    workload = Workload(graph())
    prepare(workload)
    (file,) = own_cache.rglob("*.npz")
    file.write_bytes(file.read_bytes()[:100])
    assert prepared(workload) is None


def test_other_processes_prepare_and_say_when_they_are_ready() -> None:
    named = {op: Workload(graph(op)) for op in ("exp", "log", "tanh")}
    with Preparation(named) as preparation:
        found = list(preparation.as_ready(["nobody's", *named], 60.0))
    assert found[0] == "nobody's" and sorted(found[1:]) == sorted(named)
    assert all(prepared(workload) is not None for workload in named.values())


def test_what_is_not_ready_in_time_comes_as_it_is() -> None:
    with Preparation({"exp": Workload(graph())}) as preparation:
        preparation._waiting.add("lost")
        assert list(preparation.as_ready(["lost"], 0.0)) == ["lost"]
    with Preparation({}) as nothing:
        assert list(nothing.as_ready(["a", "b"], 0.0)) == ["a", "b"]
