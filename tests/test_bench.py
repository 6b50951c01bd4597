"""The comparison against peers: their programs compute what our graphs compute."""

import json

import jax
import numpy as np
import pytest

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.reference import evaluate
from autofuse.ops.dtypes import DType
from autofuse.peers import interleave, programs_jax, programs_numpy
from autofuse.peers import systems as peers
from autofuse.peers.interleave import take_turns
from autofuse.peers.systems import Jax, NumPy
from autofuse.peers.translate import translate
from autofuse.peers.types import BenchError, BenchWorkload, PeerOutcome, Ready
from autofuse.peers.verify import check
from autofuse.zoo import ZOO
from benchmarks import run, table
from benchmarks.workloads import HEADLINE, NAMES, bench_workload, chosen


@pytest.mark.wide(20)
@pytest.mark.parametrize("name", list(ZOO))
@pytest.mark.parametrize("programs", [programs_numpy, programs_jax])
def test_peer_programs_compute_the_workload(name, programs):
    workload = bench_workload(name, "small")
    program = programs.program(name, workload.sizes)
    found = (jax.jit(program) if programs is programs_jax else program)(*workload.inputs)
    wanted = evaluate(workload.graph, workload.inputs)
    arrays = tuple(np.asarray(a) for a in found)
    types = workload.graph.output_types
    assert [a.dtype for a in arrays] == [t.dtype.numpy for t in types]
    assert check(arrays, wanted, workload.random) < (0.1 if workload.random else 1e-4)


@pytest.mark.parametrize("name", ["gymnax_cartpole", "veros_gsw_dHdT"])
def test_programs_of_others_translate(name):
    workload = bench_workload(name, "small")
    wanted = evaluate(workload.graph, workload.inputs)
    for implementation in (NumPy(), Jax()):
        ready = implementation.prepare(workload)
        check(ready.fetch(ready.call()), wanted, False)


def test_translation_names_what_it_cannot_do():
    b = GraphBuilder()
    x = b.input("x", (4,), DType.F32)
    graph = b.build([b.add("cumsum", x, axis=0)])
    with pytest.raises(BenchError, match="op 'cumsum' has no translation to numpy"):
        translate(graph, np)


def test_check_wants_shapes_counts_and_values():
    wanted = (np.linspace(1.0, 2.0, 1000),)
    assert check((wanted[0].astype(np.float32),), wanted, False) < 1e-6
    few = wanted[0].copy()
    few[:5] = 7.0  # an environment or two may have been reset a step earlier
    check((few,), wanted, False)
    for bad in ((), (wanted[0][:9],), (wanted[0] * 1.01,), (wanted[0] * np.nan,)):
        with pytest.raises(BenchError):
            check(bad, wanted, False)
    shuffled = np.random.default_rng(0).permutation(wanted[0])
    check((shuffled,), wanted, True)
    with pytest.raises(BenchError):
        check((shuffled + 1,), wanted, True)


def test_turns_are_taken_by_all(monkeypatch):
    monkeypatch.setattr(interleave, "WARM_S", 0.0)
    calls = {name: [] for name in "abc"}
    evicted = []
    samples = take_turns(
        {name: (lambda c=c: c.append(len(evicted))) for name, c in calls.items()},
        lambda: evicted.append(1),
        seconds=0.0,
    )
    assert {name: len(s) for name, s in samples.items()} == {"a": 6, "b": 6, "c": 6}
    assert len(evicted) == 18
    # Each sample is a call to wake up, the caches emptied, and the call that counts.
    for seen in calls.values():
        assert all(
            later == earlier + 1 for earlier, later in zip(seen[::2], seen[1::2], strict=True)
        )
    assert all(value > 0 for s in samples.values() for value in s)


def test_calls_before_a_sample_warm_the_caches():
    calls = []
    samples = take_turns({"a": lambda: calls.append(1)}, lambda: None, seconds=0.0)
    assert len(calls) > 2 * len(samples["a"])


def test_chosen_workloads():
    assert chosen(()) == NAMES and set(HEADLINE) <= set(NAMES)
    assert chosen(("swiglu", "mlp", "swiglu")) == ("swiglu", "mlp")
    with pytest.raises(BenchError, match="unknown workload 'zoo'"):
        chosen(("zoo",))


def cells(ours, **others):
    row = {"autofuse": PeerOutcome(time_us=ours, compile_s=1.0, tune_s=20.0)}
    return row | {name: PeerOutcome(time_us=us, compile_s=0.1) for name, us in others.items()}


def test_summary_compares_with_the_best_peer():
    results = {
        "softmax": cells(10.0, numpy=50.0, jax=20.0),
        "swiglu": cells(10.0, numpy=80.0, jax=5.0, autofuse_unfused=1.0),
        "mlp": cells(10.0, jax=1.0),
        "adam_16": {"autofuse": PeerOutcome(error="broken"), "jax": PeerOutcome(time_us=1.0)},
    }
    found = table.summary(results)
    assert found["geomean_best_peer_over_autofuse"] == pytest.approx(1.0)  # sqrt(2 * 1/2)
    assert found["geomean_over"] == ["softmax", "swiglu"]
    assert "adam_16" in found["geomean_missing"]
    assert found["worst"] == {"name": "mlp", "ratio": 0.1}
    data = json.loads(json.dumps(table.as_data(results, {"threads": 2})))
    assert data["workloads"]["softmax"]["jax"] == {"time_us": 20.0, "compile_s": 0.1}
    assert data["workloads"]["adam_16"]["autofuse"]["error"] == "broken"
    text = table.text_table(results, (*peers.OURS, *peers.PEERS), {"torch": "not installed"})
    assert "missing: torch: not installed" in text
    assert "failed: adam_16 with autofuse: broken" in text
    assert "2.00 (jax)" in text
    assert f"over 2 of {len(HEADLINE)} headline workloads: 1.000" in text
    assert "over 3 of the 4 workloads here: 0.464" in text  # cbrt(2 * 1/2 * 1/10)


