"""Random graphs with redundant structure put in become the graphs without it, and stay right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autofuse
from autofuse.baselines import BASELINES
from autofuse.devices import device_named
from autofuse.graph.canonical import canonical, digest
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.simplify import simplify
from autofuse.tuning import plan_named
from autofuse.zoo import zoo_graph
from benchmarks.redundancy import VALUES, with_redundancy
from benchmarks.simplify_check import SimplifiedPair, check_pairs
from tests.support.random_graphs import ALL_MOVES, random_graph

COUNT, NODES = 40, 20


@pytest.fixture(scope="module")
def pairs() -> list[SimplifiedPair]:
    told: list[int] = []
    found = check_pairs(
        lambda seed: random_graph(seed, NODES, moves=ALL_MOVES),
        range(COUNT),
        lambda pair: told.append(pair.seed),
    )
    assert told == list(range(COUNT))
    return found


def test_most_become_the_clean_graph(pairs: list[SimplifiedPair]) -> None:
    assert sum(pair.met for pair in pairs) >= 0.95 * COUNT


def test_all_compute_what_the_clean_graph_does(pairs: list[SimplifiedPair]) -> None:
    assert [(p.seed, p.wrong) for p in pairs if p.wrong] == []


def test_every_kind_of_redundancy_is_put_in(pairs: list[SimplifiedPair]) -> None:
    put_in = {name for pair in pairs for name in pair.told}
    assert put_in == {each.__name__ for each in VALUES} | {"hidden_number", "hidden_positions"}


def test_redundancy_is_there_before_and_computes_the_same() -> None:
    """The check would find nothing if what is put in changed nothing, or changed results."""
    clean = random_graph(3, NODES)
    redundant = with_redundancy(clean, 3).graph
    assert digest(clean) != digest(redundant)
    assert len(canonical(redundant).nodes) > len(canonical(clean).nodes)
    inputs = random_inputs(clean, 0)
    for wanted, found in zip(evaluate(clean, inputs), evaluate(redundant, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_redundant_graph_is_planned_as_the_clean_one() -> None:
    clean = zoo_graph("softmax", "small")
    redundant = with_redundancy(clean, 1).graph
    for name in ("fused", *BASELINES):
        one, other = (plan_named(g, name, device_named("cpu")) for g in (clean, redundant))
        assert one == other
    assert plan_named(redundant, "unfused", device_named("cpu"), simplify=False) != plan_named(
        redundant, "unfused", device_named("cpu")
    )


def test_a_plan_of_one_serves_the_other(tmp_path: Path) -> None:
    """What is tuned under one spelling is found under another, but not as it is written."""
    clean = zoo_graph("softmax", "small")
    redundant = with_redundancy(clean, 1).graph
    db = str(tmp_path / "t.db")
    autofuse.tune(clean, device="cpu", db=db, budget_s=3.0, baselines=["xla-2022"])
    known = autofuse.best_plan(redundant, device="cpu", db=db)
    assert known is not None
    assert autofuse.best_plan(redundant, device="cpu", db=db, simplify=False) is None
    (x,) = random_inputs(clean, 0)
    results = [autofuse.compile(g, device="cpu", db=db)(x)[0] for g in (clean, redundant)]
    np.testing.assert_array_equal(*results)
    as_written = autofuse.compile(redundant, device="cpu", db=db, simplify=False)
    np.testing.assert_allclose(as_written(x)[0], results[0], rtol=1e-5)


def test_nodes_are_shown_to_rules_a_bounded_number_of_times() -> None:
    """Linear in practice: ten times the graph takes about ten times the steps."""
    small, large = (len(simplify(canonical(random_graph(5, n))).steps) for n in (300, 3000))
    assert large <= 20 * small
