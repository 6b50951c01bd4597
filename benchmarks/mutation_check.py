"""How many planted faults the trust rule refuses.

Each mutant is measured by a real worker, as a candidate is. One that passes is looked at on draws
that the worker has not seen: where it is off from the float64 reference by more than FAR times what
the right kernel is off nearby, its fault changes a result and was missed; else it changes nothing
that a program in this type could promise. The measure is the right kernel's own error, not the
rule's room: a rule that is too kind shows.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autofuse.backends.base import Artifact, CompileError, Program, Source
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cpu.backend import program
from autofuse.backends.library import load
from autofuse.frontends import array_api as xp
from autofuse.frontends import spec, trace
from autofuse.frontends.array_api.array import TracedArray
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph
from autofuse.kernel.text.dialects import C
from autofuse.measure.check.compare import poison
from autofuse.measure.check.draws import extra_draws
from autofuse.measure.timing.sampling import Sampling
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload, draw_inputs
from autofuse.ops.dtypes import DType
from autofuse.plan.types import Candidate
from autofuse.simplify import normal_form
from benchmarks.mutations import Mutant, mutants, renamed

FAR = 32.0
_NEAR = 32  # elements on either side
_ENDED = 9  # any but 0 and 1
_SEEDS = (101, 102)
_CALLS = 6
_QUICK = Sampling("warm", warmup_s=0.0, minimum=4, maximum=4, wall_s=0.05)
_LEVEL = "-O1"


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel, or a few, that faults are planted in."""

    name: str
    graph: Graph
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant: "refused", "equivalent", "missed" or "not compiled"."""

    subject: str
    kind: str
    where: str
    verdict: str
    message: str


def _softmax(x: TracedArray) -> TracedArray:
    e = xp.exp(x - xp.max(x, axis=1, keepdims=True))
    return e / xp.sum(e, axis=1, keepdims=True)


def _normalised(x: TracedArray, g: TracedArray) -> TracedArray:
    m = xp.mean(x, axis=1, keepdims=True)
    d = x - m
    return d / xp.sqrt(xp.mean(d * d, axis=1, keepdims=True) + 1e-5) * g


def _stencil(x: TracedArray) -> TracedArray:
    inner = x[1:-1, 1:-1]
    return 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) - inner


def _masked(x: TracedArray, y: TracedArray) -> TracedArray:
    return xp.where(x > 0.1, x * y, y - 2.0 * x)


def _gated(x: TracedArray, w: TracedArray) -> TracedArray:
    return xp.tanh(x @ w) * 0.5 + 0.5


def graphs() -> Mapping[str, Graph]:
    """The programs, by name."""
    made = {
        "relu": trace(lambda x, b: xp.maximum(x + b, 0.0) * 1.5, spec((37, 65)), spec((65,))),
        "sums": trace(lambda x: xp.sum(x, axis=1), spec((19, 4099))),
        "maxima": trace(lambda x: xp.max(x, axis=1), spec((23, 513))),
        "softmax": trace(_softmax, spec((33, 130))),
        "layer norm": trace(_normalised, spec((21, 96)), spec((96,))),
        "product": trace(
            lambda a, b, c: xp.maximum(a @ b + c, 0.0), spec((33, 65)), spec((65, 47)), spec((47,))
        ),
        "gate": trace(_gated, spec((17, 40)), spec((40, 33))),
        "stencil": trace(_stencil, spec((41, 39))),
        "mask": trace(_masked, spec((29, 71)), spec((29, 71))),
        "running sum": trace(lambda x: xp.cumulative_sum(x, axis=1), spec((13, 200))),
        "transposed": trace(lambda x, y: x.T + y * y, spec((31, 67)), spec((67, 31))),
        "distances": trace(
            lambda a, b: xp.sum((a[:, None, :] - b[None, :, :]) ** 2, axis=2),
            spec((25, 9)), spec((18, 9)),
        ),
    }  # fmt: skip
    return {name: normal_form(graph) for name, graph in made.items()}


def check_subject(
    subject: Subject, count: int, seed: int, tell: Callable[[Outcome], None] = lambda _: None
) -> list[Outcome]:
    """The outcomes of `count` mutants."""
    kernels, entry, made = _texts(subject)
    size = subject.graph.output_types[0].size
    planted = mutants(kernels, entry, size, count, seed)
    artifacts = _built(planted, made)
    right = _built([Mutant("none", kernels, entry, "")], made)[0]
    assert right is not None
    judge = _Judge(subject.graph, right)
    found = []
    with Worker(Workload(subject.graph), threads=1, limit_s=20) as worker:
        passed = worker.measure(right, _QUICK).failure
        if passed is not None:
            raise AssertionError(f"{subject.name} without a fault is refused: {passed.message}")
        for mutant, artifact in zip(planted, artifacts, strict=True):
            verdict, message = "not compiled", ""
            if artifact is not None:
                failure = worker.measure(artifact, _QUICK).failure
                message = "" if failure is None else failure.message
                verdict = "refused"
                if failure is None:
                    verdict = "missed" if judge.is_off(artifact) else "equivalent"
            found.append(Outcome(subject.name, mutant.kind, mutant.where, verdict, message))
            tell(found[-1])
    return found


def share_refused(outcomes: Sequence[Outcome]) -> float:
    """Of the faults that change a result."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    return counts["refused"] / max(1, counts["refused"] + counts["missed"])


