"""What the study of one program finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Dial:
    """One way to a plan: `seconds` from nothing to one that can be called, microseconds of a run,
    and the time over the best plan's with a 95 % interval. `on_front`: no dial is as fast in fewer
    seconds. `read`: the time is the one that the session measured, not one taken in turns."""

    name: str
    seconds: float
    us: float
    ratio: float
    low: float
    high: float
    on_front: bool = False
    read: bool = False


@dataclass(frozen=True, slots=True)
class RulePrice:
    """A planner's plan over its plan without one rule (`rule` "" for all that can be off), with a
    95 % interval: above 1 the rule costs time on this program."""

    planner: str
    rule: str
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class SpeedupFactor:
    """A factor of the whole speed-up, with a 95 % interval."""

    what: str
    factor: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Crossing:
    """From how many runs on the searched plan costs less than the one `over` which it is held, its
    seconds counted, with the interval that their ratio's gives; None: never."""

    over: str
    runs: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class ProgramStudy:
    """The study of one program. `unchanged` counts the rules of a planner without which its plan is
    the same; `left_out` names what was not timed, and why; times are of the state `cache`."""

    name: str
    digest: str
    nodes: int
    device: str
    cache: str
    budget_s: float
    spent_s: float
    dials: tuple[Dial, ...]
    prices: tuple[RulePrice, ...]
    unchanged: Mapping[str, int]
    parts: tuple[SpeedupFactor, ...]
    crossings: tuple[Crossing, ...]
    left_out: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Plain data, numbers unrounded."""
        told = asdict(self)
        told["graph"] = {"digest": told.pop("digest"), "nodes": told.pop("nodes")}
        return told
