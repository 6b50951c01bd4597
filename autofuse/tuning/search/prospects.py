"""What can be expected of plans whose kernels were not all measured: which one to measure next."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from autofuse.cost.bounds import Calibration
from autofuse.cost.expected import expected_us, has_products
from autofuse.cover import LeftS, Prepared, Ranked, k_best
from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError
from autofuse.plan.fusion.products import product_of
from autofuse.plan.types import FusionGroup
from autofuse.tuning.search.allocation import Outlook, bias_of, expected_improvement_us
from search_spaces.launch import LaunchSpace

# Plans of which most is expected when kernels not measured yet are so many deviations faster.
DEVIATIONS = (0.0, -1.0, -2.0)
# Lower bounds that a kernel is taken for where there is no time to say what to expect of it.
UNJUDGED = 3.0


def expectations(
    graph: Graph, samples: Mapping[str, FusionGroup], bounds: Mapping[str, float],
    space: LaunchSpace, calibration: Calibration, should_stop: Callable[[], bool],
) -> dict[str, float]:  # fmt: skip
    """Microseconds that each kernel is expected to take under its default launch, by key; some
    bounds where there was no time to say. Empty for a graph without products: nothing is known of
    its kernels that the bounds do not say."""
    if not has_products(graph, range(len(graph.nodes))):
        return {}
    found = {key: UNJUDGED * us for key, us in bounds.items()}
    for key, group in samples.items():
        if should_stop():
            break
        if group.body is None:
            found[key] = expected_us(graph, group, space.default(graph, group), calibration)
    return found


def is_library(graph: Graph, group: FusionGroup) -> bool:
    """Whether a library call can do all of a group."""
    return group.body is None and product_of(graph, group.nodes) is not None


@dataclass(frozen=True, slots=True)
class Prospect:
    """The outlook, the pieces of the plan of which most is expected, and of other plans of which
    something is expected, each with how much, the best first."""

    outlook: Outlook
    plan: tuple[int, ...]
    others: tuple[tuple[float, tuple[int, ...]], ...] = ()


def prospect(
    prepared: Prepared, guesses: Mapping[str, float], costs: Mapping[str, float | None],
    kinds: Mapping[str, Hashable], left_s: LeftS,
) -> Prospect:  # fmt: skip
    """What the kernels measured by now (`costs`) let expect of the others, whose times are guessed
    as `guesses` times a bias; the plan of least guesses while what is known makes no plan.

    Raises AutofuseError where the kernels that are left make none."""
    least = least_known(prepared, guesses, costs, left_s)
    incumbent = None if least is None else least.cost_us
    if incumbent is None:
        likely = k_best(prepared, {**guesses, **costs}, 1, left_s, guess=True)
        return Prospect(Outlook(), likely[0].plan if likely else ())
    bias = bias_of((kinds[k], us, guesses[k]) for k, us in costs.items() if us is not None)
    found: list[tuple[float, tuple[int, ...]]] = []
    for deviations in DEVIATIONS:
        guess = {k: bias.time_us(kinds[k], us, deviations) for k, us in guesses.items()}
        chosen = k_best(prepared, {**guess, **costs}, 1, left_s, guess=True)[0].plan
        keys = [prepared.problem.pieces[i].key for i in chosen]
        measured = sum(costs.get(key) or 0.0 for key in keys)
        others = [(kinds[key], guesses[key]) for key in keys if key not in costs]
        found.append((expected_improvement_us(incumbent, measured, others, bias), chosen))
    most: dict[frozenset[int], tuple[float, tuple[int, ...]]] = {}
    for one in sorted(found, key=lambda one: -one[0]):
        most.setdefault(frozenset(one[1]), one)
    best, *less = most.values()
    return Prospect(Outlook(incumbent, best[0]), best[1], tuple(less))


def least_known(
    prepared: Prepared, guesses: Mapping[str, float], costs: Mapping[str, float | None],
    left_s: LeftS,
) -> Ranked | None:  # fmt: skip
    """The best plan of the kernels that are known (`costs`) of those that are guessed; None where
    they make no plan."""
    try:
        found = k_best(prepared, dict.fromkeys(guesses) | dict(costs), 1, left_s)
    except AutofuseError:
        return None
    return found[0] if found else None
