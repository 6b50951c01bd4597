"""Decisions as data: groups, plans, launch configurations and candidates.

Node numbers refer to the graph in canonical order (`autofuse.graph.canonical`), so that equal
graphs written differently share plans.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from autofuse.graph.types import Value
from autofuse.ops.types import AutofuseError

Setting = int | str | bool


class PlanError(AutofuseError):
    """A plan that does not fit its graph, or that no kernel can realise."""


@dataclass(frozen=True, slots=True)
class FusionGroup:
    """Nodes computed by ONE kernel and the values it writes, both ascending.

    Values it reads are derived (`autofuse.plan.groups`). `body` is set only on a group of one
    counted loop whose body is itself planned and re-issued every trip; None means that the
    whole loop runs inside the kernel.
    """

    nodes: tuple[int, ...]
    outputs: tuple[Value, ...]
    body: FusionPlan | None = None

    def __str__(self) -> str:
        text = f"{{{' '.join(map(str, self.nodes))} -> {' '.join(map(str, self.outputs))}}}"
        return text if self.body is None else f"{text} re-issuing {self.body}"


@dataclass(frozen=True, slots=True)
class FusionPlan:
    """Groups in the order they run. A node may be in several groups (recomputation)."""

    groups: tuple[FusionGroup, ...]

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.groups))}]"


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """Choices that do not change what a kernel computes, as sorted (parameter, setting) pairs."""

    settings: tuple[tuple[str, Setting], ...] = ()

    @staticmethod
    def of(**settings: Setting) -> LaunchConfig:
        return LaunchConfig(tuple(sorted(settings.items())))

    def __getitem__(self, key: str) -> Setting:
        return dict(self.settings)[key]

    def get(self, key: str, default: Setting) -> Setting:
        return dict(self.settings).get(key, default)

    def __str__(self) -> str:
        return ",".join(f"{k}={v}" for k, v in self.settings)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan and one LaunchConfig per group, parallel to `plan.groups`.

    A group with a body carries that body's configurations in `bodies` at the same position
    (an empty tuple elsewhere). `origin` says who proposed it and is not part of its identity.
    """

    plan: FusionPlan
    launches: tuple[LaunchConfig, ...]
    bodies: tuple[tuple[LaunchConfig, ...], ...] = ()
    origin: str = field(default="", compare=False)

    @property
    def digest(self) -> str:
        """Content hash of `to_json`, 32 hex digits."""
        return sha256(self.to_json().encode()).hexdigest()[:32]

    def to_json(self) -> str:
        """Canonical JSON text; `candidate_from_json` reads it back equal."""
        payload = {
            "plan": _plan_data(self.plan),
            "launches": [dict(c.settings) for c in self.launches],
            "bodies": [[dict(c.settings) for c in body] for body in self.bodies],
        }
        return json.dumps(payload, sort_keys=True, separators=(",", ":"))


def candidate_from_json(text: str, origin: str = "") -> Candidate:
    """Inverse of Candidate.to_json; raises PlanError on anything else."""
    try:
        data = json.loads(text)
        return Candidate(
            _plan_of(data["plan"]),
            tuple(LaunchConfig.of(**c) for c in data["launches"]),
            tuple(tuple(LaunchConfig.of(**c) for c in body) for body in data["bodies"]),
            origin,
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise PlanError(f"not a stored candidate: {error}") from error


def _plan_data(plan: FusionPlan) -> list[dict[str, Any]]:
    return [
        {
            "nodes": list(g.nodes),
            "outputs": [[v.node, v.index] for v in g.outputs],
            "body": None if g.body is None else _plan_data(g.body),
        }
        for g in plan.groups
    ]


def _plan_of(data: list[dict[str, Any]]) -> FusionPlan:
    return FusionPlan(
        tuple(
            FusionGroup(
                tuple(int(n) for n in g["nodes"]),
                tuple(Value(int(n), int(i)) for n, i in g["outputs"]),
                None if g["body"] is None else _plan_of(g["body"]),
            )
            for g in data
        )
    )
