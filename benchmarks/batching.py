"""Many plans in one build: compiler start-up and the prelude are paid once for all of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autofuse.backends.base import Artifact, Program, Source
from autofuse.backends.cache import BuildCache
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cpu.backend import program
from autofuse.graph.types import Graph
from autofuse.kernel.text.dialects import C
from autofuse.plan.types import Candidate


@dataclass(frozen=True)
class Case:
    """A plan of a graph to be run, and what is shown when it fails."""

    graph: Graph
    candidate: Candidate
    label: str


def at_level(source: Source, level: str) -> Source:
    """A source under another level of optimisation than the one users get: vectors are asked for
    in a kernel's text, and whether that is right shows at any."""
    return replace(source, flags=tuple(level if f == "-O3" else f for f in source.flags))


def build(cases: Sequence[Case], level: str = "-O1") -> list[Artifact]:
    """One artifact per case, all in one library; each keeps the entry that `program` wrote."""
    return build_programs([program(case.graph, case.candidate) for case in cases], level)


def build_programs(
    programs: Sequence[Program], level: str = "-O1", more: tuple[str, ...] = (),
    cache: BuildCache | None = None,
) -> list[Artifact]:  # fmt: skip
    """One artifact per program, all in one library; `more` are further flags of each kernel.

    Raises CompileError."""
    kernels: dict[tuple[str, ...], dict[str, str]] = {}
    entries: dict[str, list[str]] = {}
    for at, made in enumerate(programs):
        for source in made.sources:
            if source.name == "entry":
                head, own = _entry(source.text, made.entry, at)
                # What has types of its own is a unit of its own.
                place = f"{head}/* {at} */\n" if "\ntypedef " in own else head
                entries.setdefault(place, []).append(own)
                continue
            if source.head:
                flags = (*at_level(source, level).flags, *more)
                kernels.setdefault(flags, {})[source.name] = source.text
    sources = [
        Source(f"kernels{k}", "\n".join([C.prelude, *texts.values()]), flags)
        for k, (flags, texts) in enumerate(sorted(kernels.items()))
    ]
    sources += [
        Source(f"entries{k}", "\n".join([head, *owns]), ("-O0",))
        for k, (head, owns) in enumerate(entries.items())
    ]
    whole = Program(tuple(sources), f"{programs[0].entry}_0", (), ())
    built = compile_program(whole, cache, parallel=1).artifact
    return [
        replace(
            built, entry=f"{p.entry}_{at}", inputs=p.inputs, outputs=p.outputs,
            constants=p.constants, workspace=p.workspace, calls=p.calls, binding=p.binding,
        )
        for at, p in enumerate(programs)
    ]  # fmt: skip


def _entry(text: str, name: str, at: int) -> tuple[str, str]:
    """What an entry has in common with others, and the rest of it: there, what it defines is
    renamed, so that one unit holds many."""
    end = text.index("\n", text.index("\ntypedef void (*af_parallel)") + 1)
    head, own = text[:end], text[end:]
    defined = re.findall(r"^\w[\w *]*?(\w+)\([^;]*\)\n?\{", own, re.M)
    names = {n for n in defined if not n.startswith(name)} | {"AF_IN", "AF_CONST", "AF_OUT"}
    own = re.sub(rf"\b({'|'.join(sorted(names))})\b", rf"\1_{at}", own)
    return head, re.sub(rf"\b{name}(_profile|_prepare)?\b", rf"{name}_{at}\1", own)
