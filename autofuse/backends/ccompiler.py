"""C text to a shared library with the system's C compiler, each step cached by content.

Text reaches the compiler as files under names of ours; nothing passes through a shell.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from autofuse.backends.base import (
    Artifact,
    Built,
    CompileError,
    CompilerMissing,
    Program,
    Source,
    building,
)
from autofuse.backends.cache import BuildCache, content_key
from autofuse.backends.cpu.target import CpuTarget
from autofuse.backends.heads import needed_parts
from autofuse.backends.machine import isa_digest
from autofuse.backends.sealed import file_content
from autofuse.backends.toolchain import Compiler, find_compiler
from autofuse.limits import usable_cores
from autofuse.records import Blame

# (A function that a text lacks the head of is no function that returns an int.)
BASE_FLAGS = ("-std=gnu11", "-fPIC", "-fopenmp-simd", "-Werror=implicit-function-declaration")
# Units that were compiled for other programs may have a kernel twice.
LINK_FLAGS = ("-shared", "-pthread", "-Wl,-z,muldefs")
# Flags of a source that the link line has to have, too. What calls nothing of C but its functions
# for memory, clocks and mathematics finds them in the process that loads it: to look through all of
# C's library takes a linker twice as long as the rest.
THREADED, WITHOUT_LIBC = "-fopenmp", "-nostdlib"
LINK_LIBRARIES = ("-lm", "-lgcc")
# Seconds after which a compiler is taken to hang on one unit.
UNIT_LIMIT_S = 120.0
# Parts of a unit at most: they share the compiler's start-up and the reading of their head, and
# where there are many, as many units as this makes still keep all workers busy.
PER_UNIT = 24
_LOG_LINES = 8
_LOG_CHARACTERS = 4000
# What compilers say when the machine let them down, as GCC, its linker and clang spell it.
_MACHINE = re.compile(
    r"No space left on device|Cannot allocate memory|virtual memory exhausted|out of memory alloc"
    r"|(Killed|Terminated) signal terminated program|unable to execute command: Killed"
)


@dataclass(frozen=True, slots=True)
class BuildStep:
    """One file made or found: what making it costs, what was spent on it now, and its SHA-256."""

    path: Path
    cost_s: float
    cached: bool
    log: str
    digest: str


def compile_program(
    program: Program,
    cache: BuildCache | None = None,
    timeout_s: float = math.inf,
    parallel: int = 2,
    target: CpuTarget | None = None,
) -> Built[Artifact]:
    """Build `program`, or find it built; up to `parallel` units compile at the same time. It is for
    this processor, unless `target` says for which.

    Raises CompileError (with the first lines of the compiler's log, or when `timeout_s` seconds are
    over before all is built, or one unit takes UNIT_LIMIT_S; the machine's fault if it is stalled,
    full or out of memory) and CompilerMissing.
    """
    if not program.sources:
        raise CompileError("a program needs at least one source")
    started = time.perf_counter()
    workers = max(1, min(parallel, len(program.sources), usable_cores()))
    with building("the program"), ThreadPoolExecutor(workers) as pool:
        compiler, store = find_compiler(), cache or BuildCache()
        end = started + timeout_s
        keys = [_key(compiler, source, target) for source in program.sources]
        objects = {key: step for key in keys if (step := _known_object(store, key)) is not None}
        missing = [s for key, s in zip(keys, program.sources, strict=True) if key not in objects]
        for made in pool.map(
            lambda unit: _compile_unit(compiler, unit, store, end, target), _units(missing, workers)
        ):
            objects |= made
        steps = [objects[key] for key in keys]
        link = (*LINK_FLAGS, *_linked(program.sources))
        library = _link(compiler, link, keys, steps, store, end)
    steps.append(library)
    return Built(
        Artifact(
            library.path,
            program.entry,
            program.inputs,
            program.outputs,
            program.constants,
            program.workspace,
            program.calls,
            program.binding,
            program.blas,
            digest=library.digest,
        ),
        compile_s=sum(step.cost_s for step in steps),
        spent_s=time.perf_counter() - started,
        cached_objects=sum(step.cached for step in steps),
        log="\n".join(step.log for step in steps if step.log),
    )


def compile_objects(
    programs: Sequence[Program], timeout_s: float = math.inf, parallel: int = 2,
    cache: BuildCache | None = None,
) -> None:  # fmt: skip
    """Compile what several programs are made of in units that they share, for builds that follow:
    a compiler starts, and reads the head of a kernel, once for many. What fails is told by the
    build that needs it. Raises CompilerMissing."""
    end = time.perf_counter() + timeout_s
    sources = dict.fromkeys(source for program in programs for source in program.sources)
    compiler, store = find_compiler(), cache or BuildCache()
    missing = [s for s in sources if _known_object(store, _key(compiler, s, None)) is None]
    workers = max(1, min(parallel, len(missing), usable_cores()))

    def compiled(unit: tuple[Source, ...]) -> None:
        with suppress(CompileError):
            _compile_unit(compiler, unit, store, end, None)

    with building("programs"), ThreadPoolExecutor(workers) as pool:
        list(pool.map(compiled, _units(missing, workers)))


def _linked(sources: Sequence[Source]) -> list[str]:
    """Flags of sources that the link line has, too."""
    flags = {flag for source in sources for flag in source.flags}
    return [flag for flag in (THREADED, WITHOUT_LIBC) if flag in flags]


def _key(compiler: Compiler, source: Source, target: CpuTarget | None) -> str:
    """What names the object code of a source, whichever unit it was compiled in."""
    isa = isa_digest() if target is None else target.isa
    flags = _flags(source, target)
    return content_key(["object", compiler.identity, isa, *flags, source.head, source.text])


def _flags(source: Source, target: CpuTarget | None) -> tuple[str, ...]:
    given = source.flags if target is None else target.explicit(source.flags)
    return (*BASE_FLAGS, *given)


def _units(sources: Sequence[Source], workers: int) -> list[tuple[Source, ...]]:
    """Sources that are compiled together: parts of a unit, alike in size, so that all workers have
    something to do. What is a unit by itself comes first: an entry may be the longest of all, and
    would keep all but one worker waiting at the end."""
    alone = [(source,) for source in sources if not source.head]
    parts: dict[tuple[object, ...], list[Source]] = {}
    for source in sources:
        if source.head:
            parts.setdefault((source.flags, source.head), []).append(source)
    made: list[tuple[Source, ...]] = []
    for same in parts.values():
        ordered = sorted(same, key=lambda source: (-len(source.text), source.name))
        count = min(len(same), max(workers, math.ceil(len(same) / PER_UNIT)))
        made += [tuple(ordered[k::count]) for k in range(count)]
    return [*alone, *made]


def _known_object(cache: BuildCache, key: str) -> BuildStep | None:
    """The object that has the code under `key`, if there is one; each part of a unit has a note
    that names its object."""
    found = cache.find(key, ".json")
    if found is None:
        return None
    try:
        note = json.loads(found[0].read_text(encoding="utf-8"))
        unit = cache.find(str(note.get("unit", key)), ".o")
        step = (float(note["compile_s"]), True, str(note["log"]), str(note["sha256"]))
        if unit is None:
            return None
        file_content(unit[0], step[-1])
        return BuildStep(unit[0], *step)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _compile_unit(
    compiler: Compiler, unit: Sequence[Source], cache: BuildCache, end: float,
    target: CpuTarget | None,
) -> dict[str, BuildStep]:  # fmt: skip
    """The object of one unit, by the key of each of its sources, which share its cost."""
    keys = [_key(compiler, source, target) for source in unit]
    own = keys[0] if len(keys) == 1 else content_key(["unit", *keys])
    text = cache.temporary(".c")
    try:
        own_text = "\n".join(source.text for source in unit)
        head = needed_parts(unit[0].head, own_text)
        text.write_text(f"{head}\n{own_text}", encoding="utf-8")
        command = [*compiler.command, *_flags(unit[0], target), "-c", str(text)]
        made = make_file(command, cache, own, ".o", unit[0].name, _limit_s(end))
    finally:
        text.unlink(missing_ok=True)
    if len(keys) == 1:
        return {own: made}
    step = BuildStep(made.path, made.cost_s / len(keys), False, made.log, made.digest)
    told = {"compile_s": step.cost_s, "log": step.log[:_LOG_CHARACTERS], "sha256": step.digest}
    note = json.dumps({**told, "unit": own})
    for key in keys:
        cache.put_text(key, ".json", note)
    return dict.fromkeys(keys, step)


def _limit_s(end: float) -> float:
    """Seconds that a step begun now may take."""
    return max(0.0, min(UNIT_LIMIT_S, end - time.perf_counter()))


def _link(
    compiler: Compiler, flags: Sequence[str], keys: Sequence[str], objects: Sequence[BuildStep],
    cache: BuildCache, end: float,
) -> BuildStep:  # fmt: skip
    # -ffast-math stays off the link line: there it would make loading change the FPU's mode.
    key = content_key(["library", compiler.identity, *flags, *LINK_LIBRARIES, *keys])
    known = recall(cache, key, ".so")
    if known is not None:
        return known
    files = dict.fromkeys(str(step.path) for step in objects)
    command = [*compiler.command, *flags, *files, *LINK_LIBRARIES]
    return make_file(command, cache, key, ".so", "the library", _limit_s(end))


def recall(cache: BuildCache, key: str, suffix: str) -> BuildStep | None:
    """What is cached under `key`; a damaged note is a miss, and so is a file that is
    not the one that was made."""
    found = cache.find(key, suffix, ".json")
    if found is None:
        return None
    try:
        note = json.loads(found[1].read_text(encoding="utf-8"))
        digest = str(note["sha256"])
        file_content(found[0], digest)
        return BuildStep(found[0], float(note["compile_s"]), True, str(note["log"]), digest)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def make_file(
    command: Sequence[str], cache: BuildCache, key: str, suffix: str, what: str, timeout_s: float
) -> BuildStep:
    """Run a compiler into a temporary file, then publish it with its cost beside it."""
    if timeout_s <= 0:
        raise CompileError(f"no time was left to compile {what}", Blame.MACHINE)
    output = cache.temporary(suffix)
    try:
        started = time.perf_counter()
        code, log = _run([*command, "-o", str(output)], timeout_s, what)
        cost = time.perf_counter() - started
        # Messages are kept and shown elsewhere: whose folder it was says nothing there.
        log = log.replace(f"{output.parent}{os.sep}", "")
        if code != 0:
            raise CompileError(f"compiling {what} failed: {_reason(code, log)}", _blame(code, log))
        # The note first: a file whose note is missing would be made again.
        digest = sha256(output.read_bytes()).hexdigest()
        note = {"compile_s": cost, "log": log[:_LOG_CHARACTERS], "sha256": digest}
        cache.put_text(key, ".json", json.dumps(note))
        return BuildStep(cache.publish(output, key, suffix), cost, False, log, digest)
    finally:
        output.unlink(missing_ok=True)


def _run(command: list[str], timeout_s: float, what: str) -> tuple[int, str]:
    """Exit code and output; the whole process group dies at the time limit."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise CompilerMissing(f"the compiler {command[0]} is gone: {error.strerror}") from error
    try:
        log, _ = process.communicate(timeout=timeout_s)
    except BaseException as error:  # an interrupt too must not leave a compiler behind
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            text = f"compiling {what} took more than {timeout_s:.3g} s"
            raise CompileError(text, Blame.MACHINE) from None
        raise
    return process.returncode, log.strip()


def _blame(code: int, log: str) -> Blame:
    """A compiler that was killed, or found no room, says nothing about the text it was given."""
    return Blame.MACHINE if code < 0 or _MACHINE.search(log) else Blame.CANDIDATE


def _reason(code: int, log: str) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else _excerpt(log)


def _excerpt(log: str) -> str:
    """The first error and what follows it, a few lines."""
    lines = [line for line in log.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if "error" in line.lower()), 0)
    return "\n".join(lines[first : first + _LOG_LINES]) or "the compiler said nothing"
