"""Plans are held to the program as it was written: an error of a simplification is seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import autofuse
from autofuse import xp
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical, digest
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph
from autofuse.measure.timing.sampling import MeasureError
from autofuse.measure.truth.references import reference_key
from autofuse.measure.workload import Workload
from autofuse.ops.dtypes import DType
from autofuse.simplify import RULES, agreement, forms_of, normal_form, rule, simplify
from autofuse.simplify.draft import Draft
from autofuse.simplify.rules import Replacement
from tests.support.simplify_cases import graph_of

UNSIGNED = {DType.U8: np.uint8, DType.U16: np.uint16, DType.U32: np.uint32, DType.U64: np.uint64}
N = 64


# --- abs(-x) of what has no sign ------------------------------------------------------------------


def wanted(x: np.ndarray) -> np.ndarray:
    """-x modulo 2^n, which is its own size."""
    return np.negative(x)


@pytest.mark.parametrize("dtype", list(UNSIGNED))
def test_what_has_no_sign_loses_none(dtype: DType, tmp_path: Path) -> None:
    """Written with the builder, traced, and from JSON."""
    x = np.arange(N).astype(UNSIGNED[dtype])
    written = graph_of(f"{dtype}[{N}]", lambda w, x: w.abs(w.neg(x)))
    traced = autofuse.trace(lambda x: xp.abs(-x), autofuse.spec(N, str(dtype)))
    path = tmp_path / "graph.json"
    autofuse.save(written, path)
    for graph in (written, traced, autofuse.load(path)):
        (found,) = autofuse.compile(graph, device="cpu", db=str(tmp_path / "t.db"))(x)
        np.testing.assert_array_equal(found, wanted(x))


def test_what_has_no_sign_loses_none_in_jax(tmp_path: Path) -> None:
    jnp = pytest.importorskip("jax.numpy")  # an extra of its own
    x = np.arange(N, dtype=np.uint8)
    graph = autofuse.from_jax(lambda x: jnp.abs(-x), x)
    (found,) = autofuse.compile(graph, device="cpu", db=str(tmp_path / "t.db"))(x)
    np.testing.assert_array_equal(found, wanted(x))


# --- an error of a rule ---------------------------------------------------------------------------


@pytest.fixture
def wrong_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A rule that is wrong: sin(x) is x. What is found out about it stays in this test."""
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path / "cache"))
    name = "toy-small-angle"

    @rule(name, "a physicist", "sin")
    def small_angle(draft: Draft, at: int) -> Replacement:
        """sin(x) -> x."""
        return draft[at].inputs[0]

    agreement.disagreement.cache_clear()
    yield name
    del RULES[name]
    agreement.disagreement.cache_clear()


def waves() -> Graph:
    return canonical(autofuse.trace(lambda x: xp.sin(x) * 2.0, autofuse.spec(N)))


X = np.linspace(-3.0, 3.0, N, dtype=np.float32)


def test_a_disagreement_names_its_rule_and_the_program_stays_as_it_was(wrong_rule: str) -> None:
    graph = waves()
    assert digest(simplify(graph).graph) != digest(graph), "the rule applies"
    found = forms_of(graph)
    assert found.graph == found.written == graph and normal_form(graph) == graph
    assert wrong_rule in found.disagreement and "as it was written" in found.disagreement


def test_compile_serves_what_was_written(wrong_rule: str, tmp_path: Path) -> None:
    plan = autofuse.compile(waves(), device="cpu", db=str(tmp_path / "t.db"))
    np.testing.assert_allclose(plan(X)[0], 2 * np.sin(X), rtol=1e-5)
    assert any(wrong_rule in note for note in plan.notes)


@pytest.mark.usefixtures("two_baselines")
@pytest.mark.parametrize("compared", [True, False])
def test_tune_ends_with_a_plan_of_what_was_written(
    wrong_rule: str, compared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the program is too large to be compared before: then no plan passes the check."""
    if not compared:
        monkeypatch.setattr(agreement, "MOST_WORK", 0)
    result = autofuse.tune(waves(), device="cpu", db=str(tmp_path / "t.db"), budget_s=4.0)
    assert result.verified and result.digest == digest(waves())
    assert any("as it was written" in note for note in result.notes)
    assert any("no plan of this graph works" in note for note in result.notes) != compared


@pytest.mark.usefixtures("two_baselines")
def test_what_no_check_passed_is_remembered(
    wrong_rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "MOST_WORK", 0)
    db = str(tmp_path / "t.db")
    autofuse.tune(waves(), device="cpu", db=db, budget_s=4.0)
    plan = autofuse.compile(waves(), device="cpu", db=db)
    np.testing.assert_allclose(plan(X)[0], 2 * np.sin(X), rtol=1e-5)
    assert plan.origin.startswith("best")


@pytest.mark.usefixtures("two_baselines")
def test_compare_checks_against_what_was_written(
    wrong_rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "MOST_WORK", 0)
    found = autofuse.compare(waves(), device="cpu", db=str(tmp_path / "t.db"), plans=["fused"])
    assert not found.plans["fused"]["verified"] and "error" in found.plans["fused"]


# --- the reference --------------------------------------------------------------------------------


def test_a_reference_belongs_to_the_program_as_it_was_written() -> None:
    written = graph_of("f32[8]", lambda w, x: w.neg(w.neg(x)))
    planned = normal_form(written)
    keys = {reference_key(Workload(planned, written=w)) for w in (None, planned, written)}
    assert len(keys) == 2
    other = graph_of("f32[9]", lambda w, x: w.neg(x))
    with pytest.raises(MeasureError, match="other inputs or outputs"):
        Workload(planned, written=other)


def test_large_programs_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("this takes long")

    monkeypatch.setattr(agreement, "evaluate", never)
    agreement.disagreement.cache_clear()
    graph = graph_of("f32[4096,4096]", lambda w, x: w.neg(w.neg(x)))
    assert forms_of(graph).disagreement == ""


@pytest.mark.parametrize("truth", [True, False])
def test_a_branch_whose_sides_are_one_value_is_that_value(truth: bool) -> None:
    """Found by `scripts/fuzz_programs`: of a branch, two arrays of one truth value, not yet found
    equal, were taken for true and false."""
    inner = GraphBuilder()
    inner.input("step", (), DType.I32)
    inner.input("go", (), DType.BOOL)
    turned = inner.add("reverse", inner.input("state", (9,), DType.BOOL), axes=(0,))
    body = inner.build([inner.constant(False, DType.BOOL), turned])
    b = GraphBuilder()
    x, flag = b.input("x", (5,), DType.U8), b.input("flag", (), DType.BOOL)
    same, end = b.add("ge" if truth else "lt", x, x), b.constant(truth, DType.BOOL)
    padded = b.add("pad", same, end, low=(1,), high=(3,))
    _, found = b.add_multi("while", flag, padded, body=body, carries=2, max_trips=1)
    graph = b.build([found])
    for given in (True, False):
        inputs = [np.arange(5, dtype=np.uint8), np.asarray(given)]
        (made,) = evaluate(normal_form(graph), inputs)
        np.testing.assert_array_equal(made, np.full(9, truth))
