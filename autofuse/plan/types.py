"""Decisions as data: groups, plans, launch configurations and candidates.

Node numbers refer to the graph in canonical order (`autofuse.graph.canonical`), so that equal
graphs written differently share plans.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import Any

from autofuse.graph.types import Value
from autofuse.ops.types import AutofuseError
from autofuse.plan.parameters import LaunchConfig, Setting
from autofuse.plan.stored import stored_launch

__all__ = [
    "Candidate", "FusionGroup", "FusionPlan", "LaunchConfig", "LoopBody", "PlanError", "Setting",
    "candidate_from_json",
]  # fmt: skip


# Limits of what is stored, which may be anybody's: characters of a candidate and of a message, the
# number of a node, and iterations of a loop that are chained.
_MOST_TEXT, _MOST_SAID, _MOST_NUMBER, _MOST_UNROLLED = 1 << 24, 200, 1 << 24, 1 << 12


class PlanError(AutofuseError):
    """A plan that does not fit its graph, or that no kernel can realise."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nodes cannot be one kernel: the rule's name and a sentence."""

    rule: str
    reason: str

    def __str__(self) -> str:
        return f"[{self.rule}] {self.reason}"


@dataclass(frozen=True, slots=True)
class FusionGroup:
    """Nodes computed by ONE kernel and the values it writes, both ascending.

    Values it reads are derived (`autofuse.plan.fusion.groups`). `body` is set only on a group of
    one counted loop whose body is itself planned and run by the host every iteration; None means
    that the whole loop runs inside the kernel. With `unroll` k > 1 the body plan is one of k
    iterations chained (`autofuse.graph.surgery.unroll`) and is run by the host every k iterations.
    `overwrites` are values it reads whose memory its results take
    (`autofuse.plan.fusion.overwriting`): a schedule says so, a plan does not. Raises PlanError for
    a factor below 1 or one without a body."""

    nodes: tuple[int, ...]
    outputs: tuple[Value, ...]
    body: FusionPlan | None = None
    unroll: int = 1
    overwrites: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        if self.unroll == 1:
            return
        if self.unroll < 1:
            raise PlanError(f"a loop cannot be unrolled by {self.unroll}")
        if self.body is None:
            raise PlanError(f"group {self} is unrolled by {self.unroll}, but re-issues no body")

    def __str__(self) -> str:
        text = f"{{{' '.join(map(str, self.nodes))} -> {' '.join(map(str, self.outputs))}}}"
        if self.body is None:
            return text
        times = "" if self.unroll == 1 else f"{self.unroll} trips at once by "
        return f"{text} re-issuing {times}{self.body}"


@dataclass(frozen=True, slots=True)
class FusionPlan:
    """Groups in the order they run. A node may be in several groups (recomputation)."""

    groups: tuple[FusionGroup, ...]

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.groups))}]"


@dataclass(frozen=True, slots=True)
class LoopBody:
    """How a loop may be run by the host: the plan of its body, or of `unroll` iterations
    chained."""

    plan: FusionPlan
    unroll: int = 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan and one LaunchConfig per group, parallel to `plan.groups`.

    `origin` says who proposed it and is not part of its identity.
    """

    plan: FusionPlan
    launches: tuple[LaunchConfig, ...]
    origin: str = field(default="", compare=False)

    @property
    def digest(self) -> str:
        """Content hash of `to_json`, 32 hex digits."""
        return sha256(self.to_json().encode()).hexdigest()[:32]

    @property
    def all_launches(self) -> tuple[LaunchConfig, ...]:
        """The configurations of all kernels, those of loop bodies among them."""
        return tuple(one for launch in self.launches for one in launch.everywhere())

    def to_json(self) -> str:
        """Canonical JSON text; `candidate_from_json` reads it back equal. What is inside of a
        configuration stands in one row, each before what is inside of it."""
        inside = [[one for each in c.inner for one in each.everywhere()] for c in self.launches]
        payload = {
            "plan": _plan_data(self.plan),
            "launches": [dict(c.settings) for c in self.launches],
            "bodies": [[dict(one.settings) for one in row] for row in inside],
        }
        return json.dumps(payload, sort_keys=True, separators=(",", ":"))


def candidate_from_json(text: str, origin: str = "") -> Candidate:
    """Inverse of Candidate.to_json; raises PlanError on anything else.

    Launch parameters that have been renamed since are read under their present names."""
    try:
        if len(text) > _MOST_TEXT:
            raise ValueError(f"it has more than {_MOST_TEXT} characters")
        data = json.loads(text)
        plan = _plan_of(data["plan"])
        rows = data["bodies"] or [[]] * len(plan.groups)
        launches = tuple(
            _whole_launch(group, stored_launch(own), [stored_launch(c) for c in row])
            for group, own, row in zip(plan.groups, data["launches"], rows, strict=True)
        )
        return Candidate(plan, launches, origin)
    except RecursionError:
        raise PlanError("not a stored candidate: it is nested too deeply") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise PlanError(f"not a stored candidate: {str(error)[:_MOST_SAID]}") from error


def _launch_count(plan: FusionPlan) -> int:
    return sum(1 if g.body is None else 1 + _launch_count(g.body) for g in plan.groups)


def _whole_launch(
    group: FusionGroup, own: LaunchConfig, row: Sequence[LaunchConfig]
) -> LaunchConfig:
    """A group's configuration with those inside it, out of one row of them.

    A row of one for each group of the body is what was stored when the loops in it had none of
    their own. Raises ValueError for a row of any other length."""
    if group.body is None or not row:
        if row:
            raise ValueError(f"{group} has no body to be configured")
        return own
    flat = len(row) == len(group.body.groups)
    if not flat and len(row) != _launch_count(group.body):
        raise ValueError(f"{len(row)} launch configurations for {_launch_count(group.body)}")
    rest, inner = iter(row), []
    for each in group.body.groups:
        first = next(rest)
        count = 0 if flat or each.body is None else _launch_count(each.body)
        inner.append(_whole_launch(each, first, tuple(islice(rest, count))))
    return LaunchConfig(own.settings, tuple(inner))


def _plan_data(plan: FusionPlan) -> list[dict[str, Any]]:
    return [_group_data(group) for group in plan.groups]


def _group_data(group: FusionGroup) -> dict[str, Any]:
    data: dict[str, Any] = {
        "nodes": list(group.nodes),
        "outputs": [[v.node, v.index] for v in group.outputs],
        "body": None if group.body is None else _plan_data(group.body),
    }
    # Left out where it says nothing, so that plans without it keep their digest.
    return data if group.unroll == 1 else data | {"unroll": group.unroll}


def _plan_of(data: list[dict[str, Any]]) -> FusionPlan:
    return FusionPlan(
        tuple(
            FusionGroup(
                tuple(_whole(n) for n in g["nodes"]),
                tuple(Value(_whole(n), _whole(i)) for n, i in g["outputs"]),
                None if g["body"] is None else _plan_of(g["body"]),
                _factor_of(g.get("unroll", 1)),
            )
            for g in data
        )
    )


def _whole(data: Any, most: int = _MOST_NUMBER) -> int:
    if type(data) is not int or not 0 <= data <= most:
        raise TypeError(f"{ascii(data)[:_MOST_SAID]} is no whole number up to {most}")
    return data


def _factor_of(data: Any) -> int:
    return _whole(data, _MOST_UNROLLED)
