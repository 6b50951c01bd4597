"""How far what `compile` serves without tuning is from the best plan that a short tuning finds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from autofuse.errors import AutofuseError
from autofuse.simplify import normal_form
from autofuse.tuning import tune
from autofuse.tuning.api import compare
from autofuse.tuning.plans import BEST, DEFAULT_PLAN, UNTUNED, plan_named
from autofuse.zoo import zoo_graph


@dataclass(frozen=True, slots=True)
class UntunedRow:
    """One workload: microseconds of what is served without tuning, of the default baseline's plan
    and of the best plan known, timed interleaved, and what the tuning proved (None: nothing)."""

    workload: str
    size: str
    origin: str
    untuned_us: float
    ruled_us: float
    best_us: float
    gap: float | None

    @property
    def ratio(self) -> float:
        """Untuned over tuned: 1 is as good as tuning."""
        return self.untuned_us / self.best_us


def bench_untuned(
    names: Iterable[str], size: str, budget_s: float, db: str | None,
    say: Callable[[str], object] = lambda text: None,
) -> list[UntunedRow]:  # fmt: skip
    """Tune each workload for `budget_s` seconds (0: the database knows it already), then compare.
    A workload of which some plan fails is said and left out."""
    rows = []
    for name in names:
        try:
            rows.append(_row(name, size, budget_s, db))
        except AutofuseError as error:
            say(f"{name}: {error}")
            continue
        row = rows[-1]
        say(f"{name}: {row.untuned_us:.1f} us untuned ({row.origin}), {row.best_us:.1f} tuned")
    return rows


def _row(name: str, size: str, budget_s: float, db: str | None) -> UntunedRow:
    graph = zoo_graph(name, size)
    gap = None
    if budget_s > 0:
        gap = tune(graph, name=name, device="cpu", db=db, budget_s=budget_s).gap
    found = compare(graph, device="cpu", db=db, plans=(UNTUNED, DEFAULT_PLAN, BEST)).plans
    failed = [str(row["error"]) for row in found.values() if "error" in row]
    if failed:
        raise AutofuseError(failed[0])
    untuned, ruled, best = (float(found[p]["time_us"]) for p in (UNTUNED, DEFAULT_PLAN, BEST))
    origin = plan_named(normal_form(graph), UNTUNED, device="cpu", db=db).origin
    return UntunedRow(name, size, origin, untuned, ruled, best, gap)


def mean_ratio(rows: Sequence[UntunedRow]) -> float:
    """The geometric mean of the ratios; nan for no rows."""
    if not rows:
        return math.nan
    return math.exp(math.fsum(math.log(row.ratio) for row in rows) / len(rows))
