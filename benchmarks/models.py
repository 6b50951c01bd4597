"""What learned kernel times are worth: how well they rank, and what they save over exact."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from autofuse.peers.types import BenchError
from autofuse.tuning.learned import Lesson, fit, rank_correlation
from benchmarks.lessons import lessons, lessons_of_others
from benchmarks.replay import PLANNERS, Trace
from benchmarks.searchers import WITHIN, Options, endless_s, plain, reached_by, replays
from benchmarks.spaces import RecordedSpace, load


@dataclass(frozen=True, slots=True)
class Effort:
    """One planner, medians over seeds: accounted seconds to within 2 % of the optimum (infinite
    where too few seeds got there) and the share of seeds that did; accounted seconds and kernels
    compiled until it ended by itself, and its last plan's time over the optimum."""

    seconds: float
    share: float
    whole_s: float
    kernels: float
    final: float


@dataclass(frozen=True, slots=True)
class ModelResult:
    """One space, its model taught `lessons` kernels of the others. Spearman rank correlation with
    the times of its `kernels`: of what the model predicts, and of their lower bounds."""

    name: str
    kernels: int
    lessons: int
    rank_correlation: float | None
    bound_rank_correlation: float | None
    exact: Effort
    model: Effort

    @property
    def ratio(self) -> float:
        """Model over exact in seconds to within 2 %; nan where exact did not get there."""
        return (
            self.model.seconds / self.exact.seconds if self.exact.seconds < math.inf else math.nan
        )

    @property
    def whole_ratio(self) -> float:
        """Model over exact in seconds until each ended by itself."""
        return self.model.whole_s / self.exact.whole_s


def bench_models(
    paths: Iterable[Path], options: Options, say: Callable[[str], None] = lambda text: None
) -> list[ModelResult]:
    """Exact and model on every space. Raises BenchError for an unreadable space or for fewer than
    two of them, AutofuseError without scikit-learn."""
    spaces = [load(path) for path in paths]
    if len(spaces) < 2:
        raise BenchError("a model needs at least two recorded spaces: one to learn from")
    results: list[ModelResult] = []
    for space, taught in zip(spaces, lessons_of_others(spaces), strict=True):
        results.append(bench_model(space, taught, options))
        say(f"{space.name}: ratio {results[-1].ratio:.3g}")
    return results


def bench_model(space: RecordedSpace, taught: Sequence[Lesson], options: Options) -> ModelResult:
    """One space, which the model has not seen."""
    own = lessons(space)
    times = [lesson.us for lesson in own]
    samples = [lesson.sample for lesson in own]
    predicted = fit(taught).predict(samples)
    efforts = {}
    for name in PLANNERS:
        traces = replays(space, name, endless_s(space), options, taught, to_end=True)
        efforts[name] = _effort(space, traces)
    return ModelResult(
        space.name,
        len(own),
        len(taught),
        rank_correlation(predicted, times),
        rank_correlation([sample.bound_us for sample in samples], times),
        **efforts,
    )


def _effort(space: RecordedSpace, traces: Sequence[Trace]) -> Effort:
    reached = reached_by(traces, WITHIN * space.optimum_us)
    last = (t.improvements[-1].us if t.improvements else math.inf for t in traces)
    return Effort(
        reached.median,
        reached.share,
        median(t.seconds for t in traces),
        median(t.compiled for t in traces),
        median(last) / space.optimum_us,
    )


def table(results: Sequence[ModelResult]) -> str:
    """One row per space."""
    rows = [
        ("space", "kernels", "lessons", "rank", "bounds", "exact", "model", "ratio",
         "exact to end", "model to end", "kernels timed", "ends at"),
        *(_row(result) for result in results),
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(text.rjust(w) for text, w in zip(r, widths, strict=True)) for r in rows]
    lines.append(
        "rank: Spearman correlation of predicted and recorded times of kernels of a space that the "
        "model has not seen, and of lower bounds; accounted seconds to within 2 % of the optimum, "
        "and until the search ended by itself (median; share of seeds that got there); kernels "
        "compiled, and the last plan over the optimum, exact / model"
    )
    return "\n".join(lines)


def _row(result: ModelResult) -> tuple[str, ...]:
    exact, model = result.exact, result.model
    return (
        result.name.removeprefix("zoo:"),
        str(result.kernels),
        str(result.lessons),
        _number(result.rank_correlation),
        _number(result.bound_rank_correlation),
        _seconds(exact),
        _seconds(model),
        _number(result.ratio),
        f"{exact.whole_s:.2f} s",
        f"{model.whole_s:.2f} s",
        f"{exact.kernels:g} / {model.kernels:g}",
        f"{exact.final:.3f} / {model.final:.3f}",
    )


def _number(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.2f}"


def _seconds(effort: Effort) -> str:
    share = "" if effort.share == 1 else f" ({effort.share:.0%})"
    return ("never" if math.isinf(effort.seconds) else f"{effort.seconds:.2f} s") + share


def write_models(results: Sequence[ModelResult], path: Path) -> None:
    """The results as JSON {"spaces": [...]}; numbers that are not finite become null."""
    rows = [asdict(r) | {"ratio": r.ratio, "whole_ratio": r.whole_ratio} for r in results]
    text = json.dumps({"spaces": [plain(row) for row in rows]}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
