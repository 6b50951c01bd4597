"""The comparison of single contractions: cases, graphs, peers, rows and the page."""

import json
import os
import threading

import numpy as np
import pytest

from autofuse.graph.reference import evaluate, random_inputs
from autofuse.peers.types import BenchError, BenchWorkload, PeerOutcome, Ready
from benchmarks import contraction_graphs, contractions
from benchmarks.contraction_cases import (
    MOST_BYTES,
    MOST_FLOPS,
    Attention,
    Convolution,
    Product,
    attentions,
    cases,
    convolutions,
    products,
)
from benchmarks.contraction_graphs import graph_of, rest_graph
from benchmarks.contraction_peers import Libraries, Ours, Peer, peers_of
from benchmarks.contraction_table import ratios_of, summary, text_table
from benchmarks.contractions import Options, as_row, bench_contractions, every_element
from benchmarks.run import checked
from benchmarks.seats import caller_apart
from tests.support.cli_tools import call_script

NOTHING = Libraries(None, None)
PLAIN = Product(1, 3, 5, 7, False, False)


def test_products_follow_from_the_seed():
    assert products(7, 60) == products(7, 60) != products(8, 60)
    assert products(7, 12) == products(7, 60)[:12]


@pytest.mark.parametrize("seed", [0, 7, 2024])
def test_products_are_spread(seed):
    drawn = products(seed, 60)
    assert len({case.name for case in drawn}) == 60
    for case in drawn:
        assert 1 <= case.batch <= 64 and 1 <= case.m <= 4096
        assert 64 <= case.n <= 8192 and 64 <= case.k <= 8192
        assert case.flops <= MOST_FLOPS and case.nbytes <= MOST_BYTES
    lying = [(case.trans_a, case.trans_b) for case in drawn]
    assert all(lying.count((a, b)) == 15 for a in (False, True) for b in (False, True))
    assert 10 <= sum(case.m <= 16 for case in drawn) <= 40
    assert 15 <= sum(case.batch == 1 for case in drawn) <= 50
    assert any(case.n % 16 for case in drawn) and any(case.n % 16 == 0 for case in drawn)


def test_the_other_kinds_are_lists():
    layers = convolutions()
    assert len({case.name for case in layers}) == len(layers) == 30
    assert {case.network for case in layers} == {
        "resnet50",
        "mobilenetv2",
        "efficientnetb0",
        "unet",
    }
    assert {case.activation for case in layers} == {"silu", "gelu"}
    assert len({case.name for case in attentions()}) == 12
    assert sum(case.causal for case in attentions()) == 6
    assert len(cases([], 0, 1)) == 3
    few = cases(["convolution"], 0, 6)
    assert {case.network for case in few} >= {"resnet50", "unet", "mobilenetv2"}


def test_flops_count_products_alone():
    assert PLAIN.flops == 2 * 3 * 5 * 7
    stem = Convolution("resnet50", 3, 224, 64, 7, 2)
    assert stem.out_size == 112 and stem.flops == 2 * 49 * 3 * 64 * 112**2
    assert Convolution("m", 8, 6, 8, 3, 1, 8).flops == 2 * 9 * 8 * 36
    assert Attention(2, 4, 8, False).flops == 4 * 2 * 8 * 16
    assert Attention(2, 4, 8, True).flops == 4 * 2 * 8 * 10


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((["nonsense"], 0, 1), "unknown kind 'nonsense' (known: product, convolution, attention)"),
        ((["product"], -1, 1), "the seed must not be negative, as -1 is"),
        ((["product"], 0, 0), "0 cases are none to compare"),
    ],
)
def test_what_cannot_be_asked(arguments, said):
    with pytest.raises(BenchError) as error:
        cases(*arguments)
    assert str(error.value) == said


def seen(array, transposed):
    return array.swapaxes(-1, -2) if transposed else array


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_graph_and_openblas_compute_the_product(batch, trans_a, trans_b):
    case = Product(batch, 3, 5, 7, trans_a, trans_b)
    graph = graph_of(case)
    a, b = inputs = random_inputs(graph, 1)
    wanted = np.float64(seen(a, trans_a)) @ np.float64(seen(b, trans_b))
    assert evaluate(graph, inputs)[0] == pytest.approx(wanted, abs=1e-12)
    (openblas,) = peers_of(case, NOTHING)
    ready = openblas.prepare(BenchWorkload(case.name, graph, inputs))
    assert every_element(ready.fetch(ready.call()), (wanted,), False) < 1e-6


