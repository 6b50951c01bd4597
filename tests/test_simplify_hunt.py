"""Rules hold for all numbers: examples in all dtypes, mutants, drawn trees. The hunt can find."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from autofuse.ops.dtypes import DType
from autofuse.simplify import RULES, rule
from autofuse.simplify.draft import Draft
from autofuse.simplify.rules import Replacement
from benchmarks.simplify_hunt import ROUNDING, check_rule, check_tree
from benchmarks.special_numbers import everything, special
from tests.support.seeds import seeds
from tests.support.simplify_cases import graph_of
from tests.support.simplify_tables import EVERY

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
TREES, SHARE = 60, 0.005


@pytest.mark.wide(24)
@pytest.mark.parametrize("name", list(dict.fromkeys(case.rule for case in EVERY)))
def test_a_rule_alone_holds_in_all_dtypes(name: str) -> None:
    (seed,) = seeds(1)
    for case in (each for each in EVERY if each.rule == name):
        _, found = check_rule(
            name, lambda said, meant, case=case: graph_of(
                case.inputs, case.before, case.low, said, meant),
            seed=seed, draws=3, mutants_share=SHARE,
        )  # fmt: skip
        assert found == [], str(found[0])


def test_all_rules_hold_on_drawn_trees() -> None:
    for seed in seeds(TREES):
        _, found = check_tree(seed)
        assert found is None, str(found)


def test_what_may_round_otherwise_is_known() -> None:
    assert set(RULES) >= ROUNDING and {c.rule for c in EVERY if c.close} <= ROUNDING


def test_numbers_that_are_tried() -> None:
    assert everything(DType.I8).size == 256 and everything(DType.BF16).size == 1 << 16
    found = special(DType.F16).astype(np.float64)
    assert np.isnan(found).any() and np.isinf(found).any() and np.signbit(found[found == 0]).any()
    assert {np.iinfo(np.int64).min, np.iinfo(np.int64).max} <= set(special(DType.I64).tolist())


# Identities that fail for few numbers, each of which must be found.
WRONG = {
    "abs-of-neg": ("abs", "u8[3,4]", lambda w, x: w.abs(w.neg(x)),
                   lambda draft, at: draft.add("abs", draft.operand(draft[at].inputs[0]))),
    "plus-zero": ("add", "f32[3,4]", lambda w, x: w.add(x, 0.0),
                  lambda draft, at: draft[at].inputs[0]),
    "least-quotient": ("div", "i8[3,4]", lambda w, x: w.div(w.neg(x), -1),
                       lambda draft, at: draft.add(
                           "max", draft.operand(draft[at].inputs[0]),
                           draft.full(-127, draft[at].types[0]))),
}  # fmt: skip


@pytest.fixture(params=WRONG)
def wrong(request: pytest.FixtureRequest) -> Iterator[str]:
    op, _, _, instead = WRONG[request.param]

    @rule(f"toy-{request.param}", "nobody", op)
    def toy(draft: Draft, at: int) -> Replacement:
        """Wrong."""
        inner = draft[at].inputs[0]
        asked = op == "add" or draft.is_op(inner, "neg")
        return instead(draft, at) if asked else None

    yield request.param
    del RULES[f"toy-{request.param}"]


def test_the_hunt_finds_what_fails_for_few_numbers(wrong: str) -> None:
    _, inputs, before, _ = WRONG[wrong]
    tried, found = check_rule(
        f"toy-{wrong}", lambda said, meant: graph_of(inputs, before, -2.0, said, meant), draws=1
    )
    assert tried and found and found[0].rules == (f"toy-{wrong}",)
