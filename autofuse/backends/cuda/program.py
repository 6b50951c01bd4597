"""A candidate as CUDA: kernel texts, and the launches, library calls and copies of one call.

Nothing here needs a GPU or a driver. Buffers are `Ref`s (see `plan/program/schedule.py`) in these
spaces: "in", "const" and "out" number `index`; "held", what is prepared of constants; "work", the
workspace of intermediates; "trip", the table 0, 1, 2, ... of `trips` i32 numbers, from which a host
loop's body reads its iteration number; and "scratch", what kernels keep for themselves between
their phases: zero before the first call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

from autofuse.backends.base import Source
from autofuse.backends.cache import content_key
from autofuse.backends.codes import library_code, named
from autofuse.backends.cuda.actions import Action as Action
from autofuse.backends.cuda.actions import Argument as Argument
from autofuse.backends.cuda.actions import Fft as Fft
from autofuse.backends.cuda.actions import Gemm as Gemm
from autofuse.backends.cuda.actions import KernelLaunch as KernelLaunch
from autofuse.backends.cuda.actions import LoopAction as LoopAction
from autofuse.backends.cuda.actions import Matmul as Matmul
from autofuse.backends.cuda.actions import WhileAction as WhileAction
from autofuse.backends.cuda.actions import moved as moved
from autofuse.backends.cuda.blaslt import CublasLtMissing, cublaslt_name
from autofuse.backends.cuda.devices import DEFAULT_TARGET, Target
from autofuse.backends.cuda.geometry import Geometry, geometry
from autofuse.backends.cuda.resident import ResidentLoop, resident_loop
from autofuse.backends.cuda.runs import BOUNDARY, flags_of, launch_settings
from autofuse.backends.cuda.runs import MATH_FLAGS as MATH_FLAGS
from autofuse.backends.cuda.runs import kernel_of as kernel_of
from autofuse.backends.cuda.runs import kernel_text as kernel_text
from autofuse.graph.types import Graph, Value
from autofuse.kernel.ir.types import Param
from autofuse.kernel.library.gemm import library_of, library_product, library_transform
from autofuse.kernel.lower import extract, lower
from autofuse.kernel.render import render_cuda, shaped_cuda
from autofuse.kernel.text.dialects import CUDA
from autofuse.ops.dtypes import DType
from autofuse.ops.types import Literal, TensorType
from autofuse.plan.fusion.epilogues import epilogue_of
from autofuse.plan.fusion.groups import reads
from autofuse.plan.fusion.legality import check_plan
from autofuse.plan.parameters import ALGORITHM, BLASLT, CUDA_MATH, FFT, PREPACK
from autofuse.plan.program.bound import NOTHING_BOUND, Binding
from autofuse.plan.program.schedule import (
    UNREAD,
    Copy,
    Ref,
    Repeat,
    Run,
    Step,
    While,
    kernel_runs,
    schedule,
)
from autofuse.plan.types import Candidate, LaunchConfig

_SCRATCH_ALIGN = 256


@dataclass(frozen=True, slots=True)
class CudaProgram:
    """What is compiled and what is done with it; sizes in bytes.

    `sources` are named after their kernel. `owners` says which group of the plan an action belongs
    to (-1: a copy to an output) and `symbols` which kernel a group is ("" for none of ours). The
    actions of `prepare` are done once, when constants are bound as `binding` says."""

    target: Target
    sources: tuple[Source, ...]
    actions: tuple[Action, ...]
    owners: tuple[int, ...]
    groups: int
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    constants: tuple[Literal, ...]
    workspace: int
    scratch: int
    trips: int
    prepare: tuple[Action, ...] = ()
    binding: Binding = NOTHING_BOUND


@dataclass(frozen=True, slots=True)
class CudaKernelText:
    """A kernel's text before it has a name (KERNEL), its launch, and its parameters."""

    text: str
    geometry: Geometry
    params: tuple[Param, ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """A named kernel, its text and flags, its launch, and its parameters, scratch last."""

    source: Source
    geometry: Geometry
    params: tuple[Param, ...]


def cuda_program(
    graph: Graph, candidate: Candidate, target: Target = DEFAULT_TARGET
) -> CudaProgram:
    """What to compile and launch for a candidate on `target`.

    Raises PlanError for a plan that does not fit the graph, UnsupportedKernel for a kernel that
    the target cannot hold."""
    check_plan(graph, candidate.plan)
    plan = schedule(graph, _unpacked(candidate))
    loops = _resident_loops(plan.everything, target)
    units: dict[Run, Unit] = {}
    for run in kernel_runs(step for step in plan.everything if step not in loops):
        if not _library(run) and same_kernel(run) not in units:
            units[same_kernel(run)] = unit_of(run, target)
    writer = _Writer(units, loops)
    actions = tuple(writer.actions(plan.steps, {}))
    prepare = tuple(writer.actions(plan.prepare, {}))
    made = [unit.source for unit in units.values()] + [source for source, _ in loops.values()]
    sources = {source.name: source for source in made}
    return CudaProgram(
        target=target,
        sources=tuple(sources[name] for name in sorted(sources)),
        actions=actions,
        owners=plan.owners,
        groups=len(candidate.plan.groups),
        inputs=graph.input_types,
        outputs=graph.output_types,
        constants=plan.constants,
        workspace=plan.workspace,
        scratch=writer.scratch,
        trips=writer.trips,
        prepare=prepare,
        binding=plan.binding,
    )


def _resident_loops(
    steps: Iterable[Step], target: Target
) -> dict[Step, tuple[Source, ResidentLoop]]:
    """The loops that are one kernel each."""
    found: dict[Step, tuple[Source, ResidentLoop]] = {}
    for step in steps:
        loop = resident_loop(step, target) if isinstance(step, Repeat) and step.resident else None
        if loop is not None:
            name, text = named(loop.text, flags_of(loop.launch))
            source = Source(name, "\n".join([CUDA.prelude, text]), flags_of(loop.launch))
            found[step] = source, loop
    return found


def _library(run: Run) -> str:
    return library_of(run.graph, run.group, run.launch, CUDA)


def _version(library: str) -> tuple[str, ...]:
    """What says which code a library runs: the places of its algorithms are a version's own."""
    if library != BLASLT:
        return ()
    try:
        return (cublaslt_name(),)
    except CublasLtMissing:
        return ("no cuBLASLt",)


def _unpacked(candidate: Candidate) -> Candidate:
    """The candidate without a setting that only C knows: here panels are packed by the kernel."""

    def without(launch: LaunchConfig) -> LaunchConfig:
        return LaunchConfig(tuple(s for s in launch.settings if s[0] != PREPACK.name))

    return replace(candidate, launches=tuple(one.changed(without) for one in candidate.launches))


def same_kernel(run: Run) -> Run:
    """Runs of one group under one configuration are one kernel, whatever buffers they use."""
    return Run(run.graph, run.group, launch_settings(run), (), ())


def unit_of(run: Run, target: Target) -> Unit:
    """The translation unit of one run's kernel."""
    found = rendered(extract(run.graph, run.group)[0], launch_settings(run), target)
    name, text = named(found.text, flags_of(run.launch))
    source = Source(name, "\n".join([CUDA.prelude, text]), flags_of(run.launch))
    return Unit(source, found.geometry, found.params)


@lru_cache(maxsize=2048)
def rendered(group: Graph, settings: LaunchConfig, target: Target) -> CudaKernelText:
    """The kernel of a group given as its own graph (see `extract`) under `launch_settings`, kept
    for who asks again."""
    kernel = lower(group, settings, "KERNEL")
    shape = geometry(kernel, target)
    return CudaKernelText(render_cuda(kernel), shape, shaped_cuda(kernel).params)


def kernel_code(run: Run, target: Target = DEFAULT_TARGET) -> str:
    """The digest of one kernel's text, options and architecture (see `backends/codes.py`).

    Raises AutofuseError for a group that cannot be lowered or launched on `target`."""
    library = _library(run)
    if library:
        return library_code(run, target.arch, *_version(library))
    unit = rendered(extract(run.graph, run.group)[0], launch_settings(run), target)
    flags = (f"-arch={target.code_for}", *flags_of(run.launch))
    return content_key(["kernel", *flags, CUDA.prelude_digest, unit.text, str(unit.geometry)])


class _Writer:
    """Turns steps into actions; notes how many iteration numbers and how much scratch they need."""

    def __init__(
        self, units: Mapping[Run, Unit], loops: Mapping[Step, tuple[Source, ResidentLoop]]
    ) -> None:
        self.units, self.loops = units, loops
        self.trips = self.scratch = 0
        self.kept: dict[str, tuple[Ref, ...]] = {}

    def actions(self, steps: Iterable[Step], counters: Mapping[Ref, Ref]) -> Iterator[Action]:
        """`counters`: where the iteration number of each loop around is to be found."""
        for step in steps:
            match step:
                case Run():
                    yield self._run(step, counters)
                case Copy(source, place, nbytes):
                    yield Copy(counters.get(source, source), place, nbytes)
                case Repeat(trip) if step in self.loops:
                    self.trips = max(self.trips, trip)
                    yield self._resident(*self.loops[step])
                case Repeat(trip, level, counter, turns):
                    self.trips = max(self.trips, trip)
                    # No write per iteration: the number is read where it already is.
                    inner = {**counters, counter: Ref("trip", level=level, stride=4)}
                    found = tuple(tuple(self.actions(turn, inner)) for turn in turns)
                    yield LoopAction(trip, level, found)
                case While(trip, level, counter, turns, go, flags, ends):
                    found = tuple(tuple(self.actions(turn, counters)) for turn in turns)
                    yield WhileAction(trip, level, counter, found, go, flags, ends)

    def _run(self, run: Run, counters: Mapping[Ref, Ref]) -> KernelLaunch | Gemm | Matmul | Fft:
        found = (counters.get(ref, ref) for ref in run.reads)
        place = dict(zip(reads(run.graph, run.group.nodes), found, strict=True))
        library = _library(run)
        if library == FFT:
            transform = library_transform(run.graph, run.group)
            assert transform is not None
            dtype = run.graph.type_of(run.group.outputs[0]).dtype
            (source,) = place.values()
            return Fft(transform, dtype, source, run.writes[0])
        if library == BLASLT:
            return _matmul(run, place)
        if library:
            called = library_product(run.graph, run.group, CUDA)
            assert called is not None
            dtype = run.graph.type_of(called.output).dtype
            relaxed = CUDA_MATH.of(run.launch) == "relaxed"
            a, b = place[called.lhs], place[called.rhs]
            return Gemm(called.form, dtype, a, b, run.writes[0], relaxed)
        unit = self.units[same_kernel(run)]
        own = (place[value] for value in extract(run.graph, run.group)[1])
        inputs = tuple(ref for ref in own if ref != UNREAD)
        refs = (*inputs, *run.writes, *self._scratch(unit))
        arrays = [p for p in unit.params if p.map is None]
        at = {p.name: ref for ref, p in zip(refs, arrays, strict=True)}
        arguments = tuple(
            Argument(at[p.source or p.name], p.dtype, p.size, p.role in ("out", "work"), p.map)
            for p in unit.params
        )
        return KernelLaunch(unit.source.name, unit.geometry, arguments)

    def _resident(self, source: Source, loop: ResidentLoop) -> KernelLaunch:
        wholes = [
            Argument(Ref(w.space, w.index, w.first), DType.U8, w.nbytes, not w.read_only)
            for w in loop.wholes
        ]
        works = self._kept(source.name, loop.works)
        scratch = [Argument(r, d, n, True) for r, (d, n) in zip(works, loop.works, strict=True)]
        return KernelLaunch(source.name, loop.geometry, (*wholes, *scratch))

    def _scratch(self, unit: Unit) -> tuple[Ref, ...]:
        """The kernel's own buffers; they come after its outputs."""
        works = [(p.dtype, p.size) for p in unit.params if p.role == "work"]
        return self._kept(unit.source.name, works)

    def _kept(self, name: str, works: Iterable[tuple[DType, int]]) -> tuple[Ref, ...]:
        """So much scratch of a kernel."""
        if name not in self.kept:
            found: list[Ref] = []
            for dtype, size in works:
                found.append(Ref("scratch", offset=self.scratch))
                self.scratch += -(-size * dtype.itemsize // _SCRATCH_ALIGN) * _SCRATCH_ALIGN
            self.kept[name] = tuple(found)
        return self.kept[name]


def _matmul(run: Run, place: Mapping[Value, Ref]) -> Matmul:
    found = epilogue_of(run.graph, run.group)
    assert found is not None
    places = {**place, **dict(zip(run.group.outputs, run.writes, strict=True))}
    bias, residual, aux = (
        None if v is None else places[v] for v in (found.bias, found.residual, found.aux)
    )
    product = found.product
    made = Matmul(
        product.form, run.graph.type_of(found.output).dtype, places[product.lhs],
        places[product.rhs], places[found.output], bias, residual, aux, found.activation,
        ALGORITHM.of(run.launch), CUDA_MATH.of(run.launch) == "relaxed",
    )  # fmt: skip
    return replace(made, boundary=_boundary(made))


def _boundary(made: Matmul) -> int:
    """The largest power of two, up to BOUNDARY, that all of its arrays lie at multiples of."""
    width = made.dtype.itemsize
    starts = [width * made.form.a.offset, width * made.form.b.offset]
    starts += [n for ref in made.refs for n in (ref.offset, ref.stride)]
    return gcd(BOUNDARY, *starts)
