"""What should be said of an exact search, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.enumerate.enumeration import Enumeration
from autofuse.enumerate.windows import Window
from autofuse.tuning.search.profiling import Kernels
from autofuse.tuning.search.regions import WHOLE_NODES

# A kernel below its lower bound matters from this fraction of the plan's time on.
TELLING = 0.01


def notes(
    enumeration: Enumeration, windows: Sequence[Window], kernels: Kernels, planned_us: float | None
) -> tuple[str, ...]:
    """How far what was proved reaches: `windows` a graph was planned by (none: as a whole), and
    microseconds of the plan that was found."""
    told = []
    if windows:
        tiles = sum(window.kind == "tile" for window in windows)
        told.append(
            f"planned in {tiles} windows of at most {WHOLE_NODES} nodes: "
            "the gap of this search is proved per window, not for the graph"
        )
    if enumeration.cut_short:
        told.append(
            f"enumeration stopped after {len(enumeration.groups)} groups: the budget was "
            "short, and the gap of this search is of these only"
        )
    below = kernels.below_bounds(TELLING * (planned_us or 0.0))
    if below:
        told.append(
            f"{len(below)} of {len(kernels.known())} kernels took as little as "
            f"{min(below.values()):.0%} of their lower bound: the calibrated peaks of this "
            "device are too low, and neither gap is proved"
        )
    return tuple(told)