@pytest.mark.parametrize("causal", [False, True])
def test_graph_computes_attention(causal):
    graph = graph_of(Attention(2, 5, 4, causal))
    q, k, v = inputs = [np.float64(a) for a in random_inputs(graph, 1)]
    scores = q @ k.swapaxes(-1, -2) / 2.0
    scores[:, ~np.tri(5, dtype=bool)] = -np.inf if causal else scores[:, ~np.tri(5, dtype=bool)]
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    assert evaluate(graph, inputs)[0] == pytest.approx(weights @ v, abs=1e-12)


def test_without_the_op_one_sentence_ends_convolutions(monkeypatch):
    monkeypatch.setattr(contraction_graphs, "all_specs", lambda: ())
    with pytest.raises(BenchError, match=r"^convolutions cannot be compared: .* no op 'conv'$"):
        bench_contractions(Options(0, ["convolution"], 2))


@pytest.mark.parametrize("last", [False, True])
def test_the_rest_of_a_convolution_is_one_kernel_in_either_layout(last):
    case = Convolution("toy", 4, 3, 2, 1)
    graph = rest_graph(case, last)
    made, scale, residual = inputs = random_inputs(graph, 1)
    assert made.shape == ((3, 3, 2) if last else (2, 3, 3)) and scale.size == 9
    t = np.float64(made) * scale + residual
    assert evaluate(graph, inputs)[0] == pytest.approx(t / (1 + np.exp(-t)), rel=1e-6)


def test_one_wrong_element_is_found():
    wanted = np.random.default_rng(0).standard_normal((64, 64))
    assert every_element((wanted + 1e-6,), (wanted,), False) < 1e-5
    wrong = wanted.copy()
    wrong[63, 63] += 0.1
    for bad in (wrong, wanted * np.nan, wanted[1:]):
        with pytest.raises(BenchError):
            every_element((bad,), (wanted,), False)


def planted(name, value):
    def make(inputs):
        if isinstance(value, Exception):
            raise value
        return Ready(lambda: value, lambda result: (result,), 0.0, note=f"note of {name}")

    return Peer(name, make)


def test_a_row_has_who_is_right_and_says_who_is_not():
    graph = graph_of(PLAIN)
    inputs = random_inputs(graph, 0)
    right = inputs[0] @ inputs[1]
    columns = [
        planted("ours", right),
        planted("ours_packed", right),
        planted("openblas", right + 1),
        planted("onednn", RuntimeError("no such shape")),
        planted("other", right),
    ]
    cells, ready = checked(BenchWorkload("toy", graph, inputs), columns, judge=every_element)
    assert set(ready) == {"ours", "ours_packed", "other"}
    cells = contractions._timed(cells, ready, "warm", Options(0, rounds=3))
    row = json.loads(json.dumps(as_row(PLAIN, "warm", cells)))
    assert row["kind"] == "product" and row["case"] == "b1 m3 n5 k7 NN" and row["flops"] == 210
    assert row["shape"]["k"] == 7 and row["cache"] == "warm" and row["samples"] == 3
    assert row["ours_us"] > 0 and row["ours_packed_us"] > 0 and row["peer_us"]["other"] > 0
    assert set(row["peer_us"]) == {"other"} and set(row["failed"]) == {"openblas", "onednn"}
    assert row["failed"]["onednn"] == "RuntimeError: no such shape"
    assert set(row["spread_us"]) == set(row["max_error"]) == {"ours", "ours_packed", "other"}
    assert row["notes"]["other"] == "note of other"


def row(m, ours, **peers):
    cells = {"ours": PeerOutcome(time_us=ours)}
    if "ours_packed" in peers:
        cells["ours_packed"] = PeerOutcome(time_us=peers.pop("ours_packed"))
    cells |= {name: PeerOutcome(time_us=us) for name, us in peers.items()}
    return as_row(Product(1, m, 64, 64, False, True), "warm", cells)


def test_packed_is_compared_with_packed_alone():
    assert "ours_packed_us" not in row(1, 10.0)
    plain = row(1, 10.0, onednn=20.0, onednn_packed=5.0)
    assert ratios_of(plain) == {"onednn": 2.0, "best": 2.0}
    assert plain["peer_us"]["onednn_packed"] == 5.0
    found = ratios_of(row(1, 10.0, ours_packed=4.0, onednn=20.0, onednn_packed=5.0))
    assert found == {"onednn": 2.0, "onednn_packed": 1.25, "best": 1.25}
    failed = as_row(PLAIN, "warm", {"ours": PeerOutcome(error="broken")})
    assert failed["ours_us"] is None and ratios_of(failed) == {}


