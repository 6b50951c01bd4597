"""What serving plans from a bundle costs, and whether a bundle that was changed is refused."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from autofuse import __version__
from autofuse.backends.registry import CPU_BACKEND
from autofuse.devices import device_named
from autofuse.graph.canonical import digest
from autofuse.runtime.compiled import signature_of
from autofuse.serving.bundle import Bundle, open_bundle
from autofuse.serving.container import Container
from autofuse.serving.entries import Entry, Variant
from autofuse.serving.keys import BundleError, Key
from autofuse.serving.make import Contents, stored_binary
from autofuse.simplify import normal_form
from autofuse.tuning.plans import untuned_candidate
from autofuse.zoo import zoo_graph

NAME = "softmax"
LOOKUPS = 8
# Processes that look up at the same time; those that have done so keep the bundle open.
WAVE = 2


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds: the median, the 99th percentile and the most of `n`."""

    n: int
    median: float
    p99: float
    most: float

    @staticmethod
    def of(seconds: Sequence[float]) -> Spread:
        ordered = sorted(1e3 * s for s in seconds)
        rank = min(len(ordered) - 1, -(-99 * len(ordered) // 100) - 1)
        return Spread(len(ordered), statistics.median(ordered), ordered[rank], ordered[-1])


def entry_with_binary(contents: Contents) -> Entry:
    """A plan for this processor that nobody timed, with its library."""
    graph = normal_form(zoo_graph(NAME, "small"))
    kind = device_named(CPU_BACKEND.name)
    environment = kind.backend.environment()
    candidate = untuned_candidate(graph, kind)
    artifact = kind.backend.build(kind.backend.program(graph, candidate)).artifact
    variant = Variant(
        environment.device, environment.must, environment.stale, candidate.to_json(),
        candidate.digest, candidate.origin, len(candidate.plan.groups), {}, None, "",
        __version__, stored_binary(artifact, contents),
    )  # fmt: skip
    return Entry(digest(graph), NAME, signature_of(graph), (variant,))


def bundle_of(count: int, key: Key) -> tuple[bytes, list[str]]:
    """A bundle of `count` plans, one of which has a library, and the digests of its workloads; the
    others have that plan under digests that no graph has."""
    contents = Contents(__version__, "1970-01-01T00:00:00+00:00")
    real = entry_with_binary(contents)
    contents.add(real, [digest(zoo_graph(NAME, "small"))])
    bare = real._replace(variants=tuple(v._replace(binary=None) for v in real.variants))
    for number in range(count - 1):
        name = f"made up {number}"
        workload = sha256(name.encode()).hexdigest()[:32]
        contents.add(bare._replace(workload=workload, name=name))
    return contents.finished(key), contents.workloads


def bench_lookups(
    path: Path, key: Path, workloads: Sequence[str], processes: int
) -> dict[str, Spread]:
    """Wall and CPU time of opening the bundle, of the first look-up, and of the next ones, in so
    many processes that all have it open in the end."""
    lifeline_read, lifeline = os.pipe()
    rows: list[list[float]] = []
    children = []
    try:
        for start in range(0, processes, WAVE):
            wave = [
                _look_up_in_child(path, key, workloads, seed, lifeline_read, lifeline)
                for seed in range(start, min(start + WAVE, processes))
            ]
            for child, answers in wave:
                children.append(child)
                with os.fdopen(answers) as text:
                    rows.append(json.loads(text.read()))
    finally:
        os.close(lifeline)
        os.close(lifeline_read)
        for child in children:
            os.waitpid(child, 0)
    each = {
        "open_wall_ms": slice(0, 1),
        "open_cpu_ms": slice(1, 2),
        "first_look_up_wall_ms": slice(2, 3),
        "look_up_wall_ms": slice(2, None, 2),
        "look_up_cpu_ms": slice(3, None, 2),
    }
    return {name: Spread.of([s for row in rows for s in row[part]]) for name, part in each.items()}


def _look_up_in_child(
    path: Path, key: Path, workloads: Sequence[str], seed: int, lifeline_read: int, lifeline: int
) -> tuple[int, int]:
    """A process that looks plans up, tells how long it took and waits; its id and its answers."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    code = 1
    try:
        os.close(lifeline)
        os.close(read)
        chosen = random.Random(seed).choices(workloads, k=LOOKUPS)
        opened, taken = _timed_lookups(path, key, chosen)
        with os.fdopen(write, "w") as answers:
            json.dump(taken, answers)
        os.read(lifeline_read, 1)
        opened.close()
        code = 0
    finally:
        os._exit(code)  # nothing of the parent's is to be run here


def _timed_lookups(path: Path, key: Path, chosen: Sequence[str]) -> tuple[Bundle, list[float]]:
    """The bundle, open, and seconds of wall and CPU time of opening it and of each look-up."""
    with open_bundle(path, key=key):
        pass  # what the first one in a process imports is no part of opening
    taken: list[float] = []
    clocks = time.perf_counter(), time.process_time()
    bundle = open_bundle(path, key=key)
    taken += _since(*clocks)
    for workload in chosen:
        clocks = time.perf_counter(), time.process_time()
        entry = bundle.workload(workload)
        taken += _since(*clocks)
        if entry is None:
            raise BundleError(f"{path} lacks {workload}")
    return bundle, taken


def _since(wall: float, cpu: float) -> tuple[float, float]:
    return time.perf_counter() - wall, time.process_time() - cpu


# --- cold start -----------------------------------------------------------------------------------

_BASE = "import numpy as np"
_BY_NAME = f"""import numpy as np, autofuse, sys
plan = autofuse.open_bundle(sys.argv[1], key=sys.argv[2]).load("{NAME}")
plan(*(np.ones(t.shape, t.dtype.numpy) for t in plan.signature.types))"""
# The graph that `NAME` is in its small size, as who serves it would write it.
_BY_GRAPH = """import numpy as np, autofuse, sys
from autofuse import spec, trace, xp
graph = trace(lambda x: {"probs": xp.softmax(x)}, spec((256, 512), low=-4, high=4))
bundle = autofuse.open_bundle(sys.argv[1], key=sys.argv[2])
plan = autofuse.compile(graph, bundle=bundle, device="cpu", on_miss="error")
plan(*(np.ones(t.shape, t.dtype.numpy) for t in plan.signature.types))"""
PROGRAMS = {"numpy": _BASE, "by_name": _BY_NAME, "by_graph": _BY_GRAPH}


def bench_cold(path: Path, key: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of whole processes that take turns: NumPy alone, and with a first call of a plan
    of the bundle, by its name or by its graph. The least and the median of wall and CPU time.

    A round before those that count compiles Python's bytecode, which an installed package has."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
    for count in range(rounds + 1):
        for name, program in PROGRAMS.items():
            taken = _process(program, path, key)
            if count > 0:
                found[name].append(taken)
    return {
        name: {
            "least_wall_ms": min(wall for wall, _ in times),
            "median_wall_ms": statistics.median(wall for wall, _ in times),
            "least_cpu_ms": min(cpu for _, cpu in times),
            "median_cpu_ms": statistics.median(cpu for _, cpu in times),
        }
        for name, times in found.items()
    }


def _process(program: str, path: Path, key: Path) -> tuple[float, float]:
    own = {
        "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
        "PYTHONPYCACHEPREFIX": str(path.parent / "bytecode"),
    }
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    begun = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(path), str(key)],
        env=inherited | own,
    )
    _, status, usage = os.wait4(child.pid, 0)
    wall = 1e3 * (time.perf_counter() - begun)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise BundleError(f"a program that serves ended with code {child.returncode}")
    return wall, 1e3 * (usage.ru_utime + usage.ru_stime)


# --- what was changed is refused ------------------------------------------------------------------


def tampered(data: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """`count` changed copies of a bundle, each with what was done to it."""
    rng = random.Random(seed)
    kinds = (_flip, _cut, _append, _swap)
    for number in range(count):
        change = kinds[number % len(kinds)]
        changed = change(data, rng)
        while changed == data:
            changed = change(data, rng)
        yield change.__name__.strip("_"), changed


def _flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _append(data: bytes, rng: random.Random) -> bytes:
    return data + rng.randbytes(rng.randrange(1, 64))


def _swap(data: bytes, rng: random.Random) -> bytes:
    """Two stretches of equal length, as entries or records in each other's place would be."""
    length = rng.choice((8, 32, 80, 160))
    one, other = sorted(rng.sample(range(0, len(data) - length, 8), 2))
    if other - one < length:
        return data
    a, b = data[one : one + length], data[other : other + length]
    return data[:one] + b + data[one + length : other] + a + data[other + length :]


def bench_tampered(
    data: bytes, folder: Path, key: Key, count: int, seed: int = 0
) -> dict[str, tuple[int, int]]:
    """(refused, tried) by what was done; every second one is opened without the key."""
    found: dict[str, tuple[int, int]] = {}
    path = folder / "changed.bundle"
    for number, (kind, changed) in enumerate(tampered(data, count, seed)):
        path.write_bytes(changed)
        refused, tried = found.get(kind, (0, 0))
        found[kind] = refused + _is_refused(path, key if number % 2 else None), tried + 1
    return found


def _is_refused(path: Path, key: Key | None) -> bool:
    try:
        container = Container(path, key)
    except BundleError:
        return True
    try:
        container.verify()
    except BundleError:
        return True
    finally:
        container.close()
    return False
