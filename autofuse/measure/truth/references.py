"""The float64 reference of a workload: made, kept in a file, and prepared ahead.

Computing one takes up to minutes, in which a device would idle. `prepare` leaves it in the cache,
under a digest of all that it follows from, and `Preparation` does so for several workloads in
processes of their own. Measuring takes what was prepared; it keeps what took long itself, so that a
session whose budget ended meanwhile is gone on with.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from multiprocessing.connection import wait
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from zipfile import BadZipFile

import numpy as np

from autofuse.backends.cache import BuildCache, CacheError, cache_directory, content_key
from autofuse.graph.canonical import digest
from autofuse.limits import usable_cores
from autofuse.measure.check.compare import OutputReference, WorkloadReference, reference_of
from autofuse.measure.truth.compiled import CompiledRuns
from autofuse.measure.workload import Workload, draw_inputs
from autofuse.ops.types import TensorType

# References of large arrays: 12 bytes for each of their elements.
CAP_BYTES = 4 << 30
# Seconds from which on what was computed is kept for later sessions.
KEPT_S = 2.0
_FOLDER, _SUFFIX = "references", ".npz"
# What a reference follows from, besides NumPy: how ops are evaluated, and the trust rule.
# Compiled runs also follow from what writes C text, without its schedules and passes.
_RULES = (
    "ops", "graph", "measure/check/compare.py", "measure/check/parts.py", "measure/workload.py",
    "measure/truth/compiled.py", "measure/truth/build.py", "measure/truth/checks.py",
    "measure/truth/cost.py", "measure/truth/loops.py", "measure/truth/plan.py",
    "measure/truth/prelude.py", "measure/truth/products.py", "measure/truth/text.py",
    "kernel/text/dialects.py", "kernel/ir/emit.py", "kernel/text/expressions.py",
    "kernel/text/printer.py", "kernel/elements/values.py", "kernel/text/prelude/c_types.h",
    "kernel/text/prelude/c.h", "kernel/text/prelude/integers.h", "kernel/text/prelude/c_parts.h",
)  # fmt: skip


def load_or_make(workload: Workload, inputs: Sequence[np.ndarray], path: Path) -> WorkloadReference:
    """The reference that was left at `path`, else one prepared, else a new one left there."""
    types = workload.graph.output_types
    if path.exists():
        return _read(path, types)
    known = prepared(workload)
    if known is not None:
        return known
    begun = time.perf_counter()
    reference = reference_of(workload.truth, inputs, evaluate=CompiledRuns)
    if time.perf_counter() - begun >= KEPT_S:
        with suppress(CacheError, OSError):
            _publish(workload, reference)
    handle, name = tempfile.mkstemp(suffix=_SUFFIX, dir=path.parent)
    os.close(handle)
    _write(Path(name), reference)
    os.replace(name, path)
    return reference


def prepared(workload: Workload) -> WorkloadReference | None:
    """What `prepare` left; a damaged file is as good as none. Raises CacheError."""
    if not (cache_directory() / _FOLDER).exists():
        return None
    found = _cache().find(reference_key(workload), _SUFFIX)
    if found is None:
        return None
    try:
        return _read(found[0], workload.graph.output_types)
    except (OSError, ValueError, KeyError, BadZipFile):
        return None


def prepare(workload: Workload) -> None:
    """Leave the reference of a workload in the cache, unless it is there. Raises CacheError,
    OSError."""
    if _cache().find(reference_key(workload), _SUFFIX) is None:
        inputs = draw_inputs(workload)
        _publish(workload, reference_of(workload.truth, inputs, evaluate=CompiledRuns))


def _publish(workload: Workload, reference: WorkloadReference) -> None:
    cache = _cache()
    path = cache.temporary(_SUFFIX)
    try:
        _write(path, reference)
        cache.publish(path, reference_key(workload), _SUFFIX)
    finally:
        path.unlink(missing_ok=True)


def reference_key(workload: Workload) -> str:
    """What names a reference: the program as it was written, its inputs, and the code that computes
    it."""
    arrays = () if workload.arrays is None else workload.arrays
    data = [sha256(np.ascontiguousarray(a).tobytes()).hexdigest() for a in arrays]
    graph = digest(workload.truth)
    return content_key(["reference", _rules(), graph, str(workload.seed), *data])


@lru_cache(maxsize=1)
def _rules() -> str:
    package = Path(str(files("autofuse")))
    named = [package / name for name in _RULES]
    sources = sorted(p for n in named for p in (n.rglob("*.py") if n.is_dir() else (n,)))
    return content_key([np.__version__, *(p.read_text(encoding="utf-8") for p in sources)])


def _cache() -> BuildCache:
    return BuildCache(cache_directory() / _FOLDER, CAP_BYTES)


def _write(path: Path, reference: WorkloadReference) -> None:
    names = [f.name for f in fields(OutputReference) if f.name != "type"]
    data = {
        f"{name}{i}": np.asarray(getattr(output, name))
        for i, output in enumerate(reference.outputs)
        for name in names
    }
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **data)


def _read(path: Path, types: Sequence[TensorType]) -> WorkloadReference:
    with np.load(path, allow_pickle=False) as data:
        return WorkloadReference(
            tuple(
                OutputReference(
                    type_,
                    data[f"expected{i}"],
                    data[f"tolerance{i}"],
                    float(data[f"rms{i}"]),
                    float(data[f"norm{i}"]),
                    float(data[f"norm_bound{i}"]),
                    int(data[f"outliers{i}"]),
                    int(data[f"idle{i}"]),
                )
                for i, type_ in enumerate(types)
            )
        )


class Preparation:
    """`prepare` for workloads by name, on all cores, beginning now; a context manager that ends
    what is still under way. Of a workload that cannot be prepared nothing is said: measuring it
    will say it."""

    def __init__(self, workloads: Mapping[str, Workload]) -> None:
        self._done: SimpleQueue[str] = SimpleQueue()
        self._waiting = set(workloads)
        context = multiprocessing.get_context("spawn")
        count = min(len(workloads), usable_cores())
        self._pool = context.Pool(count, _end_with_parent) if count else None
        for name, workload in workloads.items() if self._pool is not None else ():
            self._begin(name, workload)

    def _begin(self, name: str, workload: Workload) -> None:
        def over(_: object) -> None:
            self._done.put(name)

        assert self._pool is not None
        self._pool.apply_async(prepare, (workload,), callback=over, error_callback=over)

    def __enter__(self) -> Preparation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()

    def as_ready(self, names: Sequence[str], seconds: float) -> Iterator[str]:
        """`names` in the order in which they are ready, those that nobody prepares first. After
        `seconds` without another one, what is left comes as it is."""
        left = dict.fromkeys(names)
        while left:
            found = next((name for name in left if name not in self._waiting), None)
            if found is None:
                try:
                    self._waiting.discard(self._done.get(timeout=max(seconds, 0.0)))
                except Empty:
                    yield from left
                    return
                continue
            del left[found]
            yield found


def _end_with_parent() -> None:
    """End this process with the one that started it, which may be killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow(sentinel: int) -> None:
        wait([sentinel])
        os._exit(0)

    threading.Thread(target=follow, args=(parent.sentinel,), daemon=True).start()
