"""The registry of simplifications: what each is called, whose rule it is, and which ops it is asked
about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autofuse.graph.types import Value
from autofuse.ops.spec import OpSpec, spec_of
from autofuse.simplify.draft import Draft

# What a node is replaced by: one value, or one for each of its outputs; None where the rule does
# not apply. A node's own values say that it is in its normal form, whatever other rules think.
Replacement = Value | tuple[Value, ...] | None
Apply = Callable[[Draft, int], Replacement]


@dataclass(frozen=True, slots=True)
class Simplification:
    """One rule. `source` says where it is written down, `wants` whether it is asked about an op,
    and `apply(draft, node)` gives what has the same value and is nearer to the normal form. A
    `first` rule is asked before all others, and may so keep them from what it knows better."""

    name: str
    source: str
    wants: Callable[[OpSpec], bool]
    apply: Apply
    first: bool = False

    @property
    def family(self) -> str:
        """The rules that this one stands with: the file it is in."""
        return self.apply.__module__.rpartition(".")[2]


RULES: dict[str, Simplification] = {}


def rule(
    name: str, source: str, *ops: str | Callable[[OpSpec], bool], first: bool = False
) -> Callable[[Apply], Apply]:
    """Register the decorated function for ops of these names, or those a predicate accepts."""

    def wants(spec: OpSpec) -> bool:
        return any(spec.name == op if isinstance(op, str) else op(spec) for op in ops)

    def add(apply: Apply) -> Apply:
        if name in RULES:
            raise ValueError(f"simplification '{name}' is registered twice")
        RULES[name] = Simplification(name, source, wants, apply, first)
        return apply

    return add


def rules_of(op: str) -> tuple[Simplification, ...]:
    """The rules that are asked about an op, in that order."""
    spec = spec_of(op)
    ordered = sorted(RULES.values(), key=lambda each: not each.first)
    return tuple(each for each in ordered if each.wants(spec))
