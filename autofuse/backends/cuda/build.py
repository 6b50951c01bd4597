"""CUDA text to cubins, each kernel cached by its content, several compiled at a time.

NVRTC lets go of the interpreter while it compiles, so threads are enough.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path

from autofuse.backends.base import Built, CompileError, Facts, Source, building
from autofuse.backends.cache import BuildCache, content_key
from autofuse.backends.cuda.devices import Target
from autofuse.backends.cuda.facts import CubinFacts, complaints, parse_log
from autofuse.backends.cuda.geometry import fits_at_once
from autofuse.backends.cuda.nvrtc import compile_cubin, nvrtc_version
from autofuse.backends.cuda.program import (
    Action,
    CudaProgram,
    KernelLaunch,
    LoopAction,
    WhileAction,
)
from autofuse.backends.sealed import file_content
from autofuse.limits import usable_cores
from autofuse.ops.types import Literal, TensorType
from autofuse.plan.program.bound import NOTHING_BOUND, Binding
from autofuse.records import Blame

# The report that `facts` reads. NVRTC's own cache would hide what a compile costs.
REPORT = ("--ptxas-options=-v",)
NO_CACHE = ("--no-cache",)
_FIRST_WITH_CACHE = (12, 9)


@dataclass(frozen=True, slots=True)
class CudaArtifact:
    """A built program: the cubin file of each kernel, and what `CudaProgram` says of a call."""

    target: Target
    cubins: tuple[tuple[str, Path], ...]
    actions: tuple[Action, ...]
    owners: tuple[int, ...]
    groups: int
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    constants: tuple[Literal, ...]
    workspace: int
    scratch: int
    trips: int
    facts: tuple[tuple[str, CubinFacts], ...]
    prepare: tuple[Action, ...] = ()
    binding: Binding = NOTHING_BOUND


@dataclass(frozen=True, slots=True)
class _Unit:
    """One cubin made or found."""

    name: str
    path: Path
    cost_s: float
    cached: bool
    log: str
    facts: CubinFacts


def build_flags(source: Source) -> tuple[str, ...]:
    """All flags a unit is compiled with but its architecture, which `compile_cubin` adds."""
    version = tuple(int(part) for part in nvrtc_version().split("."))
    own_cache = NO_CACHE if version >= _FIRST_WITH_CACHE else ()
    return (*source.flags, *REPORT, *own_cache)


def watched(source: Source) -> Source:
    """A unit whose kernels stop by themselves, with an error, where a thread waits for another one
    for more than two seconds: for first runs, of which a hang would cost the device."""
    return replace(source, flags=(*source.flags, "-DAF_WATCHDOG"))


def cubin_key(source: Source, target: Target) -> str:
    """What names a cubin: its text, flags, architecture and compiler."""
    flags = build_flags(source)
    return content_key(
        ["whole cubin, notes", nvrtc_version(), target.code_for, *flags, source.text]
    )


def build_cuda(
    program: CudaProgram, cache: BuildCache | None = None, parallel: int | None = None, *,
    timeout_s: float = math.inf, clock: Callable[[], float] = time.perf_counter,
) -> Built[CudaArtifact]:  # fmt: skip
    """Build `program`, or find it built; `parallel` units at a time (default: one a core). No unit
    is begun after `timeout_s` seconds, but NVRTC cannot be stopped within one.

    Raises CompileError with the compiler's words or when time is up, CompilerMissing without
    NVRTC."""
    store, started = cache or BuildCache(), clock()

    def check_time() -> None:
        if clock() - started >= timeout_s:
            text = f"compiling the program took more than {timeout_s:.3g} s"
            raise CompileError(text, Blame.MACHINE)

    workers = max(1, min(parallel or usable_cores(), len(program.sources)))
    with building("the program"), ThreadPoolExecutor(workers) as pool:
        units = list(
            pool.map(lambda s: _compile(s, program.target, store, check_time), program.sources)
        )
    facts = {unit.name: unit.facts for unit in units}
    for launch in _launches((*program.prepare, *program.actions)):
        _check_fits(launch, facts[launch.symbol], program.target)
    return Built(
        cuda_artifact(program, {unit.name: unit.path for unit in units}, facts),
        compile_s=sum(unit.cost_s for unit in units),
        spent_s=clock() - started,
        cached_objects=sum(unit.cached for unit in units),
        log="\n".join(unit.log for unit in units if unit.log),
        facts=tuple(group_facts(program, facts)),
    )


def cuda_artifact(
    program: CudaProgram, cubins: Mapping[str, Path], facts: Mapping[str, CubinFacts]
) -> CudaArtifact:
    """A program with the cubins of its kernels, and what the compiler said of each."""
    return CudaArtifact(
        target=program.target,
        cubins=tuple(cubins.items()),
        actions=program.actions,
        owners=program.owners,
        groups=program.groups,
        inputs=program.inputs,
        outputs=program.outputs,
        constants=program.constants,
        workspace=program.workspace,
        scratch=program.scratch,
        trips=program.trips,
        facts=tuple(sorted(facts.items())),
        prepare=program.prepare,
        binding=program.binding,
    )


def group_facts(program: CudaProgram, facts: dict[str, CubinFacts]) -> Iterator[Facts]:
    """Of each group the facts of its kernel; nothing for library calls and host loops."""
    for group in range(program.groups):
        owned = (a for a, o in zip(program.actions, program.owners, strict=True) if o == group)
        launches = {launch.symbol: launch for launch in _launches(owned)}
        if len(launches) == 1:
            ((symbol, launch),) = launches.items()
            shape = launch.geometry
            yield facts[symbol].named(program.target, shape.block, shape.shared)
        else:
            yield ()


def _check_fits(launch: KernelLaunch, facts: CubinFacts, target: Target) -> None:
    """What only the compiler's report tells: static shared memory, and blocks that wait."""
    shape = launch.geometry
    shared = shape.shared + facts.shared
    if shared > target.shared_per_block:
        raise CompileError(
            f"a block needs {shared} bytes of shared memory, more than the "
            f"{target.shared_per_block} of {target}"
        )
    if shape.cooperative and not fits_at_once(shape, target, facts.registers, facts.shared):
        raise CompileError(
            f"{shape.grid} blocks wait for each other, but with {facts.registers} registers a "
            f"thread {target} does not hold them all"
        )


