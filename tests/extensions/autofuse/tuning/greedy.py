"""The strategy that measures one plan: whatever may be fused is."""

from autofuse.tuning.bench import Bench, Findings
from autofuse.tuning.problem import default_candidate
from search_spaces.fusion import FusionSpace
from search_spaces.launch import first_option


def greedy(bench: Bench) -> Findings:
    """Spend one measurement, if the plan fits the memory that was asked for."""
    plan = FusionSpace(bench.graph).choose(first_option)
    if not bench.fits(plan):
        return Findings(notes=("the plan that fuses most does not fit the memory",))
    record = bench.measure(default_candidate(bench.graph, plan, bench.space, "greedy"))
    return Findings(trials=1, planned=record.candidate_digest)
