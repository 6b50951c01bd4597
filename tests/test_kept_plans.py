"""What a program gets without a search: plans of other sizes, and what earlier processes found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import autofuse
from autofuse import spec, xp
from autofuse.backends.cache import BuildCache
from autofuse.devices import device_named
from autofuse.graph.canonical import digest, text
from autofuse.graph.family import distance, family
from autofuse.graph.types import Graph
from autofuse.plan.types import Candidate
from autofuse.records import Cost, Measurement
from autofuse.simplify import normal_form
from autofuse.tuning.plans import baseline_candidate
from autofuse.tuning.serve import kept
from tests.support.tuning_records import timing
from tuning_db import Store

KIND = device_named("cpu")


def rows(count: int, columns: int = 8, fn: Any = xp.exp) -> Graph:
    def program(x: Any) -> dict[str, Any]:
        return {"y": xp.softmax(fn(x) * 2, axis=-1)}

    return normal_form(autofuse.trace(program, spec((count, columns))))


def tuned(db: str, graph: Graph, plan: str) -> Candidate:
    """As if a session had found a baseline's plan to be the best."""
    candidate, _ = baseline_candidate(graph, plan, KIND.space)
    known = Measurement(
        digest(graph), candidate.to_json(), candidate.digest, plan, len(candidate.launches), (),
        timing(), None, 0.0, Cost(0.0, 0.0, 0.0, 0.0), "final",
    )  # fmt: skip
    with Store.open(db) as store:
        store.add_workload(digest(graph), text(graph), "", len(graph.nodes))
        assert store.promote(None, KIND.backend.environment(), known, None)
    return candidate


def test_a_family_differs_in_numbers_alone() -> None:
    one = family(text(rows(16)))
    assert one == family(text(rows(4096, 32)))
    assert one != family(text(rows(16, fn=xp.sin)))
    assert "f32" in one and "16" not in one


def test_the_distance_of_sizes_is_in_powers_of_two() -> None:
    one = text(rows(15, 7))
    assert distance(one, one) == 0
    assert distance(one, text(rows(31, 7))) == 1
    assert distance(text(rows(31, 15)), one) == 2


def test_a_plan_moves_from_the_nearest_tuned_size(tmp_path: Path) -> None:
    db = str(tmp_path / "t.db")
    tuned(db, rows(4096), "unfused")
    near = tuned(db, rows(32), "xla-2022")
    served = autofuse.compile(rows(16), device="cpu", db=db)
    assert served.origin == f"moved from {digest(rows(32))[:12]}"
    assert served.candidate.plan == near.plan
    far = autofuse.compile(rows(8192), device="cpu", db=db)
    assert len(far.candidate.plan.groups) > len(near.plan.groups)
    assert autofuse.compile(rows(32), device="cpu", db=db).origin == "best (xla-2022)"
    other = autofuse.compile(rows(16, fn=xp.sin), device="cpu", db=db)
    assert not other.origin.startswith("moved")


def test_what_was_decided_is_not_decided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = rows(21)
    made = kept.kept_untuned(graph, KIND, None)
    monkeypatch.setattr(kept, "untuned_candidate", None)
    found = kept.kept_untuned(graph, KIND, None)
    assert (found, found.origin) == (made, made.origin)


def test_a_damaged_note_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    key = kept.kept_key("test", "0", KIND.backend.environment())
    assert kept.recalled(key) is None
    kept.keep(key, {"plan": "no plan"})
    assert kept.recalled(key) == {"plan": "no plan"}
    BuildCache().put_text(key, ".kept.json", "{")
    assert kept.recalled(key) is None
    monkeypatch.setattr(kept, "recalled", lambda _: {"plan": "no plan", "origin": ""})
    assert kept.kept_untuned(rows(22), KIND, None).origin


def test_a_second_process_compiles_and_measures_nothing(tmp_path: Path) -> None:
    pytest.importorskip("torch")  # an extra of its own
    command = [sys.executable, str(Path(__file__).with_name("support") / "second_process.py")]
    # A cache of its own: other tests may have compiled the same kernels.
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path), "AUTOFUSE_CACHE": str(tmp_path / "cache")
    }  # fmt: skip

    def counts() -> dict[str, int]:
        ended = subprocess.run(
            [*command, str(tmp_path / "t.db")], capture_output=True, text=True, env=environment
        )
        assert ended.returncode == 0, ended.stderr
        found: dict[str, int] = json.loads(ended.stdout)
        return found

    first = counts()
    assert min(first[key] for key in ("compiled", "measured", "searched")) > 0
    assert counts() == {}
