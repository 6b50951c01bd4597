"""A share of the cases that ship inside onnx, against what is declared not to pass."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.onnx_conformance import (
    PASSED,
    REFUSED,
    WRONG,
    OnnxCase,
    OnnxOutcome,
    by_plan,
    cases_of_kind,
    cases_of_modules,
    declared_gaps,
    faults,
    outcome_of_onnx,
    record_of,
)

# Files of the suite with an operator of each family; making the cases of all takes long.
MODULES = ("add", "clip", "concat", "convtranspose", "cumsum", "expand", "gather", "gridsample",
           "groupnormalization", "loop", "lstm", "pad", "qlinearmatmul", "quantizelinear",
           "reducesum", "resize", "scatternd", "slice", "softmax", "unique")  # fmt: skip


def some_cases() -> list[OnnxCase]:
    return [*cases_of_modules(MODULES)[::3], *list(cases_of_kind("operator"))[::3]]


def test_what_does_not_pass_is_declared() -> None:
    found = [outcome_of_onnx(case) for case in some_cases()]
    assert faults(found, declared_gaps()) == []
    assert {o.status for o in found} == {PASSED, REFUSED}
    assert sum(o.status == PASSED for o in found) >= 80


def test_compiled_kernels_pass_too() -> None:
    wanted = {"test_slice_neg", "test_softmax_axis_1", "test_operator_addmm"}
    chosen = [case for case in some_cases() if case.name in wanted] or some_cases()[:1]
    assert {outcome_of_onnx(case, by_plan).status for case in chosen} == {PASSED}


def test_a_gap_that_passes_and_one_not_declared_are_told() -> None:
    case = next(c for c in cases_of_modules(["softmax"]) if c.name == "test_softmax_axis_0")
    good = outcome_of_onnx(case)
    assert faults([good], {case.name: "reason"}) == [
        "test_softmax_axis_0 passes: strike it out of onnx_gaps.json (reason)"
    ]
    wrong = outcome_of_onnx(replace(case, sets=lambda: [(i, [o[0] + 1]) for i, o in case.sets()]))
    assert wrong.status == WRONG
    assert faults([wrong], {}) != [] and faults([wrong], {case.name: "reason"}) == []


def test_the_record_counts_every_case() -> None:
    made = [OnnxOutcome("a", "node", "Add", PASSED), OnnxOutcome("b", "node", "Add", REFUSED, "no")]
    record = record_of(made)
    assert record["operators"] == {"Add": {"passed": 1, "refused": 1}}
    assert (record["passed"], record["gaps"]) == (["a"], {"refused: no": ["b"]})
