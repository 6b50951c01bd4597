"""Headlines come from what is served and from interleaved verdicts; samples look like samples."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autofuse.commands.report_data import workload_reports
from autofuse.records import Verdict
from autofuse.report import data, html, markdown
from autofuse.report.model import WorkloadReport
from autofuse.report.overview import UNFINISHED, headline, summary
from tests.support.tuning_records import ENV, WORKLOAD, event, measurement, result
from tuning_db import Store

TIE = Verdict("unfused", 81.0, 80.4, 1.007, 0.98, 1.03, "tie")
FASTER = Verdict("unfused", 120.6, 80.4, 1.5, 1.4, 1.6, "faster")


def reported(path: Path, verdict: Verdict | None) -> WorkloadReport:
    """A session that was killed after a fast sample, and a later one that ended with a verdict."""
    with Store.open(path) as store:
        store.add_workload(WORKLOAD, "graph text", "toy", 3)
        killed = store.start_session(ENV, WORKLOAD, "exact", 0, 60.0)
        store.add_measurement(killed, ENV, measurement("base", 88.0, "baseline"))
        store.add_measurement(killed, ENV, measurement("lucky", 45.4))
        store.add_event(killed, event("lucky", 45.4, 1, 40.0, 0.1))
        if verdict is not None:
            ended = store.start_session(ENV, WORKLOAD, "exact", 1, 60.0)
            store.add_measurement(ended, ENV, measurement("good", 79.0))
            store.add_event(ended, event("good", 79.0, 1, 70.0, 0.0))
            store.add_measurement(ended, ENV, measurement("good", 80.4, "final"))
            found = replace(
                result("good", "base"), verdicts=(verdict,), baselines=(("unfused", "base"),)
            )
            store.finish_session(ended, found)
        (workload,) = store.workloads()
        (one,) = workload_reports(store, workload)
        return one


@pytest.mark.parametrize(("verdict", "said"), [(TIE, "a tie"), (FASTER, "1.5×")])
def test_the_headline_is_of_what_is_served(tmp_path: Path, verdict: Verdict, said: str) -> None:
    one = reported(tmp_path / "t.db", verdict)
    told = headline(one)
    assert "80.4" in told and said in told and "45.4" not in told
    table = summary([one])
    assert table is not None and "45.4" not in str(table) and "80.4" in str(table)
    found = json.loads(data.render_json([one], ""))["workloads"][0]
    assert found["incumbent"]["candidate"] == "good" and "45.4" not in found["headline"]
    first, last = found["sessions"]
    assert first["best_is_sample"] and not last["best_is_sample"]
    assert all(e["sample"] for e in first["events"])
    assert all(offer["run_us"] != 45.4 for offer in found["tradeoff"])
    assert "45.4" not in found["advice"]


def test_samples_look_like_samples(tmp_path: Path) -> None:
    one = reported(tmp_path / "t.db", TIE)
    for text in (markdown.render_markdown([one], ""), html.render_html([one], "")):
        assert "sample: exact (seed 0" in text and "best: exact (seed 0" not in text


def test_samples_alone_make_no_headline_figure(tmp_path: Path) -> None:
    told = headline(replace(reported(tmp_path / "t.db", None), served=None))
    assert told == UNFINISHED