def _launches(actions: Iterable[Action]) -> Iterator[KernelLaunch]:
    for action in actions:
        if isinstance(action, KernelLaunch):
            yield action
        elif isinstance(action, LoopAction | WhileAction):
            yield from _launches(chain(*action.turns))


def _compile(
    source: Source, target: Target, cache: BuildCache, check_time: Callable[[], None]
) -> _Unit:
    key = cubin_key(source, target)
    known = _recall(source.name, cache, key)
    if known is not None:
        return known
    check_time()
    begun = time.perf_counter()
    cubin, log = compile_cubin(source.text, target.code_for, build_flags(source))
    cost_s = time.perf_counter() - begun
    facts = parse_log(log).get(source.name)
    if facts is None:
        raise CompileError(f"NVRTC compiled no kernel '{source.name}': {log or 'an empty log'}")
    path = cache.put(key, ".cubin", cubin)
    unit = _Unit(source.name, path, cost_s, False, complaints(log), facts)
    digest = sha256(cubin).hexdigest()
    note = {"compile_s": cost_s, "log": unit.log, "facts": asdict(facts), "sha256": digest}
    cache.put_text(key, ".json", json.dumps(note))
    return unit


def _recall(name: str, cache: BuildCache, key: str) -> _Unit | None:
    """What is cached under `key`; a damaged note is a miss, and so is a cubin that is not the one
    that was made."""
    found = cache.find(key, ".cubin", ".json")
    if found is None:
        return None
    try:
        note = json.loads(found[1].read_text(encoding="utf-8"))
        file_content(found[0], str(note["sha256"]))
        facts = CubinFacts(**{k: int(v) for k, v in note["facts"].items()})
        return _Unit(name, found[0], float(note["compile_s"]), True, str(note["log"]), facts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
