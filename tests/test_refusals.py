"""`compare --why`: which rule left each boundary of a baseline's plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.baselines import BASELINES
from autofuse.graph.canonical import canonical
from autofuse.tuning.explain.explain import boundary_pairs
from autofuse.tuning.explain.refusals import Kept, kept_apart
from autofuse.tuning.plans import baseline_plan
from autofuse.zoo import zoo_graph
from tests.support.cli_tools import Call, call, toy_file


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Call:
    return lambda *arguments: call(capsys, *arguments)


def boundaries(workload: str, baseline: str) -> tuple[Kept, ...]:
    graph = canonical(zoo_graph(workload, "small"))
    return kept_apart(graph, baseline, baseline_plan(graph, baseline)[0])


def rules(found: tuple[Kept, ...], op: str) -> set[str]:
    """The rules that refused to fuse what carries a value of `op`."""
    return {d.rule for b in found if any(op in v for v in b.values) for d in b.refusals}


def test_the_paper_s_boundaries_are_named_in_the_naive_cartpole() -> None:
    """The concatenate has several users, and random numbers are a library call."""
    found = boundaries("cartpole_naive", "xla-2022")
    assert "code-duplication" in rules(found, "concat")
    assert rules(found, "random_bits") == {"library-call"}
    reasons = [d.reason for b in found for d in b.refusals if d.rule == "code-duplication"]
    assert any("concat" in reason and "limit 1" in reason for reason in reasons)


def test_without_the_random_numbers_the_concatenate_still_ends_a_kernel() -> None:
    found = boundaries("cartpole_norng", "xla-2022")
    assert "code-duplication" in rules(found, "concat")
    assert not rules(found, "random_bits")


def test_four_arrays_are_one_kernel_a_step() -> None:
    inside = [b for b in boundaries("cartpole_noconcat", "xla-2022") if b.scope]
    assert inside == []


@pytest.mark.parametrize("baseline", BASELINES)
def test_every_boundary_is_listed(baseline: str) -> None:
    graph = canonical(zoo_graph("layer_norm_gelu", "small"))
    plan = baseline_plan(graph, baseline)[0]
    found = kept_apart(graph, baseline, plan)
    assert {b.kernels for b in found} == set(boundary_pairs(graph, plan))
    assert all(b.bytes > 0 and b.values for b in found)
    assert all(not d.fused and d.rule and d.reason for b in found for d in b.refusals)


def test_compare_tells_kernels_bytes_and_rules(cli: Call, tmp_path: Path) -> None:
    source, plans = toy_file(tmp_path), "unfused,xla-2022,fused"
    asked = ("compare", source, "--plans", plans, "--device", "cpu", "--db", tmp_path / "a.db")
    ended = cli(*asked, "--why", "--format", "json")
    assert ended.code == 0
    for name, row in ended.json["plans"].items():
        assert row["kernels"] > 0 and row["time_us"] > 0 and row["predicted_us"] > 0
        assert row["bytes"] == row["read_bytes"] + row["written_bytes"] > 0
        assert ("boundaries" in row) == (name != "fused")
    refused = ended.json["plans"]["xla-2022"]["boundaries"]
    assert refused and all(b["rule"] and b["refusals"] for b in refused)
    text = cli(*asked, "--why").out
    assert f"[{refused[0]['rule']}]" in text and "xla-2022: kernel 0 -> kernel" in text
    assert "[" not in cli(*asked).out
