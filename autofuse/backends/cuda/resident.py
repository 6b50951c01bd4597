"""A whole loop as one kernel: every block goes through all iterations, and all meet after each of
the loop's kernels. So all blocks must be on the device at once, and what one iteration leaves is
read as what others write meanwhile.

The text has a scope for each kernel of an iteration, whose buffers are places in those of the
program. A loop that cannot be one kernel runs as if it had not been asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

from autofuse.backends.cuda.devices import Target, blocks_resident
from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.runs import flags_of, kernel_of
from autofuse.kernel.cuda.shape import local_bytes
from autofuse.kernel.ir.types import Kernel, has_product
from autofuse.kernel.launching import (
    block_threads,
    blocks_wanted,
    cluster_blocks,
    is_cooperative,
    shared_bytes,
)
from autofuse.kernel.library.gemm import library_of
from autofuse.kernel.lower import extract
from autofuse.kernel.render import shaped_cuda
from autofuse.kernel.text.cuda.printer import body_in_scope
from autofuse.kernel.text.dialects import CUDA, EARLY
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion.groups import reads
from autofuse.plan.parameters import BLOCK_THREADS, GRID, MAPS, STAGES
from autofuse.plan.parameters import EARLY as EARLY_START
from autofuse.plan.program.schedule import UNREAD, Ref, Repeat, Run, kernel_runs
from autofuse.plan.types import LaunchConfig

# Threads of a multiprocessor that take part: few blocks meet sooner, and this many keep it busy.
THREADS_PER_SM = 512
_READ_ONLY = ("in", "const", "trip", "held")


@dataclass(frozen=True, slots=True)
class Whole:
    """Bytes of one of the program's buffers that a loop touches, from `first` on; written by it
    unless `read_only`."""

    space: str
    index: int
    first: int
    nbytes: int

    @property
    def read_only(self) -> bool:
        return self.space in _READ_ONLY

    @property
    def name(self) -> str:
        """The kernel's parameter; arrays of its parts are called in0, out0 and so on."""
        return f"all_{self.space}{self.index}"


