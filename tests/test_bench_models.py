"""scripts/bench_models: rows of networks, cells that fail or are wrong, figures over rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")  # an extra of its own

from autofuse.peers.types import BenchError  # noqa: E402 - after torch
from benchmarks.models import systems  # noqa: E402 - after torch
from benchmarks.models.bench import NetworkOptions, bench_models  # noqa: E402 - after torch
from benchmarks.models.pages import HEARS, line, summary, summary_text, table_text  # noqa: E402 - after torch
from benchmarks.models.row import NetworkAsked, network_row, over  # noqa: E402 - after torch
from benchmarks.models.systems import EAGER, TUNED, UNTUNED, System  # noqa: E402 - after torch
from benchmarks.models.table import NETWORKS, chosen  # noqa: E402 - after torch
from benchmarks.models.types import Built, Network  # noqa: E402 - after torch


def _small(batch: int) -> Built:
    layers = torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)
    return Built(torch.nn.Sequential(*layers), (torch.randn(batch, 8),))


SMALL = Network("small", "language", "tests", _small, ())
GONE = replace(SMALL, name="gone", needs=("no_such_module",))
ASKED = NetworkAsked(3, 0.0, 0.1, (UNTUNED, TUNED, EAGER, "off", "broken", "missing"))


def _off(served: systems.Served) -> systems.Call:
    return lambda: [1.5 * t for t in systems._eager(served)()]


def _broken(served: systems.Served) -> systems.Call:
    raise ValueError("it cannot")


@pytest.fixture(scope="module")
def row() -> Iterator[Mapping[str, Any]]:
    """A row with a system that is wrong, one that fails and one that is not here."""
    more = {"off": System(_off), "broken": System(_broken),
            "missing": System(_broken, needs=("no_such_module",))}  # fmt: skip
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOFUSE_CACHE", "")  # a row sets both: put back afterwards
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
        for name, system in more.items():
            patch.setitem(systems.SYSTEMS, name, system)
        yield network_row(SMALL, ASKED)
    torch.set_num_threads(threads)
    torch._dynamo.reset()


def test_a_row_holds_what_each_system_takes(row: Mapping[str, Any]) -> None:
    cells = row["systems"]
    assert TUNED not in cells  # no budget
    ours, eager = cells[UNTUNED], cells[EAGER]
    assert ours["right"] and eager["right"] and max(ours["error"], eager["error"]) < 1e-5
    assert min(ours["us"][1], eager["us"][1], ours["first_s"], eager["first_s"]) > 0
    assert row["over"] == {UNTUNED: {EAGER: eager["us"][1] / ours["us"][1]}}
    assert (row["graphs"], row["islands"], row["left"]) == (1, 1, [])
    assert row["hears"] > HEARS
    assert row["parameters"] == 8 * 16 + 16 + 2 * 16


def test_a_row_says_who_is_wrong_and_why_one_does_not_serve(row: Mapping[str, Any]) -> None:
    cells, told = row["systems"], summary({"small": row})
    assert cells["off"]["right"] is False and told["wrong"] == ["small off"]
    assert told["failed"] == {
        "small broken": "ValueError: it cannot", "small missing": "not here: no_such_module",
    }  # fmt: skip
    assert "WRONG" in line("small", row) and "it cannot" in line("small", row)


def _cell(us: float, right: bool = True) -> dict[str, Any]:
    return {"us": [us, us, us], "right": right, "first_s": 1.0, "error": 0.0}


def _row(ours: float, *peers: float) -> dict[str, Any]:
    cells = {TUNED: _cell(ours)} | {f"p{i}": _cell(us) for i, us in enumerate(peers)}
    return {"systems": cells, "over": over(cells), "hears": 1.0}


def test_a_network_counts_by_its_best_peer() -> None:
    told = summary({"a": _row(10, 20, 40), "b": _row(10, 80, 5), "c": {"error": "it crashed"}})
    assert told["of_ours"][TUNED]["best"] == pytest.approx(1.0)  # of 2 and a half
    assert told["of_ours"][TUNED]["peers"] == {
        "p0": pytest.approx(4.0),
        "p1": pytest.approx(2**0.5),
    }
    assert told["of_ours"][TUNED]["below"] == {"b": 0.5}
    assert told["failed"] == {"c": "it crashed"}


def test_a_network_whose_results_say_nothing_of_the_input_is_told() -> None:
    deaf, former = _row(10, 20) | {"hears": 1e-30}, _row(10, 20)
    del former["hears"]
    assert summary({"a": deaf, "b": _row(1, 2), "c": former})["deaf"] == ["a", "c"]
    assert "DEAF" in line("a", deaf) and "DEAF" in line("c", former)


def test_what_is_wrong_is_nobodys_peer() -> None:
    assert over({TUNED: _cell(2), "p": _cell(1, right=False), EAGER: _cell(6)}) == {
        TUNED: {EAGER: 3.0}
    }
    assert over({TUNED: _cell(2, right=False), EAGER: _cell(6)}) == {}


def test_rows_are_kept_as_they_end_and_those_without_figures_are_tried_again(
    tmp_path: Path,
) -> None:
    output, asked = tmp_path / "found.json", []

    def answer(network: Network, _: NetworkAsked) -> Mapping[str, Any]:
        asked.append(network.name)
        fails = network.name == "other" and len(asked) < 3
        return {"error": "it hung"} if fails else _row(1, 2)

    networks = [SMALL, replace(SMALL, name="other"), GONE]
    said: list[str] = []
    first = bench_models(networks, NetworkOptions(), output, said.append, answer)
    assert first["absent"] == {"gone": "no_such_module"} and "absent" in said[0]
    assert json.loads(output.read_text())["summary"]["failed"] == {"other": "it hung"}
    second = bench_models(networks, NetworkOptions(), output, said.append, answer)
    assert asked == ["small", "other", "other"]
    assert second["summary"]["of_ours"][TUNED]["best"] == pytest.approx(2.0)
    assert "| small |" in table_text(second["rows"])
    assert "2.00 times the best peer" in summary_text(second)
    with pytest.raises(BenchError, match="another batch"):
        bench_models(networks, NetworkOptions(batch=8), output, said.append, answer)


def test_networks_are_chosen_by_name() -> None:
    assert [n.name for n in chosen(["unet", "vit_b16"])] == ["unet", "vit_b16"]
    assert len(chosen([])) == len(NETWORKS) >= 16
    with pytest.raises(BenchError, match="no network is called 'vit'"):
        chosen(["vit"])


@pytest.mark.parametrize("name", ["unet", "detector", "diffusion_block"])
def test_networks_of_our_own_give_floats(name: str) -> None:
    built = NETWORKS[name].build(1)
    with torch.no_grad():
        found = built.model.eval().to("meta")(*(a.to("meta") for a in built.args))
    assert found.is_floating_point() and found.shape[0] == 1
