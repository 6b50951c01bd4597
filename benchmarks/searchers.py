"""Comparing searchers on recorded spaces: quality at equal search cost, and time to near the
optimum.

Quality is 0 for the expected time of one uniformly drawn plan and 1 for the least plan of all
recorded kernels. The curve of random search without a simulator in it comes from the distribution
of drawn plans: the expected least of n draws.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

from autofuse.peers.types import BenchError
from autofuse.plan.types import Candidate
from autofuse.search.space import Space
from benchmarks.replay import SEARCHERS, ReplayDevice, Trace, problem_of, replay
from benchmarks.spaces import RecordedSpace, load

WITHIN = 1.02
GRID = 32
DRAWS = 400


@dataclass(frozen=True, slots=True)
class Options:
    """`seeds` replays of each searcher; a sampler may cost `reach` times what exact needs in all,
    and ask for `max_runs` plans. `processes` replay at once. `seeded`: see `replay`."""

    seeds: int = 50
    reach: float = 12.0
    max_runs: int = 500
    processes: int = 1
    seeded: bool = False


@dataclass(frozen=True, slots=True)
class Reached:
    """Charged seconds to within 2 % of the optimum: median over seeds with quartiles (infinite
    where too few got there), how many of the seeds got there, and the median of the real seconds
    the searcher itself took until then (nan if none got there)."""

    low: float
    median: float
    high: float
    share: float
    planner_s: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Quality at each search cost of the grid: quartiles over seeds (-inf before a first plan)."""

    low: tuple[float, ...]
    median: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class SpaceResult:
    """One space. `plans`: distinct plans among DRAWS uniform draws of fusion decisions; times in
    microseconds; `analytic`: expected quality of random search at each search cost of `grid`.
    `unrecorded`: the share of proposals that the record could not answer, by searcher; where it is
    high the record says little about the samplers.
    `ratio`: exact over TPE in median seconds to within 2 %; an upper bound where TPE's median did
    not get there (`censored`); `ratio_all` adds the real seconds that the searchers themselves took
    in these replays, so it depends on the machine. `worse_at`: charges at which
    a sampler's median beats exact's."""

    name: str
    groups: int
    kernels: int
    plans: int
    optimum_us: float
    random_us: float
    limit_s: float
    grid: tuple[float, ...]
    analytic: tuple[float, ...]
    curves: Mapping[str, Curve]
    reached: Mapping[str, Reached]
    final: Mapping[str, float]
    unrecorded: Mapping[str, float]
    ratio: float
    ratio_all: float
    censored: bool
    worse_at: tuple[float, ...]


def bench_search(
    paths: Iterable[Path], options: Options, say: Callable[[str], None] = lambda text: None
) -> list[SpaceResult]:
    """Replay every searcher on every space. Raises BenchError for an unreadable space."""
    results: list[SpaceResult] = []
    for path in paths:
        results.append(bench_space(load(path), options))
        say(f"{results[-1].name}: ratio {results[-1].ratio:.3g}")
    if not results:
        raise BenchError("there is no recorded space to replay")
    return results


def bench_space(space: RecordedSpace, options: Options) -> SpaceResult:
    """All searchers on one space, exact first: what it needs says how far the others may go."""
    traces = {"exact": replays(space, "exact", endless_s(space), options)}
    near = reached_by(traces["exact"], WITHIN * space.optimum_us).median
    needed = near if math.isfinite(near) else median(t.seconds for t in traces["exact"])
    limit = max(options.reach * needed, max(t.seconds for t in traces["exact"]))
    for name in SEARCHERS:
        if name != "exact":
            traces[name] = replays(space, name, limit, options)
    return _summary(space, traces, limit)


def endless_s(space: RecordedSpace) -> float:
    """More seconds than any search of a space can be charged."""
    return 1000.0 * space.measure_s + sum(k.compile_s for k in space.kernels.values())


def replays(space: RecordedSpace, name: str, limit_s: float, options: Options) -> list[Trace]:
    """One searcher under every seed, each for at most `limit_s` accounted seconds."""
    # From the optimum on its curve is flat, and a sampler only repeats itself, slowly.
    enough = space.optimum_us * (1 + 1e-9)
    one = partial(_one, space, name, limit_s, enough, options)
    seeds = range(options.seeds)
    if options.processes == 1:
        return [one(seed) for seed in seeds]
    with ProcessPoolExecutor(options.processes) as pool:
        return list(pool.map(one, seeds))


def _one(
    space: RecordedSpace, name: str, limit_s: float, enough: float, options: Options, seed: int
) -> Trace:
    return replay(space, name, seed, limit_s, options.max_runs, enough, options.seeded)


