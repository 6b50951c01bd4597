"""Whether a simplified program computes what it was written to compute.

Checks of candidates hold what was written against what was planned. Where a program is small both
forms are computed before that, on numbers that are drawn, so that an error of a rule costs a
sentence and its gain, never a plan or a wrong result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from autofuse.errors import AutofuseError
from autofuse.graph.canonical import canonical
from autofuse.graph.noise import Noise
from autofuse.graph.reference import evaluate, random_inputs, trips_up_to
from autofuse.graph.types import Graph
from autofuse.ops.types import TensorType
from autofuse.simplify.driver import simplify
from autofuse.simplify.rules import RULES, Simplification

# Elements that all nodes of a program compute, operations among them, up to which it is compared:
# tens of milliseconds. Each node counts as so many at least.
MOST_WORK, LEAST_WORK = 1 << 22, 1 << 12
# Iterations that a loop counts as whose end the data decide.
_UNKNOWN_TRIPS = 64
# Iterations that loops may really take, all together.
MOST_TRIPS = 1 << 12
# An element may differ by so many times what rounding noise of the dtypes moved it, and by so many
# epsilons; rules may round otherwise.
_SPREADS, _EPSILONS = 64.0, 64.0
# Share of elements, and a count, that may land elsewhere: a jump was near.
_JUMPS, _FEW = 0.01, 2

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Forms:
    """A program in the form in which it is planned, and canonical as it was written, with equal
    inputs and outputs. `disagreement` says in a sentence why it is planned as it was written though
    rules apply, "" where they agree or nothing was compared."""

    graph: Graph
    written: Graph
    disagreement: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        return (self.disagreement,) if self.disagreement else ()


def forms_of(graph: Graph, simplified: bool = True) -> Forms:
    """The forms of a program that is simplified, or is to stay as it was written."""
    written = canonical(graph)
    if not simplified:
        return Forms(written, written)
    planned = canonical(simplify(graph).graph)
    if planned == written:
        return Forms(planned, planned)
    wrong = disagreement(written, planned)
    return Forms(written if wrong else planned, written, wrong)


def normal_form(graph: Graph, simplified: bool = True) -> Graph:
    """The form in which a graph is digested, planned and stored: canonical and, unless it is to
    stay as it was written, simplified."""
    return forms_of(graph, simplified).graph


@lru_cache(maxsize=256)
def disagreement(written: Graph, planned: Graph) -> str:
    """What a simplified program computes otherwise, and by which rules; "" where both are too large
    to be compared, or agree. Equal graphs have equal answers, whatever their inputs are called."""
    if max(work(written), work(planned)) > MOST_WORK:
        return ""
    inputs = random_inputs(written, 0)
    try:
        with trips_up_to(MOST_TRIPS):
            runs = [evaluate(written, inputs, n) for n in (None, Noise(1), Noise(2))]
    except AutofuseError:  # a loop of many iterations, or without an end: measuring will say it
        return ""

    def wrong(other: Graph) -> str:
        return _difference(runs, _results(other, inputs), written.output_types)

    found = wrong(planned)
    if not found:
        return ""
    rules = ", ".join(_guilty(written, wrong)) or "together"
    said = f"simplified ({rules}), the program computes something else: {found}"
    return f"{said}; it is planned as it was written"


def work(graph: Graph) -> float:
    """Elements that are computed, operations among them, by all nodes in all iterations."""
    total = 0.0
    for number, node in enumerate(graph.nodes):
        if node.op == "input":
            continue
        attrs = dict(node.attrs)
        bodies = [v for v in attrs.values() if isinstance(v, Graph)]
        if bodies:
            trips = int(attrs.get("trip", 0) or min(int(attrs["max_trips"]), _UNKNOWN_TRIPS))
            total += trips * sum(map(work, bodies))
            continue
        elements = sum(t.size for t in node.types)
        total += max(LEAST_WORK, elements, node.spec.flops(graph.call(number)))
    return total


def _results(graph: Graph, inputs: Arrays) -> Arrays | None:
    try:
        with trips_up_to(2 * MOST_TRIPS):
            return evaluate(graph, inputs)
    except AutofuseError:
        return None


def _difference(runs: Sequence[Arrays], found: Arrays | None, types: Sequence[TensorType]) -> str:
    if found is None:
        return "it does not end"
    with np.errstate(all="ignore"):
        for k, kind in enumerate(types):
            wrong = _wrong([run[k] for run in runs], found[k], kind)
            excused = min(max(_FEW, _JUMPS * wrong.size), wrong.size - 1)
            if wrong.size and np.count_nonzero(wrong) > excused:
                at = int(np.argmax(wrong.reshape(-1)))
                was, now = runs[0][k].reshape(-1)[at], found[k].reshape(-1)[at]
                share = f"{np.count_nonzero(wrong)} of {wrong.size} elements"
                return f"{share} of output {k}, one is {now} instead of {was}"
    return ""


def _wrong(runs: Sequence[np.ndarray], found: np.ndarray, kind: TensorType) -> np.ndarray:
    """Elements that differ from what was written by more than rounding explains."""
    exact = runs[0]
    if not kind.dtype.is_float:
        return np.asarray((found != exact) & np.all([run == exact for run in runs], axis=0))
    finite = exact[np.isfinite(exact)]
    rms = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
    spread = np.max([np.abs(run - exact) for run in runs], axis=0)
    room = _SPREADS * spread + _EPSILONS * kind.dtype.eps * (np.abs(exact) + rms)
    steady = np.all([np.isfinite(run) == np.isfinite(exact) for run in runs], axis=0)
    same = (found == exact) | (np.isnan(found) & np.isnan(exact)) | (np.abs(found - exact) <= room)
    return np.asarray(~same & steady)


def _guilty(written: Graph, wrong: Callable[[Graph], str]) -> list[str]:
    """Rules without which the program is right: each alone, else nobody can be told."""
    used = dict.fromkeys(step.rule for step in simplify(written).steps)
    named = []
    for name in used:
        others = simplify(written, partial(_is_other, name)).graph
        if name in RULES and not wrong(others):
            named.append(name)
    return named


def _is_other(name: str, rule: Simplification) -> bool:
    return rule.name != name
