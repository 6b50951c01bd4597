"""A dozen planted faults through the real worker; `scripts/mutation_check` plants 600."""

from __future__ import annotations

from autofuse.tuning.plans import fused_candidate
from benchmarks.mutation_check import Outcome, Subject, check_subject, graphs, share_refused
from search_spaces import CpuLaunchSpace

FAULTS = 14


def test_planted_faults_are_refused() -> None:
    graph = graphs()["relu"]
    subject = Subject("relu", graph, fused_candidate(graph, CpuLaunchSpace()))
    found = check_subject(subject, FAULTS, seed=1)
    assert len(found) == FAULTS
    assert [o for o in found if o.verdict in ("missed", "not compiled")] == []
    assert sum(o.verdict == "refused" for o in found) >= 9


def test_only_faults_that_change_a_result_count() -> None:
    def outcomes(*verdicts: str) -> list[Outcome]:
        return [Outcome("s", "k", "w", verdict, "") for verdict in verdicts]

    assert share_refused(outcomes("refused", "equivalent", "not compiled")) == 1.0
    assert share_refused(outcomes("refused", "missed")) == 0.5
