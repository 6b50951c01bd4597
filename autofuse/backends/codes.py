"""Digests of the code of a plan: a stored time belongs to the text and flags that ran.

The code of a kernel is the digest of its text, before it has a name, and of everything the text is
compiled with. It is the same wherever in a plan, and in whichever plan, the kernel stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autofuse.backends.cache import content_key
from autofuse.graph.canonical import group_digest
from autofuse.graph.types import Graph
from autofuse.plan.groups import reissued
from autofuse.plan.schedule import Run
from autofuse.plan.types import FusionGroup, LaunchConfig

CodeOf = Callable[[Run], str]


def group_code(
    graph: Graph,
    group: FusionGroup,
    launch: LaunchConfig,
    bodies: tuple[LaunchConfig, ...],
    code_of: CodeOf,
) -> str:
    """The digest (32 hex digits) of one group under its launch configuration, nothing compiled; of
    a host loop by its iterations and the codes of its body, whose groups run under `bodies`.

    Raises AutofuseError for a group that cannot be lowered."""
    if group.body is None:
        return code_of(Run(graph, group, launch, (), ()))
    body, trips = reissued(graph, group)
    # Bodies are configured one level deep, as `schedule` reads them.
    launches = bodies or (launch,) * len(group.body.groups)
    pairs = zip(group.body.groups, launches, strict=True)
    inner = (group_code(body, one, own, (), code_of) for one, own in pairs)
    return content_key(["host loop", str(trips), *inner])


def library_code(run: Run, *preparation: str) -> str:
    """The code of a library call; `preparation` is the text of whatever prepares the call."""
    digest = group_digest(run.graph, run.group.nodes, run.group.outputs)
    return content_key(["library call", digest, str(run.launch), *preparation])


def plan_code(codes: Sequence[str], runtime: str = "") -> str:
    """The digest of a whole plan, from its groups' codes in order and from `runtime`, the digest of
    what is compiled into every plan of the device ("" for nothing)."""
    return content_key(["plan", runtime, *codes])