# --- building


def _texts(subject: Subject) -> tuple[str, str, Program]:
    """The text of all kernels, without what they have in common, and that of the entry."""
    made = program(subject.graph, subject.candidate)
    bodies = [
        f"void {name}"
        for source in made.sources
        if source.name != "entry"
        for name in re.findall(r"^void (k_\w+.*?^\})", source.text, re.M | re.S)
    ]
    (entry,) = (source.text for source in made.sources if source.name == "entry")
    return "\n".join(bodies) + "\n", entry, made


def _tasks(made: Program) -> str:
    """The text that runs kernels, in which nothing is planted."""
    texts = "\n".join(source.text for source in made.sources if source.head)
    return "\n".join(re.findall(r"^void t_k_\w+\(.*\)\n\{.*\}$", texts, re.M))


def _built(planted: Sequence[Mutant], made: Program) -> list[Artifact | None]:
    """All in one library, or in halves where something does not compile; None for what does not."""
    flags = next(source.flags for source in made.sources if source.name != "entry")
    flags = tuple(_LEVEL if flag == "-O3" else flag for flag in flags)
    tasks = _tasks(made)
    kernels, sources = [C.prelude], []
    for number, mutant in enumerate(planted):
        own = f"{mutant.kernels}{tasks}\n"
        names = [*re.findall(r"^void ((?:t_)?k_\w+)", own, re.M), made.entry]
        names.append(f"{made.entry}_profile")
        end = f"_m{number}"
        kernels.append(renamed(own, names, end))
        text = renamed(mutant.entry, names, end)
        sources.append(Source(f"entry{number}", text, ("-O0",)))
    whole = (Source("kernels", "\n".join(kernels), flags), *sources)
    try:
        built = compile_program(replace(made, sources=whole, entry=f"{made.entry}_m0")).artifact
    except CompileError:
        if len(planted) == 1:
            return [None]
        half = len(planted) // 2
        return [*_built(planted[:half], made), *_built(planted[half:], made)]
    return [replace(built, entry=f"{made.entry}_m{k}") for k in range(len(planted))]


# --- judging what passed


class _Judge:
    """Says of artifacts whether they are off, beside the right one, on draws of its own."""

    def __init__(self, graph: Graph, right: Artifact) -> None:
        self._types = graph.output_types
        self._cases = []
        for inputs in _draws(graph):
            with np.errstate(all="ignore"):
                wanted = evaluate(graph, inputs)
                self._cases.append((inputs, wanted, self._limits(_run(right, inputs), wanted)))

    def is_off(self, artifact: Artifact) -> bool:
        """Whether it is, or ends the process: it runs in one of its own, since what passed may
        still write beside an array of its own."""
        child = os.fork()
        if child == 0:
            code = _ENDED
            try:
                code = int(self._is_off(artifact))
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        return status != 0

    def _is_off(self, artifact: Artifact) -> bool:
        with np.errstate(all="ignore"):
            return any(
                _is_beyond(found, truth, limit)
                for inputs, wanted, limits in self._cases
                for found, truth, limit in zip(_run(artifact, inputs), wanted, limits, strict=True)
            )

    def _limits(
        self, right: Sequence[np.ndarray], wanted: Sequence[np.ndarray]
    ) -> list[np.ndarray | None]:
        """How far off each element may be; None: not at all."""
        return [
            _room(found, truth, type_.dtype) if type_.dtype.is_float else None
            for found, truth, type_ in zip(right, wanted, self._types, strict=True)
        ]


def _draws(graph: Graph) -> Iterator[tuple[np.ndarray, ...]]:
    for seed in _SEEDS:
        workload = Workload(graph, seed)
        yield draw_inputs(workload)
        for _, other in extra_draws(workload):
            yield draw_inputs(other)


def _room(found: np.ndarray, truth: np.ndarray, dtype: DType) -> np.ndarray:
    error = np.abs(found.astype(np.float64) - truth).reshape(-1)
    own = np.maximum(
        np.where(np.isfinite(error), error, 0.0), dtype.eps * np.abs(truth.reshape(-1))
    )
    own = np.where(np.isfinite(own), own, 0.0)
    padded = np.pad(own, _NEAR)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * _NEAR + 1)
    return np.asarray(FAR * windows.max(axis=1)).reshape(truth.shape)


def _is_beyond(found: np.ndarray, truth: np.ndarray, limit: np.ndarray | None) -> bool:
    if limit is None:
        return not np.array_equal(found, truth)
    alike = (found == truth) | (np.isnan(found) & np.isnan(truth)) | ~np.isfinite(truth)
    return bool(np.any(~(np.abs(found.astype(np.float64) - truth) <= limit) & ~alike))


def _run(artifact: Artifact, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the last of a few runs leaves."""
    with load(artifact) as library:
        outputs = [np.empty(t.shape, t.dtype.numpy) for t in artifact.outputs]
        for _ in range(_CALLS):
            for array in (*outputs, library.workspace):
                poison(array)
            library.run([array.copy() for array in inputs], outputs)
    return outputs