def test_figures_and_page():
    rows = [row(4, 10.0, openblas=40.0), row(512, 10.0, openblas=10.0, onednn=5.0)]
    rows.append(as_row(PLAIN, "cold", {"ours": PeerOutcome(error="broken")}))
    found = summary(rows)
    assert found["product"]["geomean"] == pytest.approx(
        {"openblas": 2.0, "onednn": 0.5, "best": 2**0.5}
    )
    assert found["product"]["counted"] == {"openblas": 2, "onednn": 1, "best": 2}
    assert found["product"]["worst"] == {"case": "b1 m512 n64 k64 NT", "ratio": 0.5}
    assert found["product, m <= 16"]["geomean"]["openblas"] == pytest.approx(4.0)
    lines = text_table(rows, {"torch": "not installed"}).splitlines()
    assert lines[0].split("  ")[0] == "product" and lines[0].endswith("GFLOP/s  best / ours  error")
    assert lines[1].split() == [
        "b1", "m4", "n64", "k64", "NT", "warm", "10", "µs", "40", "µs", "-", "3.3", "4.00", "-",
    ]  # fmt: skip
    assert any(
        "openblas 2.000 (2), onednn 0.500 (1), best 1.414 (2); worst 0.500" in t for t in lines
    )
    assert lines[-2:] == [
        "failed: b1 m3 n5 k7 NN with ours: broken", "missing: torch: not installed",
    ]  # fmt: skip


@pytest.fixture
def tiny(monkeypatch):
    """Two small cases instead of those that are asked for, and no library to be looked for."""
    small = [PLAIN, Product(2, 2, 4, 3, True, False)]
    monkeypatch.setattr(contractions, "cases", lambda kinds, seed, count: small)
    monkeypatch.setattr(contractions, "limit_threads", lambda threads: None)
    monkeypatch.setattr(contractions, "libraries", lambda n: (NOTHING, {"onednn": "not there"}))


def test_from_options_to_the_file(tiny, tmp_path):
    output, db = tmp_path / "out.json", f"sqlite:///{tmp_path}/t.db"
    said = []
    found = bench_contractions(Options(3, budget_s=0.0, rounds=3, db=db), output, said.append)
    data = json.loads(output.read_text())
    assert [r["case"] for r in data["rows"]] == ["b1 m3 n5 k7 NN", "b2 m2 n4 k3 TN"]
    for r in data["rows"]:
        assert r["ours_us"] > 0 and r["ours_packed_us"] > 0
        assert set(r["peer_us"]) == {"openblas"} and not r["failed"]
    assert data["missing"] == {"onednn": "not there"} and data["threads"] >= 1 and data["cpu"]
    assert data["options"]["seed"] == 3 and "product" in data["summary"]
    assert "missing: onednn: not there" in found["table"]
    assert said[1].startswith("2/2 b2 m2 n4 k3 TN: ours ")


def test_a_file_that_cannot_be_written_is_known_before_any_work(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(contractions, "row_of", lambda *a: pytest.fail("worked"))
    with pytest.raises(FileNotFoundError):
        bench_contractions(Options(3, budget_s=0.0), tmp_path / "none" / "out.json")


def test_checking_times_nothing(tiny, tmp_path):
    db = f"sqlite:///{tmp_path}/t.db"
    found = bench_contractions(Options(3, budget_s=0.0, only_check=True, db=db))
    for r in found["rows"]:
        assert r["ours_us"] is None and r["peer_us"] == {}
        assert set(r["max_error"]) == {"ours", "ours_packed", "openblas"} and not r["failed"]


def test_a_bound_plan_computes_and_can_be_called_again(tmp_path):
    graph = graph_of(PLAIN)
    inputs = random_inputs(graph, 0)
    workload = BenchWorkload("toy", graph, inputs)
    ready = Ours(0.0, f"sqlite:///{tmp_path}/t.db").prepare(workload)
    for _ in range(2):
        (out,) = ready.fetch(ready.call())
        assert out == pytest.approx(inputs[0] @ inputs[1], abs=1e-5)
        out[...] = np.nan
    assert ready.kernels == 1 and ready.note.startswith("plan ")


def test_the_script_refuses_what_it_does_not_know(capsys, monkeypatch):
    asked = ("bench_contractions", "--seed", "1", "--kinds", "nonsense")
    ended = call_script(capsys, monkeypatch, *asked)
    assert ended.code == 2
    assert ended.err.startswith("bench_contractions: unknown kind 'nonsense' (known: product,")


def test_a_caller_has_a_core_to_itself_while_others_share_the_rest() -> None:
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("one core cannot be shared out")
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        with caller_apart():
            assert os.sched_getaffinity(0) == {min(cores)}
            assert os.sched_getaffinity(other.native_id or 0) == cores - {min(cores)}
        assert os.sched_getaffinity(0) == os.sched_getaffinity(other.native_id or 0) == cores
    finally:
        done.set()
        other.join()
