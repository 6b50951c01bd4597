"""Rule-based planners: Graph -> plan, with the rule behind every decision."""

from autofuse.baselines.base import Baseline, BaselineResult, Decision, explain
from autofuse.baselines.unfused import unfused
from autofuse.baselines.xla_2022 import xla_2022
from autofuse.errors import AutofuseError

BASELINES: dict[str, Baseline] = {
    "unfused": unfused,
    "xla-2022": xla_2022,
}


def baseline_named(name: str) -> Baseline:
    """The planner registered as `name`; raises AutofuseError listing the known names."""
    try:
        return BASELINES[name]
    except KeyError:
        known = ", ".join(BASELINES)
        raise AutofuseError(f"unknown baseline '{name}' (known: {known})") from None


__all__ = ["BASELINES", "Baseline", "BaselineResult", "Decision", "baseline_named", "explain"]
