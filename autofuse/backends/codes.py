"""Digests of the code of a plan: a stored time belongs to the text and flags that ran.

The code of a kernel is the digest of its text, before it has a name, and of everything the text is
compiled with. It is the same wherever in a plan, and in whichever plan, the kernel stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256

from autofuse.backends.cache import content_key
from autofuse.graph.canonical import group_digest, subgraph
from autofuse.graph.types import Graph
from autofuse.ops.spec import Family
from autofuse.plan.fusion.groups import reads
from autofuse.plan.fusion.overwriting import in_place
from autofuse.plan.program.schedule import Copy, Ref, Repeat, Run, Step, While, schedule
from autofuse.plan.program.splitting import splitting_of
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig

CodeOf = Callable[[Run], str]


def group_code(
    graph: Graph,
    group: FusionGroup,
    launch: LaunchConfig,
    code_of: CodeOf,
) -> str:
    """The digest (32 hex digits) of one group under its launch configuration, nothing compiled; of
    a host loop by its iterations and the codes of its body.

    Raises AutofuseError for a group that cannot be lowered."""
    if group.body is None:
        # Arrays of a plan lie on boundaries; only rows of a stacked result may not.
        reading, writing = (len(v) for v in (reads(graph, group.nodes), group.outputs))
        place, own = Ref("work"), in_place(graph, group)
        split = splitting_of(graph, group, launch)
        if split is not None:
            there = dict.fromkeys(reads(graph, group.nodes), place)
            return content_key(
                [
                    "split",
                    *map(
                        code_of, split.runs(there, (place,) * len(split.parts), (place,) * writing)
                    ),
                ]
            )
        return code_of(Run(graph, own, launch, (place,) * reading, (place,) * writing))
    alone, _ = subgraph(graph, group.nodes, group.outputs)
    loops = (n for n, inner in enumerate(alone.nodes) if inner.spec.family is Family.CONTROL)
    (node,) = loops
    outputs = tuple(dict.fromkeys(sorted(alone.outputs)))
    plan = FusionPlan((replace(group, nodes=(node,), outputs=outputs),))
    steps = schedule(alone, Candidate(plan, (launch,))).steps
    return content_key(["host loop", *_parts(steps, code_of)])


def _parts(steps: Iterable[Step], code_of: CodeOf) -> Iterator[str]:
    """A host loop by its iterations, what it copies and the codes of its body."""
    for step in steps:
        match step:
            case Run():
                yield code_of(step)
            case Copy(_, _, nbytes):
                yield f"copy {nbytes}"
            case Repeat(trip=trip, turns=turns):
                yield f"repeat {trip}{' in one' * step.resident}"
                yield from _parts(turns[0], code_of)
                yield "end"
            case While(trip=trip, turns=turns, flags=flags, ends=ends):
                yield f"while {flags} up to {trip}"
                yield from _parts((*turns[0], *ends[0]), code_of)
                yield "end"


def library_code(run: Run, *preparation: str) -> str:
    """The code of a library call; `preparation` is the text of whatever prepares the call."""
    digest = group_digest(run.graph, run.group.nodes, run.group.outputs)
    return content_key(["library call", digest, str(run.launch), *preparation])


def plan_code(codes: Sequence[str], runtime: str = "") -> str:
    """The digest of a whole plan, from its groups' codes in order and from `runtime`, the digest of
    what is compiled into every plan of the device ("" for nothing)."""
    return content_key(["plan", runtime, *codes])


def named(text: str, flags: Iterable[str]) -> tuple[str, str]:
    """A name that follows from the content of a kernel's text, and the text under that name."""
    # One text under two sets of flags is two kernels: their symbols must differ.
    identity = " ".join([*flags, text])
    name = "k_" + sha256(identity.encode()).hexdigest()[:16]
    return name, text.replace("KERNEL(", f"{name}(", 1)
