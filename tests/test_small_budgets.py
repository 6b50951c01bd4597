"""What tuning does with a budget that is too small for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.frontends import array_api as xp
from autofuse.frontends import spec, trace
from autofuse.plan.types import Candidate
from autofuse.records import Measurement
from autofuse.tuning import tune
from autofuse.tuning.evaluate import Evaluator
from autofuse.tuning.job.job import Job
from autofuse.tuning.plans import EXPECTED


def test_what_was_served_before_is_measured_where_the_reference_took_all_of_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = trace(lambda x, w: {"y": xp.softmax(x * w, axis=-1)}, spec((64, 96)), spec(96))
    kept: list[Measurement] = []
    started, keep = Evaluator.start, Job.keep

    def start(self: Evaluator, *given: Candidate) -> None:
        first = not self.worker.starts
        started(self, *given)
        if first:
            object.__setattr__(self.budget, "begun", self.budget.begun - 2 * self.budget.seconds)

    def noted(self: Job, record: Measurement, *lease: object) -> None:
        kept.append(record)
        keep(self, record, *lease)

    monkeypatch.setattr(Evaluator, "start", start)
    monkeypatch.setattr(Job, "keep", noted)
    tune(graph, device="cpu", db=str(tmp_path / "t.db"), budget_s=600, baselines=("unfused",))
    timed = {record.origin for record in kept if record.timing is not None}
    assert timed >= {EXPECTED, "unfused"}
