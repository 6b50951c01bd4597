"""Recorded spaces and searchers replayed on them: a synthetic space, no device."""

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from autofuse.cost.bounds import NOMINAL
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.ops.dtypes import DType
from autofuse.peers.types import BenchError
from autofuse.search.space import Space
from autofuse.zoo import zoo_graph
from benchmarks import searchers
from benchmarks.record import RecordOptions, by_bits, record_space
from benchmarks.replay import SEARCHERS, ReplayDevice, problem_of, replay
from benchmarks.searchers_page import page, table
from benchmarks.spaces import (
    RecordedKernel,
    RecordedLaunches,
    load,
    save,
)
from search_spaces import FusionSpace
from tests.support.made_up_space import LAUNCHES, made_up_space

SPACES = Path(__file__).parent / "data" / "spaces"


def every_plan(graph):
    space = FusionSpace(graph)
    for number in range(2 << len(space.edges)):
        yield space.choose(by_bits(number))


@pytest.fixture(scope="module")
def space():
    """Softmax with made-up times above the bounds, of every plan the samplers can propose."""
    graph = canonical(zoo_graph("softmax", "small"))
    return made_up_space("toy", graph, list(dict.fromkeys(every_plan(graph))))


def same(trace):
    """A trace without the real seconds in it."""
    steps = [(i.seconds, i.us) for i in trace.improvements]
    return steps, trace.seconds, trace.runs, trace.compiled, trace.unrecorded


def test_files_round_trip_to_the_byte(space, tmp_path):
    one, other = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"
    save(space, one)
    back = load(one)
    save(back, other)
    assert back == space
    assert list(back.kernels.items()) == list(space.kernels.items())
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("text", ["", "[]\n", '{"autofuse_space":1}\n', '{"autofuse_space":9}\n'])
def test_a_file_that_is_no_space_is_refused(tmp_path, text):
    path = tmp_path / "bad.jsonl.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(BenchError, match=r"bad\.jsonl\.gz"):
        load(path)
    path.write_bytes(b"plain")
    with pytest.raises(BenchError, match="cannot read"):
        load(path)


def test_a_graph_that_is_not_the_recorded_one_is_refused(space, tmp_path):
    path = tmp_path / "s.jsonl.gz"
    save(space, path)
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    header = json.loads(lines[0]) | {"digest": "0" * 32}
    path.write_bytes(gzip.compress("\n".join([json.dumps(header), *lines[1:]]).encode()))
    with pytest.raises(BenchError, match="digest"):
        load(path)


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("name", SEARCHERS)
def test_a_replay_is_deterministic(space, name, seeded):
    one, other = (replay(space, name, 3, 8.0, seeded=seeded) for _ in range(2))
    assert same(one) == same(other)
    assert one.runs > 0 and one.unrecorded == 0
    assert one.improvements[-1].us >= space.optimum_us * (1 - 1e-9)


def test_the_optimum_is_the_least_plan(space):
    """Every plan of the samplers with every kernel at its best: none is below."""
    best = space.best_us
    sums = [sum(best[space.keys[g]] for g in plan.groups) for plan in every_plan(space.graph)]
    assert space.optimum_us <= min(sums) * (1 + 1e-9)


def test_exact_reaches_the_optimum_of_its_default_configurations(space):
    only = {
        (key, launch): kernel for (key, launch), kernel in space.kernels.items()
        if launch == LAUNCHES[0]
    }  # fmt: skip
    groups = tuple(replace(g, candidate=True) for g in space.groups)
    narrow = replace(space, kernels=only, groups=groups)
    trace = replay(narrow, "exact", 0, math.inf)
    assert trace.improvements[-1].us == pytest.approx(narrow.optimum_us, rel=1e-6)
    assert trace.compiled <= len(narrow.best_us)


def test_seeded_searches_all_begin_with_everything_fused(space):
    begun = {name: same(replay(space, name, 0, 0.1, seeded=True))[0] for name in SEARCHERS}
    assert len({tuple(steps) for steps in begun.values()}) == 1


def test_an_unknown_searcher_is_refused(space):
    with pytest.raises(BenchError, match="annealing"):
        replay(space, "annealing", 0, 1.0)


