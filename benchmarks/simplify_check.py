"""Whether programs with redundant structure become the programs without it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from autofuse.graph.canonical import digest
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.graph.verify import verify
from autofuse.measure.check.compare import check, reference_of
from autofuse.simplify import normal_form, simplify
from benchmarks.redundancy import with_redundancy


@dataclass(frozen=True, slots=True)
class SimplifiedPair:
    """A clean graph and one with redundant structure, both simplified. `met`: they are one graph;
    `wrong`: what is wrong with a result, or empty; `steps`: rules by how often they applied."""

    seed: int
    told: tuple[str, ...]
    nodes: tuple[int, int, int]
    met: bool
    wrong: str
    steps: tuple[tuple[str, int], ...]
    seconds: float


def check_pair(clean: Graph, seed: int) -> SimplifiedPair:
    """Put redundancy in, simplify, and hold the results to the reference of the clean graph."""
    redundant = with_redundancy(clean, seed)
    started = time.perf_counter()
    found = simplify(redundant.graph)
    seconds = time.perf_counter() - started
    small = verify(normal_form(clean))
    verify(found.graph)
    wrong = next(filter(None, (_wrong(clean, g, seed) for g in (small, found.graph))), "")
    if not wrong and simplify(found.graph).steps:
        wrong = "simplified again it changes"
    return SimplifiedPair(
        seed,
        redundant.told,
        (len(clean.nodes), len(redundant.graph.nodes), len(found.graph.nodes)),
        digest(small) == digest(found.graph),
        wrong,
        tuple(sorted(Counter(s.rule for s in found.steps).items())),
        seconds,
    )


def _wrong(clean: Graph, other: Graph, seed: int) -> str:
    """What the trust rule says of `other` as a program for `clean`."""
    inputs = random_inputs(clean, seed)
    with np.errstate(all="ignore"):
        results = zip(evaluate(other, inputs), other.output_types, strict=True)
        arrays = [a.astype(t.dtype.numpy) for a, t in results]
    return check(arrays, reference_of(clean, inputs)).message


def check_pairs(
    make: Callable[[int], Graph], seeds: Iterable[int], tell: Callable[[SimplifiedPair], None]
) -> list[SimplifiedPair]:
    """A pair for each seed; `tell` is told of each as it is done."""
    found = []
    for seed in seeds:
        found.append(check_pair(make(seed), seed))
        tell(found[-1])
    return found
