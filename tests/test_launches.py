"""Launch configurations of one kernel: what is tried first, and that everything is tried once."""

from __future__ import annotations

from autofuse.graph.canonical import canonical
from autofuse.plan.types import LaunchConfig
from autofuse.tuning.search.launches import KernelTimes, LaunchProblem, next_trial
from autofuse.zoo import zoo_graph
from benchmarks.record import settings_asked
from search_spaces import CpuLaunchSpace, FusionSpace

CPU = CpuLaunchSpace()
GRAPH = canonical(zoo_graph("softmax", "small"))
(FUSED,) = FusionSpace(GRAPH).choose(lambda _, options: options[0]).groups
PROBLEM = LaunchProblem(GRAPH, FUSED, CPU)
DEFAULT = dict(CPU.default(GRAPH, FUSED).settings)


def changed(launch: LaunchConfig) -> set[str]:
    settings = dict(launch.settings)
    return {k for k in settings.keys() | DEFAULT.keys() if settings.get(k) != DEFAULT.get(k)}


def trials(count: int) -> list[LaunchConfig]:
    kernel, found = KernelTimes({LaunchConfig.of(**DEFAULT): 9.0}), []
    while len(found) < count and (trial := next_trial(kernel, PROBLEM, 0)) is not None:
        found.append(trial.launch)
        kernel.us[trial.launch] = 10.0
        trial.tell(10.0)
    return found


def test_one_setting_is_changed_at_a_time_first_and_the_spread_last() -> None:
    asked = settings_asked(CPU, GRAPH, [FUSED])
    assert asked[0] == "threads" and {"math", "vector_bits", "stage"} <= set(asked)
    first = [changed(launch) for launch in trials(5)]
    assert first[:4] == [{"math"}, {"vector_bits"}, {"stage"}, {"ahead"}]
    assert first[4] == {"threads"} or DEFAULT["threads"] == 1


def test_every_configuration_is_tried_once() -> None:
    found = trials(10_000)
    assert len(found) == len(set(found)) and LaunchConfig.of(**DEFAULT) not in found
    # Threads only where there are several; math, vector, stage and ahead have two options.
    threads = {dict(launch.settings)["threads"] for launch in found}
    assert len(found) == 16 * len(threads) - 1


def test_the_default_comes_first() -> None:
    assert PROBLEM.seeds()[0] == {}
    assert PROBLEM.propose(lambda _, options: options[0]).payload == LaunchConfig.of(**DEFAULT)
