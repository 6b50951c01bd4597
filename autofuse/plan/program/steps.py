"""The steps of a schedule, and the buffers that they touch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from autofuse.graph.types import Graph
from autofuse.plan.types import FusionGroup, LaunchConfig


@dataclass(frozen=True, slots=True)
class Ref:
    """Where an array is: the start of `space` ("in", "const", "out" number `index`, "held", which
    is prepared for calls, or "work"), plus `offset` bytes, plus `stride` bytes per iteration of the
    loop at nesting `level`."""

    space: str
    index: int = 0
    offset: int = 0
    level: int = 0
    stride: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """One kernel: `group` of `graph` under `launch`. Where right operands are packed beforehand it
    reads their `panels` instead (and what it does not read is UNREAD); the one that `packs` writes
    them."""

    graph: Graph
    group: FusionGroup
    launch: LaunchConfig
    reads: tuple[Ref, ...]
    writes: tuple[Ref, ...]
    panels: tuple[Ref, ...] = ()
    packs: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    source: Ref
    target: Ref
    nbytes: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """`trip` times: store the iteration number (i32) at `counter`, then do the steps of one of the
    `turns`, in rotation. A `resident` one is kernels alone, as one job or one launch."""

    trip: int
    level: int
    counter: Ref
    turns: tuple[tuple[Step, ...], ...]
    resident: bool = False


@dataclass(frozen=True, slots=True)
class While:
    """As `Repeat`, but at most `trip` times, and only as long as one of the `flags` bools at `go`
    is true, which before a turn are those of its number. Then one of `ends`: in rotation too, by
    how many iterations there were."""

    trip: int
    level: int
    counter: Ref
    turns: tuple[tuple[Step, ...], ...]
    go: tuple[Ref, ...]
    flags: int
    ends: tuple[tuple[Copy, ...], ...]


Step = Run | Copy | Repeat | While
UNREAD = Ref("unread")


def in_one(step: Step) -> Step:
    """A loop of the outermost level as one job or launch, if it is nothing but kernels."""
    if not isinstance(step, Repeat) or step.level:
        return step
    return replace(step, resident=all(isinstance(s, Run) for s in chain(*step.turns)))


def refs_of(steps: Iterable[Step]) -> Iterator[Ref]:
    """Everything that steps read or write."""
    for step in steps:
        match step:
            case Run():
                yield from (*step.reads, *step.writes, *step.panels)
            case Copy(source, target, _):
                yield from (source, target)
            case Repeat(turns=turns):
                yield from refs_of(chain(*turns))
            case While(turns=turns, go=go, ends=ends):
                yield from (*go, *refs_of(chain(*turns, *ends)))


def kernel_runs(steps: Iterable[Step]) -> list[Run]:
    """Every distinct kernel run of a schedule, loop bodies (their first turn) included."""
    found: list[Run] = []
    for step in steps:
        if isinstance(step, Run):
            found.append(step)
        elif isinstance(step, Repeat | While):
            found.extend(kernel_runs(step.turns[0]))
    return found


def launches_per_call(steps: Iterable[Step]) -> int:
    """How many kernels one call of the plan launches, copies not counted; a loop whose end data
    decide counts once."""
    total = 0
    for step in steps:
        if isinstance(step, Run):
            total += 1
        elif isinstance(step, Repeat):
            count = len(step.turns)
            for k, turn in enumerate(step.turns):
                total += (step.trip - k + count - 1) // count * launches_per_call(turn)
        elif isinstance(step, While):
            total += launches_per_call(step.turns[0])
    return total
