"""The tuning problem as a searcher sees it: fusion and launch choices that make a Candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from autofuse.baselines import LaunchRule
from autofuse.graph.canonical import group_digest
from autofuse.graph.types import Graph
from autofuse.patience import look
from autofuse.plan.fusion.groups import host_loop
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.search.protocol import Choices, Chooser, Option, Proposal
from search_spaces.fusion import FusionSpace
from search_spaces.launch import OWN_CHOICES, LaunchSpace


def default_candidate(graph: Graph, plan: FusionPlan, space: LaunchSpace, origin: str) -> Candidate:
    """A plan under default launch configurations."""
    return _configured(graph, plan, origin, space.default)


def ruled_candidate(
    graph: Graph, plan: FusionPlan, space: LaunchSpace, origin: str, rule: LaunchRule
) -> Candidate:
    """A plan launched as a rule says, as far as the launch space can do it."""

    def configure(graph: Graph, group: FusionGroup) -> LaunchConfig:
        launch = rule(graph, group)
        made = space.ruled(graph, group, launch.threads, launch.unroll, launch.strided)
        if group.body is None:
            return made
        body, _ = host_loop(graph, group)
        return replace(made, inner=tuple(configure(body, each) for each in group.body.groups))

    return _configured(graph, plan, origin, configure)


def _configured(
    graph: Graph, plan: FusionPlan, origin: str,
    configure: Callable[[Graph, FusionGroup], LaunchConfig],
) -> Candidate:  # fmt: skip
    launches: list[LaunchConfig] = []
    for group in plan.groups:
        look()
        launches.append(configure(graph, group))
    return Candidate(plan, tuple(launches), origin)


def count_groups(plan: FusionPlan) -> int:
    """Kernels of a plan, those of loop bodies included (a host loop is none itself)."""
    return sum(1 if g.body is None else count_groups(g.body) for g in plan.groups)


class FusionProblem:
    """Choices -> Candidate for one canonical graph and one backend's launch space.

    `baselines` are plans whose encodings are proposed first, after "fuse everything legal"."""

    def __init__(
        self, graph: Graph, launch: LaunchSpace, baselines: Mapping[str, FusionPlan]
    ) -> None:
        self.graph = graph
        self.launch = launch
        self.space = FusionSpace(graph)
        self.baselines = dict(baselines)
        self._names: dict[tuple[Graph, FusionGroup], str] = {}

    def seeds(self) -> Sequence[Mapping[str, Option]]:
        """Everything fused, then each baseline as near as the space comes to it."""
        return [{}, *(self.space.encode(plan) for plan in self.baselines.values())]

    def propose(self, choose: Chooser) -> Proposal:
        """Run the space; the key is the candidate's digest."""
        asked: dict[str, Option] = {}

        def once(name: str, options: tuple[Option, ...]) -> Option:
            if name not in asked:
                asked[name] = choose(name, options)
            return asked[name]

        plan = self.space.choose(once)

        total = count_groups(plan)

        def configure(graph: Graph, group: FusionGroup) -> LaunchConfig:
            return self.launch.choose(graph, group, once, self._prefix(graph, group, total))

        candidate = _configured(self.graph, plan, "search", configure)
        choices: Choices = tuple(asked.items())
        return Proposal(candidate.digest, choices, candidate)

    def _prefix(self, graph: Graph, group: FusionGroup, total: int) -> str:
        if total > OWN_CHOICES:
            return "all"
        known = self._names.get((graph, group))
        if known is None:
            known = group_digest(graph, group.nodes, group.outputs)[:8]
            self._names[graph, group] = known
        return known
