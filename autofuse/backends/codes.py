"""Digests of the code of a plan: a stored time belongs to the text and flags that ran.

The code of a kernel is the digest of its text, before it has a name, and of everything the text is
compiled with. It is the same wherever in a plan, and in whichever plan, the kernel stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from autofuse.backends.cache import content_key
from autofuse.graph.canonical import group_digest
from autofuse.plan.schedule import Copy, Repeat, Run, Schedule, Step

CodeOf = Callable[[Run], str]


def group_codes(plan: Schedule, groups: int, code_of: CodeOf) -> tuple[str, ...]:
    """One digest (32 hex digits) for each of the `groups` groups of a scheduled plan, in order."""
    owned: list[list[Step]] = [[] for _ in range(groups)]
    for step, owner in zip(plan.steps, plan.owners, strict=True):
        if owner >= 0:
            owned[owner].append(step)
    return tuple(_steps_code(steps, code_of) for steps in owned)


def library_code(run: Run, *preparation: str) -> str:
    """The code of a library call; `preparation` is the text of whatever prepares the call."""
    digest = group_digest(run.graph, run.group.nodes, run.group.outputs)
    return content_key(["library call", digest, str(run.launch), *preparation])


def plan_code(codes: Sequence[str], runtime: str = "") -> str:
    """The digest of a whole plan, from its groups' codes in order and from `runtime`, the digest of
    what is compiled into every plan of the device ("" for nothing)."""
    return content_key(["plan", runtime, *codes])


def _steps_code(steps: Sequence[Step], code_of: CodeOf) -> str:
    match steps:
        case [Run() as run]:
            return code_of(run)
        case _:
            return content_key(_parts(steps, code_of))


def _parts(steps: Iterable[Step], code_of: CodeOf) -> Iterable[str]:
    """A re-issued loop by its trips, what it copies and the codes of its body."""
    for step in steps:
        match step:
            case Run():
                yield code_of(step)
            case Copy(_, _, nbytes):
                yield f"copy {nbytes}"
            case Repeat(trip, _, _, even, _):
                yield f"repeat {trip}"
                yield from _parts(even, code_of)
                yield "end"
