"""What a caller of `autofuse.compile` asks for beside the graph, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from autofuse.errors import AutofuseError

# A process that only serves has no use for plans.
if TYPE_CHECKING:
    from autofuse.plan.types import Candidate

DEFAULT, TUNE, ERROR = "default", "tune", "error"
ON_MISS = (DEFAULT, TUNE, ERROR)
BUDGET_S = 60.0
# As `plan/arithmetic.py` calls it.
DEFAULT_MATH = "default"


class PlanRequest(NamedTuple):
    """See `autofuse.compile` (`autofuse/serving/compiling.py`), whose keywords these are."""

    device: str = "auto"
    target: str = ""
    db: str | None = None
    plan: str | Candidate | None = None
    mode: str = ""
    constants: Mapping[str, Any] | None = None
    simplify: bool = True
    on_miss: str = DEFAULT
    budget_s: float = BUDGET_S
    math: str = DEFAULT_MATH
    runs: float | None = None


def check_on_miss(on_miss: str) -> None:
    """Raises AutofuseError for a word that says nothing."""
    if on_miss not in ON_MISS:
        raise AutofuseError(f"on_miss is one of {', '.join(ON_MISS)}, not '{on_miss}'")
