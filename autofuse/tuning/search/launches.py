"""Launch configurations of one kernel: what was timed, what to try next, and their stored text."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError
from autofuse.plan.parameters import IMPL
from autofuse.plan.stored import stored_launch
from autofuse.plan.types import FusionGroup, LaunchConfig
from autofuse.search import make_searcher
from autofuse.search.protocol import Chooser, Outcome, Proposal, Searcher
from search_spaces.launch import LaunchSpace
from search_spaces.tile_facts import TILE_PARAMETERS

# Proposals of a sampler that may repeat what is known before it is asked no more.
PATIENCE = 16
# What is inside of a stored configuration: no parameter has this name.
_INNER = "inner"
# Configurations that are walked through at most when a sampler finds no new one.
WALKED = 1024


@dataclass
class KernelTimes:
    """What is known of one kernel (all pieces of one key): microseconds by launch configuration,
    and the configurations that do not work. `failed`: nothing is known of it but a failure.
    `settled`: it has been through its space."""

    us: dict[LaunchConfig, float] = field(default_factory=dict)
    bad: set[LaunchConfig] = field(default_factory=set)
    failed: bool = False
    settled: bool = False
    searcher: Searcher | None = None

    @property
    def first_us(self) -> float:
        """Its time under the first configuration; only for a kernel that was measured."""
        return next(iter(self.us.values()))

    @property
    def best(self) -> tuple[float, LaunchConfig]:
        """The least time and its configuration; only for a kernel that was measured."""
        launch = min(self.us, key=lambda c: (self.us[c], str(c)))
        return self.us[launch], launch

    def has_tried(self, launch: LaunchConfig) -> bool:
        """Whether it is known how long this configuration takes, or that it does not work."""
        return launch in self.us or launch in self.bad


@dataclass(frozen=True)
class LaunchProblem:
    """The launch configurations of one kernel as a searcher sees them."""

    graph: Graph
    group: FusionGroup
    space: LaunchSpace

    def seeds(self) -> Sequence[Mapping[str, int | str | bool]]:
        """The default, then what differs from it in one setting: settings act nearly independently
        of each other, so these tell a sampler most. Whoever may compute a product or a convolution
        does it once; settings of tiles follow, which decide how fast a product is. The setting
        asked first, how widely a kernel is spread, is changed last: its default follows from the
        work there is."""
        others: list[tuple[int, list[dict[str, int | str | bool]]]] = []

        def default(name: str, options: tuple[int | str | bool, ...]) -> int | str | bool:
            parameter = parameter_of(name)
            competing = parameter == IMPL.name
            rank = 0 if competing else 1 if parameter in TILE_PARAMETERS else 2
            others.append((rank, [{name: o} for o in options[1 : None if competing else 2]]))
            return options[0]

        self.propose(default)
        changes = sorted(others[1:], key=lambda other: other[0]) + others[:1]
        return [{}, *chain.from_iterable(change for _, change in changes)]

    def propose(self, choose: Chooser) -> Proposal:
        """One configuration; its key is its canonical text."""
        asked: dict[str, int | str | bool] = {}

        def once(name: str, options: tuple[int | str | bool, ...]) -> int | str | bool:
            if name not in asked:
                asked[name] = choose(name, options)
            return asked[name]

        launch = self.space.choose(self.graph, self.group, once, "k")
        return Proposal(str(launch), tuple(asked.items()), launch)


@dataclass(frozen=True)
class Trial:
    """A configuration to time, and who is to be told how long it took."""

    searcher: Searcher
    proposal: Proposal
    launch: LaunchConfig

    def tell(self, us: float | None) -> None:
        """`us`: microseconds, None for a failure."""
        self.searcher.tell(self.proposal, Outcome(None, 1.0) if us is None else Outcome(us))


def proposals(problem: LaunchProblem) -> Iterator[Proposal]:
    """Every configuration: the default, then those that differ in ever more settings."""
    pending: deque[dict[str, int | str | bool]] = deque([{}])
    while pending:
        fixed = pending.popleft()

        def choose(
            name: str, options: tuple[int | str | bool, ...],
            fixed: dict[str, int | str | bool] = fixed,
        ) -> int | str | bool:  # fmt: skip
            if name not in fixed:
                pending.extend({**fixed, name: option} for option in options[1:])
                fixed[name] = options[0]
            return fixed[name]

        yield problem.propose(choose)


def next_trial(
    kernel: KernelTimes,
    problem: LaunchProblem,
    seed: int,
    waiting: Collection[LaunchConfig] = (),
) -> Trial | None:
    """The next configuration of a kernel that was never tried and is not `waiting` to be, or None.

    Asked of a sampler as long as that has new ones to offer, then one by one."""
    if kernel.searcher is None:
        kernel.searcher = make_searcher("optuna", seed, {})
    for _ in range(PATIENCE):
        proposal = kernel.searcher.ask(problem)
        if proposal is None:
            break
        launch = proposal.payload
        assert isinstance(launch, LaunchConfig)
        trial = Trial(kernel.searcher, proposal, launch)
        if launch in waiting:  # who waits is told
            continue
        if not kernel.has_tried(launch):
            return trial
        trial.tell(kernel.us.get(launch))
    for proposal in islice(proposals(problem), WALKED):
        launch = proposal.payload
        assert isinstance(launch, LaunchConfig)
        if not kernel.has_tried(launch) and launch not in waiting:
            return Trial(kernel.searcher, proposal, launch)
    kernel.settled = not waiting
    return None


def parameter_of(question: str) -> str:
    """The launch parameter that a question of a launch space is about: it asks for
    PREFIX.KIND.PARAMETER.OPTIONS, or for a name of its own."""
    return question.split(".")[-2] if "." in question else question


def adopted(graph: Graph, group: FusionGroup, space: LaunchSpace, of: LaunchConfig) -> LaunchConfig:
    """The default configuration of a group, with those settings of another kernel's that it is
    offered."""
    wanted = dict(of.settings)

    def choose(name: str, options: tuple[int | str | bool, ...]) -> int | str | bool:
        setting = wanted.get(parameter_of(name))
        # 1 and True are equal and not the same setting.
        same = (o for o in options if o == setting and type(o) is type(setting))
        return next(same, options[0])

    return space.choose(graph, group, choose, "")


def launch_text(launch: LaunchConfig) -> str:
    """A configuration as the database keeps it: JSON, so that types survive."""
    return json.dumps(_launch_data(launch), sort_keys=True)


def _launch_data(launch: LaunchConfig) -> dict[str, Any]:
    own: dict[str, Any] = dict(launch.settings)
    return own | {_INNER: [_launch_data(one) for one in launch.inner]} if launch.inner else own


def launch_of(text: str) -> LaunchConfig:
    """Inverse of launch_text, which names of former versions are mapped to present ones in; raises
    AutofuseError on anything else."""
    try:
        return _stored(json.loads(text))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise AutofuseError(f"not a stored launch configuration: {text[:80]!r}") from error


def _stored(data: dict[str, Any]) -> LaunchConfig:
    inner = tuple(_stored(one) for one in data.pop(_INNER, ()))
    return replace(stored_launch(data), inner=inner)