def _summary(
    space: RecordedSpace, traces: Mapping[str, Sequence[Trace]], limit: float
) -> SpaceResult:
    values, plans = draw(space)
    best, first = space.optimum_us, sum(values) / len(values)
    scale = first - best if first > best else 1.0
    begin = min(t.improvements[0].seconds for each in traces.values() for t in each)
    steps = [(limit / begin) ** (i / (GRID - 1)) for i in range(GRID)]
    grid = tuple(begin * step for step in steps)

    def quality(us: float | None) -> float:
        return -math.inf if us is None else (first - us) / scale

    curves = {
        name: _curve([[quality(t.best_at(at)) for t in each] for at in grid])
        for name, each in traces.items()
    }
    pace = median(t.seconds / max(t.runs, 1) for t in traces["random"])
    reached = {name: reached_by(each, WITHIN * best) for name, each in traces.items()}
    tpe, exact = reached["tpe"].median, reached["exact"].median
    others = [curves[name].median for name in traces if name != "exact"]
    beaten = [
        max(each) > curves["exact"].median[i] + 1e-9
        for i, each in enumerate(zip(*others, strict=True))
    ]
    return SpaceResult(
        name=space.name,
        groups=len(space.groups),
        kernels=len(space.kernels),
        plans=plans,
        optimum_us=best,
        random_us=first,
        limit_s=limit,
        grid=grid,
        analytic=tuple(quality(expected_least(values, max(1.0, at / pace))) for at in grid),
        curves=curves,
        reached=reached,
        final={n: median(t.improvements[-1].us for t in each) for n, each in traces.items()},
        unrecorded={n: _unrecorded(each) for n, each in traces.items()},
        ratio=exact / min(tpe, limit) if math.isfinite(exact) else math.inf,
        ratio_all=_with_planner(reached["exact"], traces["exact"], limit)
        / _with_planner(reached["tpe"], traces["tpe"], limit),
        censored=not math.isfinite(tpe),
        worse_at=tuple(at for at, is_worse in zip(grid, beaten, strict=True) if is_worse),
    )


def draw(space: RecordedSpace, count: int = DRAWS) -> tuple[list[float], int]:
    """Times of uniform draws of the samplers' space, and how many different plans they were.
    Raises BenchError where none of them is recorded."""
    problem, walker, rng = problem_of(space), Space(), random.Random(0)
    device = ReplayDevice(space)
    values: list[float] = []
    plans = set()
    for _ in range(count):
        candidate = walker.propose(problem, lambda _, options: rng.choice(options)).payload
        assert isinstance(candidate, Candidate)
        answer = device.run(candidate)
        if answer.failure is None:
            values.append(sum(answer.groups))
            plans.add(candidate.plan)
    if not values:
        raise BenchError(f"no drawn plan of {space.name} is recorded")
    return values, len(plans)


def expected_least(values: Sequence[float], draws: float) -> float:
    """The expected least of so many independent draws from `values`, all equally likely."""
    ranked, n = sorted(values), len(values)
    above = [float((1 - i / n) ** draws) for i in range(n + 1)]
    return sum(v * (above[i] - above[i + 1]) for i, v in enumerate(ranked))


def quantile(values: Sequence[float], share: float) -> float:
    """The least value that at least `share` of all do not exceed: exists with infinities too."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def _curve(columns: Sequence[Sequence[float]]) -> Curve:
    low, middle, high = (tuple(quantile(c, q) for c in columns) for q in (0.25, 0.5, 0.75))
    return Curve(low, middle, high)


def reached_by(traces: Sequence[Trace], target: float) -> Reached:
    """When the traces of one searcher came down to `target` microseconds."""
    found = [t.reached(target) for t in traces]
    seconds = [math.inf if i is None else i.seconds for i in found]
    real = [i.planner_s for i in found if i is not None]
    return Reached(
        quantile(seconds, 0.25),
        quantile(seconds, 0.5),
        quantile(seconds, 0.75),
        len(real) / len(found),
        median(real) if real else math.nan,
    )


def _unrecorded(traces: Sequence[Trace]) -> float:
    asked = sum(t.runs + t.unrecorded for t in traces)
    return sum(t.unrecorded for t in traces) / max(asked, 1)


def _with_planner(reached: Reached, traces: Sequence[Trace], limit: float) -> float:
    """Charged and real seconds to the target, or to the end where the median is not there."""
    if math.isfinite(reached.median):
        return reached.median + reached.planner_s
    return limit + median(t.planner_s for t in traces)


def write_results(results: Sequence[SpaceResult], path: Path) -> None:
    """The results as JSON {"spaces": [...]}; numbers that are not finite become null."""
    text = json.dumps({"spaces": [plain(asdict(r)) for r in results]}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def plain(value: object) -> object:
    """JSON data with null for numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value