@dataclass(frozen=True, slots=True)
class ResidentLoop:
    """The kernel's text before it has a name (KERNEL), its flags, its launch, and its parameters:
    buffers of the program, and then scratch, as elements of a type."""

    text: str
    launch: LaunchConfig
    geometry: Geometry
    wholes: tuple[Whole, ...]
    works: tuple[tuple[DType, int], ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """One kernel of an iteration, and where its buffers are."""

    kernel: Kernel
    refs: tuple[Ref, ...]


def resident_loop(step: Repeat, target: Target) -> ResidentLoop | None:
    """A loop that is asked to be one kernel as one, or None where it cannot be: a library does a
    part of it, its blocks would wait for each other in other ways, or they differ in size."""
    counter = Ref("trip", level=step.level, stride=4)
    turns = [[_alike(run, step) for run in kernel_runs(turn)] for turn in step.turns]
    runs = list(chain(*turns))
    if any(library_of(run.graph, run.group, run.launch, CUDA) for run in runs):
        return None
    parts = [[_part(run, {step.counter: counter}) for run in turn] for turn in turns]
    kernels = [part.kernel for part in chain(*parts)]
    sizes = {block_threads(kernel) for kernel in kernels}
    waiting = any(is_cooperative(kernel) or cluster_blocks(kernel) for kernel in kernels)
    if waiting or len(sizes) != 1 or not _fits(kernels, target):
        return None
    (threads,) = sizes
    each = _blocks_each(kernels, threads, target)
    if not each:
        return None
    grid = min(target.sms * each, max(map(blocks_wanted, kernels)), target.grid_limit)
    shape = Geometry(grid, threads, max(map(shared_bytes, kernels)), cooperative=True)
    text = _Text(step, parts)
    return ResidentLoop(
        "\n".join(text.lines(threads, each)), _flags(runs), shape, text.wholes, tuple(text.works)
    )


def _alike(run: Run, step: Repeat) -> Run:
    """A run as a part of the loop: blocks of one size stride over its work, and nothing is begun
    before the last meeting."""
    threads = max(BLOCK_THREADS.of(each.launch) for each in kernel_runs((step,)))
    own = dict(run.launch.settings) | {GRID.name: "stride", EARLY_START.name: False, STAGES.name: 0}
    own[MAPS.name] = False  # iterations differ in where arrays are, which a tensor map says
    if not _multiplies(run):
        own[BLOCK_THREADS.name] = threads
    return replace(run, launch=LaunchConfig.of(**own))


def _multiplies(run: Run) -> bool:
    """Whether the kernel of a run multiplies tiles, which are dealt to so many threads."""
    return any(has_product(s) for s in kernel_of(run).body)


def _part(run: Run, counters: dict[Ref, Ref]) -> _Part:
    found = (counters.get(ref, ref) for ref in run.reads)
    place = dict(zip(reads(run.graph, run.group.nodes), found, strict=True))
    own = (place[value] for value in extract(run.graph, run.group)[1])
    inputs = tuple(ref for ref in own if ref != UNREAD)
    return _Part(shaped_cuda(kernel_of(run)), (*inputs, *run.writes))


def _fits(kernels: Iterable[Kernel], target: Target) -> bool:
    return all(
        block_threads(kernel) <= target.threads_per_block
        and shared_bytes(kernel) <= target.shared_per_block
        for kernel in kernels
    )


def _blocks_each(kernels: Iterable[Kernel], threads: int, target: Target) -> int:
    """Blocks of a multiprocessor; registers follow, since the text asks for so many."""
    held = max(local_bytes(kernel) for kernel in kernels)
    return min(max(1, THREADS_PER_SM // threads), blocks_resident(target, threads, 1, held))


def _flags(runs: Iterable[Run]) -> LaunchConfig:
    """What all were compiled with apart, or what rounds as IEEE wants it."""
    found = {flags_of(run.launch): run.launch for run in runs}
    return next(iter(found.values())) if len(found) == 1 else LaunchConfig()


@dataclass
class _Text:
    step: Repeat
    parts: list[list[_Part]]
    works: list[tuple[DType, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wholes = tuple(self._wholes())

    def _wholes(self) -> Iterator[Whole]:
        spans: dict[tuple[str, int], list[int]] = {}
        for part in chain(*self.parts):
            named = (p for p in part.kernel.params if p.role != "work")
            for ref, param in zip(part.refs, named, strict=True):
                end = ref.offset + param.size * param.dtype.itemsize
                spans.setdefault((ref.space, ref.index), []).extend(
                    (ref.offset, end + (self.step.trip - 1) * self._stride(ref))
                )
        for (space, index), ends in sorted(spans.items()):
            yield Whole(space, index, min(ends), max(ends) - min(ends))

    def _stride(self, ref: Ref) -> int:
        return ref.stride if ref.level == self.step.level else 0

    def lines(self, threads: int, each: int) -> Iterator[str]:
        scopes = [list(map(list, map(self._scope, turn))) for turn in self.parts]
        kinds = {True: "AF_IN_LATER", False: "AF_WORK"}
        params = [f"{kinds[w.read_only]}(uint8_t, {w.name})" for w in self.wholes]
        params += [f"AF_WORK({CUDA.types[d]}, work_{k})" for k, (d, _) in enumerate(self.works)]
        meeting = len(self.works)
        self.works.append((DType.U32, 1))
        params.append(f"AF_WORK(uint32_t, work_{meeting})")
        bounds = f"__launch_bounds__({threads}, {each})"
        yield f'extern "C" __global__ void {bounds} KERNEL({", ".join(params)})'
        yield "{"
        yield f"  for (int32_t trip = 0; trip < {self.step.trip}; trip++) {{"
        for k, turn in enumerate(scopes):
            head = f"if (trip % {len(scopes)} == {k}) {{" if k < len(scopes) - 1 else "{"
            yield f"    {'} else ' if k else ''}{head}"
            for n, scope in enumerate(turn):
                yield "    {"
                yield from scope
                yield "    }"
                last = f"if (trip + 1 < {self.step.trip}) " if n == len(turn) - 1 else ""
                yield f"    {last}af_wait_for_all(work_{meeting}, 0, gridDim.x, blockIdx.x == 0);"
        yield "    }"
        yield "  }"
        yield "}"

    def _scope(self, part: _Part) -> Iterator[str]:
        """A kernel with its buffers where the program has them."""
        refs = iter(part.refs)
        for param in part.kernel.params:
            type_ = CUDA.types[param.dtype]
            if param.role == "work":
                yield f"    AF_WORK({type_}, {param.name}) = work_{len(self.works)};"
                self.works.append((param.dtype, param.size))
                continue
            declared = EARLY.parameters[param.role].format(type_, param.name)
            const = "const " if param.role == "in" else ""
            place = self._place(next(refs))
            yield f"    {declared} = reinterpret_cast<{const}{type_} *>({place});"
        yield from body_in_scope(part.kernel)

    def _place(self, ref: Ref) -> str:
        (whole,) = (w for w in self.wholes if (w.space, w.index) == (ref.space, ref.index))
        moved = f" + (int64_t)trip * {ref.stride}" if self._stride(ref) else ""
        return f"{whole.name} + {ref.offset - whole.first}LL{moved}"
