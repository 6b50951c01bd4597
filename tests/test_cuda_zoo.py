"""The CUDA of every zoo workload, by every baseline and by chance, compiles without a word for
some of three generations of GPUs."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from autofuse.backends.base import Source
from autofuse.backends.cuda.devices import DEFAULT_TARGET, TARGETS
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.backends.cuda.program import cuda_program
from autofuse.baselines import BASELINES
from autofuse.graph.types import Graph
from autofuse.kernel.text.dialects import CUDA
from autofuse.plan.types import Candidate
from autofuse.search.protocol import Option
from autofuse.simplify import normal_form
from autofuse.tuning.plans import baseline_candidate, fused_candidate
from autofuse.tuning.problem import FusionProblem
from autofuse.zoo import ZOO, zoo_graph
from search_spaces import CudaLaunchSpace
from tests.support.seeds import examples, seeds

ARCHS = ("sm_80", "sm_90", "sm_100")
# Kernels of one compilation: the prelude takes longer than any of them.
PER_UNIT = 20
# Candidates drawn from each workload's space; runs that explore draw others, and more.
DRAWN = examples(3)
# Of the kernels of baselines runs that explore compile all, others one of so many.
ONE_OF = 4 - examples(3)
(SEED,) = seeds(1)
SPACE = CudaLaunchSpace()
# What kernels of the same ops and settings differ in: their names and sizes.
SIZES = re.compile(r"\bk_\w+|\b\d+\b")
# Kernels that were compiled for a generation.
Known = set[tuple[str, tuple[str, ...], str]]


@pytest.fixture(scope="module")
def known() -> Known:
    """Workloads share kernels: what an earlier one had compiled is not compiled again."""
    return set()


def small(name: str) -> Graph:
    return normal_form(zoo_graph(name, "small"))


def texts(graph: Graph, candidates: Iterable[Candidate]) -> list[Source]:
    """The distinct kernels of these candidates; of those that differ in sizes alone, the last."""
    found = {
        (source.flags, SIZES.sub("0", source.text)): source
        for candidate in candidates
        for source in cuda_program(graph, candidate, DEFAULT_TARGET).sources
    }
    return list(found.values())


def units(sources: list[Source]) -> Iterator[Source]:
    """Many kernels behind one prelude, those of equal flags together."""
    by_flags: dict[tuple[str, ...], list[Source]] = defaultdict(list)
    for source in sources:
        assert source.text.startswith(CUDA.prelude)
        by_flags[source.flags].append(source)
    for flags, same in by_flags.items():
        for start in range(0, len(same), PER_UNIT):
            chunk = same[start : start + PER_UNIT]
            bodies = "\n".join(source.text[len(CUDA.prelude) :] for source in chunk)
            yield Source(chunk[0].name, CUDA.prelude + bodies, flags)


def check_silent(sources: list[Source], arch: str, known: Known) -> None:
    """Everything that is new compiles, and no compiler says anything."""
    fresh = {(arch, s.flags, SIZES.sub("0", s.text)): s for s in sources}
    fresh = {key: source for key, source in fresh.items() if key not in known}
    known |= fresh.keys()

    def log_of(unit: Source) -> str:
        cubin, log = compile_cubin(unit.text, arch, unit.flags)
        assert cubin[:4] == b"\x7fELF"
        return f"{arch}: {log}" if log else ""

    with ThreadPoolExecutor(2) as pool:
        logs = pool.map(log_of, units(list(fresh.values())))
        assert [log for log in logs if log] == []


@pytest.mark.wide(4)
@pytest.mark.parametrize("name", ZOO)
def test_every_baseline_compiles_for_every_generation(name: str, known: Known) -> None:
    graph = small(name)
    plans = [baseline_candidate(graph, baseline, SPACE)[0] for baseline in BASELINES]
    sources = texts(graph, [*plans, fused_candidate(graph, SPACE)])[::ONE_OF]
    check_silent(sources, "sm_90", known)
    # One text serves all generations, so every other kernel is tried on one more of them.
    check_silent(sources[::4], "sm_80", known)
    check_silent(sources[2::4], "sm_100", known)


@pytest.mark.wide(4)
@pytest.mark.parametrize("name", ZOO)
def test_candidates_drawn_from_the_space_compile(name: str, known: Known) -> None:
    graph, draw = small(name), random.Random(f"{name}{SEED or ''}")
    problem = FusionProblem(graph, SPACE, {})

    def choose(_: str, options: tuple[Option, ...]) -> Option:
        return options[draw.randrange(len(options))]

    drawn = [problem.propose(choose).payload for _ in range(DRAWN)]
    candidates = [c for c in drawn if isinstance(c, Candidate)]
    assert len(candidates) == DRAWN
    # Each kernel once, for one of the generations.
    sources = texts(graph, candidates)
    for k, arch in enumerate(ARCHS):
        check_silent(sources[k :: len(ARCHS)], arch, known)


def test_the_generations_are_those_of_the_table() -> None:
    assert set(ARCHS) <= {target.arch for target in TARGETS.values()}
