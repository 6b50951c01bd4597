"""The registry of simplifications: what each is called, whose rule it is, and which ops it is asked
about."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from autofuse.graph.types import Value
from autofuse.ops.spec import OpSpec, spec_of
from autofuse.simplify.draft import Draft

T = TypeVar("T")
# What a node is replaced by: one value, or one for each of its outputs; None where the rule does
# not apply. A node's own values say that it is in its normal form, whatever other rules think.
Replacement = Value | tuple[Value, ...] | None
Apply = Callable[[Draft, int], Replacement]


@dataclass(frozen=True, slots=True)
class Simplification:
    """One rule. `source` says where it is written down, `wants` whether it is asked about an op,
    and `apply(draft, node)` gives what has the same value and is nearer to the normal form, which
    `does` says in a sentence. `family` are the rules that it stands with: the file it is in. A
    `first` rule is asked before all others, and may so keep them from what it knows better."""

    name: str
    source: str
    wants: Callable[[OpSpec], bool]
    apply: Apply
    family: str
    does: str
    first: bool = False


RULES: dict[str, Simplification] = {}


def register(rule: Simplification) -> None:
    """Rules of an op are asked in the order in which they are registered."""
    if rule.name in RULES:
        raise ValueError(f"simplification '{rule.name}' is registered twice")
    RULES[rule.name] = rule


def any_of(*ops: str | Callable[[OpSpec], bool]) -> Callable[[OpSpec], bool]:
    """Whether an op has one of these names, or a predicate accepts it."""
    names = frozenset(op for op in ops if isinstance(op, str))
    classes = [op for op in ops if not isinstance(op, str)]
    if not classes:
        return lambda spec: spec.name in names
    return lambda spec: spec.name in names or any(accepts(spec) for accepts in classes)


def all_of(found: Iterable[T | None]) -> list[T] | None:
    """None where one is missing."""
    every = list(found)
    there = [each for each in every if each is not None]
    return there if len(there) == len(every) else None


def rule(
    name: str, source: str, *ops: str | Callable[[OpSpec], bool], first: bool = False
) -> Callable[[Apply], Apply]:
    """Register the decorated function for ops of these names, or those a predicate accepts."""

    def add(apply: Apply) -> Apply:
        family = apply.__module__.rpartition(".")[2]
        does = " ".join((apply.__doc__ or "").split())
        register(Simplification(name, source, any_of(*ops), apply, family, does, first))
        return apply

    return add


def rules_of(op: str) -> tuple[Simplification, ...]:
    """The rules that are asked about an op, in that order."""
    spec = spec_of(op)
    ordered = sorted(RULES.values(), key=lambda each: not each.first)
    return tuple(each for each in ordered if each.wants(spec))
