"""Rule-based planners: Graph -> plan, with the rule behind every decision."""

from autofuse.baselines.base import Baseline, BaselineResult, Decision, explain
from autofuse.baselines.greedy_chains import greedy_chains
from autofuse.baselines.inductor.benchmark import inductor_benchmark
from autofuse.baselines.inductor.planner import inductor
from autofuse.baselines.nnc import nnc
from autofuse.baselines.nvfuser.planner import nvfuser
from autofuse.baselines.priority.planner import xla_2026
from autofuse.baselines.switches import variant_named
from autofuse.baselines.tensorrt.planner import tensorrt
from autofuse.baselines.tvm import tvm
from autofuse.baselines.unfused import unfused
from autofuse.baselines.xla.launch import LaunchRule, group_launch_2022, group_launch_2026
from autofuse.baselines.xla.planner import xla_2022
from autofuse.errors import AutofuseError

BASELINES: dict[str, Baseline] = {
    "unfused": unfused,
    "xla-2022": xla_2022,
    "xla-2026": xla_2026,
    "inductor": inductor,
    "inductor-benchmark": inductor_benchmark,
    "tvm": tvm,
    "nnc": nnc,
    "nvfuser": nvfuser,
    "tensorrt": tensorrt,
    "greedy-chains": greedy_chains,
}

# How a planner's compiler launches loop kernels on a GPU, where its rules say so.
LAUNCH_RULES: dict[str, LaunchRule] = {
    "xla-2022": group_launch_2022,
    "xla-2026": group_launch_2026,
}


def is_baseline(name: str) -> bool:
    """Whether `name` is that of a rule-based planner, be it without some of its rules."""
    return name in BASELINES or ":" in name


def baseline_named(name: str) -> Baseline:
    """The planner registered as `name`, or one without some of its rules (`switches`); raises
    AutofuseError listing the known names."""
    if ":" in name:
        return variant_named(name)
    try:
        return BASELINES[name]
    except KeyError:
        known = ", ".join(BASELINES)
        raise AutofuseError(f"unknown baseline '{name}' (known: {known})") from None


__all__ = [
    "BASELINES", "LAUNCH_RULES", "Baseline", "BaselineResult", "Decision", "LaunchRule",
    "baseline_named", "explain", "is_baseline",
]  # fmt: skip
