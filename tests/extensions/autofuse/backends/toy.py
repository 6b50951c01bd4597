"""Device "toy": the CPU's, with little optimisation and a small launch space."""

from collections.abc import Callable
from dataclasses import replace

from autofuse.backends.base import Program
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cpu import backend as cpu
from autofuse.backends.cpu.fingerprint import cpu_environment
from autofuse.backends.registry import Backend
from autofuse.backends.toolchain import find_compiler
from autofuse.graph.types import Graph
from autofuse.plan.parameters import Setting
from autofuse.plan.program.schedule import Run
from autofuse.plan.types import Candidate, FusionGroup, LaunchConfig
from autofuse.records import Environment


def program(graph: Graph, candidate: Candidate) -> Program:
    """The CPU's program under -O1."""
    made = cpu.program(graph, candidate)
    sources = (
        replace(s, flags=(*(f for f in s.flags if not f.startswith("-O")), "-O1"))
        for s in made.sources
    )
    return replace(made, sources=tuple(sources))


def environment() -> Environment:
    """The CPU's fingerprint; times under other flags are other times."""
    own = cpu_environment()
    return replace(own, must=tuple(sorted((*own.must, ("flags", "-O1")))))


class ToySpace:
    """One thread, and one parameter that all kernels share."""

    def kind(self, graph: Graph, group: FusionGroup) -> str:
        return "body" if group.body is not None else "toy"

    def default(self, graph: Graph, group: FusionGroup) -> LaunchConfig:
        return LaunchConfig() if group.body is not None else LaunchConfig.of(threads=1, tile=64)

    def ruled(
        self, graph: Graph, group: FusionGroup, threads: int, items: int, strided: bool
    ) -> LaunchConfig:
        return self.default(graph, group)

    def choose(
        self,
        graph: Graph,
        group: FusionGroup,
        chooser: Callable[[str, tuple[Setting, ...]], Setting],
        prefix: str,
    ) -> LaunchConfig:
        if group.body is not None:
            return LaunchConfig()
        return LaunchConfig.of(threads=1, tile=chooser("tile", (64, 16)))


def launches(backend: Backend) -> ToySpace:
    return ToySpace()


def kernel_text(run: Run) -> tuple[str, str]:
    return cpu.kernel_text(cpu.kernel_of(run), run.launch)


BACKEND = Backend("toy", program, compile_program, environment, find_compiler)