def test_a_kernel_is_charged_for_compiling_once(space):
    device = ReplayDevice(space)
    candidate = Space().propose_fixed(problem_of(space), {}).payload
    device.run(candidate)
    first = device.seconds
    device.run(candidate)
    assert first == pytest.approx(0.25 + 0.1 * len(candidate.plan.groups))
    assert device.seconds == pytest.approx(first + 0.25)


def test_what_is_not_recorded_fails_and_is_counted(space):
    fused = space.keys[Space().propose_fixed(problem_of(space), {}).payload.plan.groups[0]]
    less = replace(space, groups=tuple(g for g in space.groups if g.key != fused))
    trace = replay(less, "random", 0, 3.0)
    assert trace.unrecorded > 0
    assert trace.improvements


def test_recorded_failures_are_failures(space):
    bad = {name: RecordedKernel(None, 0.1, "crash") for name in space.kernels}
    trace = replay(replace(space, kernels=bad), "random", 0, 3.0)
    assert trace.improvements == () and trace.runs > 0


def test_launches_offer_what_was_recorded(space):
    launches = RecordedLaunches(space)
    group = space.groups[0].group
    asked = {}

    def last(name, options):
        asked[name] = options
        return options[-1]

    assert launches.default(space.graph, group) == LAUNCHES[0]
    assert launches.choose(space.graph, group, last, "p") == LAUNCHES[-1]
    assert list(asked.values()) == [(True, False), (2, 1)]


def test_expected_least_is_that_of_all_draws():
    values = [3.0, 1.0, 2.0]
    pairs = [min(a, b) for a in values for b in values]
    assert searchers.expected_least(values, 1) == pytest.approx(2.0)
    assert searchers.expected_least(values, 2) == pytest.approx(sum(pairs) / 9)


def test_bench_compares_all_searchers(space, tmp_path):
    result = searchers.bench_space(space, searchers.Options(seeds=2, reach=2.0, max_runs=30))
    assert set(result.curves) == set(SEARCHERS)
    for curve in result.curves.values():
        assert list(curve.median) == sorted(curve.median)
        assert max(curve.high) <= 1 + 1e-9
    assert list(result.analytic) == sorted(result.analytic)
    assert result.final["exact"] <= 1.02 * result.optimum_us or not result.reached["exact"].share
    lines = table([result]).splitlines()
    assert lines[1].startswith("toy ") and len({len(line) for line in lines[:2]}) == 1
    text = page([result])
    ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))
    assert "Searchers on toy" in text
    searchers.write_results([result], tmp_path / "r.json")
    rows = json.loads((tmp_path / "r.json").read_text())["spaces"]
    assert [row["name"] for row in rows] == ["toy"]


def test_recording_measures_what_plans_need():
    """A real recording of a tiny graph: all kernels of all plans, none of them failing."""
    builder = GraphBuilder()
    x = builder.input("x", (8, 16), DType.F32)
    total = builder.add(
        "broadcast", builder.add("reduce_sum", x, axes=(1,)), shape=(8, 16), dims=(0,)
    )
    graph = builder.build([builder.add("reduce_max", builder.add("div", x, total), axes=(1,))])
    found = record_space("tiny", graph, RecordOptions(wall_s=0.01), calibration=NOMINAL)
    assert found.measure_s > 0
    assert all(kernel.us is not None for kernel in found.kernels.values())
    assert {g.key for g in found.groups} == {key for key, _ in found.kernels}
    assert replay(found, "random", 0, 5.0).unrecorded == 0
    exact = replay(found, "exact", 0, math.inf)
    assert exact.improvements[-1].us >= found.optimum_us * (1 - 1e-9)


@pytest.mark.parametrize("path", sorted(SPACES.glob("*.jsonl.gz")), ids=lambda path: path.name)
def test_shipped_spaces_can_be_replayed(path):
    found = load(path)
    assert path.stat().st_size < 200_000
    trace = replay(found, "random", 0, math.inf, 20)
    assert trace.improvements[-1].us >= found.optimum_us * (1 - 1e-9)


def test_six_spaces_are_shipped():
    assert len(list(SPACES.glob("*.jsonl.gz"))) >= 6