def test_workloads_outside_the_headline_have_a_mean_of_their_own():
    assert "gravity" not in HEADLINE
    text = table.text_table({"gravity": cells(10.0, jax=40.0)}, peers.OURS, {})
    assert "headline" not in text and "over 1 of the 1 workloads here: 4.000" in text


class Planted:
    """An implementation that does what the test says."""

    def __init__(self, name, results):
        self.name, self.results = name, results

    def prepare(self, workload):
        if isinstance(self.results, Exception):
            raise self.results
        return Ready(lambda: self.results, tuple, 0.25, note="planted")


def planted_workload():
    b = GraphBuilder()
    x = b.input("x", (8,), DType.F32)
    graph = b.build([b.add("exp", x)])
    return BenchWorkload("toy", graph, (np.linspace(-1, 1, 8, dtype=np.float32),))


def test_tuning_seconds_are_told_for_all_who_tuned():
    row = {"autofuse": PeerOutcome(time_us=1.0, tune_s=20.0), "jax": PeerOutcome(time_us=2.0),
           "tvm_tuned": PeerOutcome(time_us=3.0, compile_s=0.5, tune_s=81.0)}  # fmt: skip
    text = table.text_table({"softmax": row}, (*peers.OURS, *peers.PEERS), {})
    head, line = text.splitlines()[3:5]
    assert head.split("tvm_tuned", 1)[1].split() == "autofuse tuning s tvm_tuned tuning s".split()
    assert line.split()[-3:] == ["0.50", "20.00", "81.00"]


@pytest.mark.parametrize("trials", [0, 8])
def test_tvm_is_missing_with_a_sentence(trials, monkeypatch):
    known = peers.find_spec
    monkeypatch.setattr(peers, "find_spec", lambda name: None if name == "tvm" else known(name))
    _, missing = peers.implementations(1, 0.0, None, trials)
    said = {name: why for name, why in missing.items() if name.startswith("tvm")}
    assert list(said) == (["tvm", "tvm_tuned"] if trials else ["tvm"])
    assert set(said.values()) == {"tvm is not installed (pip install 'autofuse[peers]')"}


def test_a_row_tells_times_and_errors():
    workload = planted_workload()
    right = (np.exp(workload.inputs[0]),)
    columns = [
        Planted("good", right),
        Planted("wrong", (right[0] + 1,)),
        Planted("broken", RuntimeError("no such kernel\nand a long trace")),
    ]
    row = run.compare(workload, columns, lambda: None, 0.0)
    assert row["good"].time_us > 0 and row["good"].compile_s == 0.25
    assert row["good"].samples >= 6 and row["good"].max_rel_error < 1e-6
    assert "output 0 is wrong" in row["wrong"].error and row["wrong"].time_us is None
    assert row["broken"].error == "RuntimeError: no such kernel"


def test_what_is_too_slow_for_turns_is_timed_once(monkeypatch):
    monkeypatch.setattr(run, "SLOW_S", -1.0)
    workload = planted_workload()
    row = run.compare(workload, [Planted("slow", (np.exp(workload.inputs[0]),))], lambda: None, 0.0)
    assert row["slow"].time_us > 0 and row["slow"].samples == 1 and "one call" in row["slow"].note


def test_results_are_written_as_they_come(tmp_path, monkeypatch):
    """A failure later on must not lose what was measured before."""
    workload = planted_workload()
    good = Planted("numpy", (np.exp(workload.inputs[0]),))
    monkeypatch.setattr(run, "limit_threads", lambda threads: None)
    monkeypatch.setattr(run, "implementations", lambda *a: ([good], {"torch": "not installed"}))

    def make(name, size):
        if name == "mlp":
            raise KeyboardInterrupt
        if name == "veros_gsw_dHdT":
            raise BenchError("package veros is not installed")
        return workload

    monkeypatch.setattr(run, "bench_workload", make)
    output = tmp_path / "out.json"
    with pytest.raises(KeyboardInterrupt):
        run.bench_peers(["softmax", "veros_gsw_dHdT", "mlp"], timing_s=0.0, output=output)
    data = json.loads(output.read_text())
    assert data["workloads"]["softmax"]["numpy"]["time_us"] > 0
    assert data["missing"]["torch"] == "not installed"
    found = run.bench_peers(["softmax", "veros_gsw_dHdT"], timing_s=0.0, output=output)
    assert "missing: veros_gsw_dHdT: package veros is not installed" in found["table"]
    assert json.loads(output.read_text())["missing"]["veros_gsw_dHdT"].startswith("package veros")


def test_more_threads_than_cores_are_refused():
    with pytest.raises(BenchError, match="threads cannot be had"):
        peers.limit_threads(10_000)
