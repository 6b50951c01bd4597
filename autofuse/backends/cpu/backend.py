"""The CPU backend: a candidate as one C library with one entry point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from autofuse.backends.base import AMX_USED, Program, Source
from autofuse.backends.cache import content_key
from autofuse.backends.ccompiler import BASE_FLAGS, LINK_FLAGS, LINK_LIBRARIES, WITHOUT_LIBC
from autofuse.backends.codes import library_code, named
from autofuse.backends.cpu.blas import blas_name
from autofuse.backends.cpu.entry import (
    ENTRY,
    dnnl_text,
    entry_text,
    library_task,
    runtime_text,
)
from autofuse.backends.cpu.lapack import lapack_name
from autofuse.backends.cpu.onednn import OneDnnError, onednn
from autofuse.backends.cpu.pocketfft import PocketfftMissing, pocketfft_name, pocketfft_table
from autofuse.backends.cpu.pool import pool_source
from autofuse.backends.cpu.target import NATIVE
from autofuse.backends.cpu.tasks import (
    IN_TABLE,
    DnnlCallee,
    KernelCall,
    same_kernel,
    with_task,
)
from autofuse.graph.types import Graph
from autofuse.kernel.ir.types import Kernel
from autofuse.kernel.library.gemm import library_of
from autofuse.kernel.library.onednn import DnnlCall, dnnl_group, pieces
from autofuse.kernel.lower import extract, lower
from autofuse.kernel.render import render_c, shaped_c
from autofuse.kernel.text.c.amx import AMX_TEXT
from autofuse.kernel.text.c.printer import c_iterations, print_c
from autofuse.kernel.text.dialects import C
from autofuse.kernel.tiles.pack_panels import lower_panels
from autofuse.plan.fusion.legality import check_plan
from autofuse.plan.parameters import (
    BLAS,
    C_IMPL,
    C_MATH,
    FAST_DIVISION,
    FFT,
    LAPACK,
    ONEDNN,
    THREADS,
    VECTOR_BITS,
)
from autofuse.plan.program.packing import packed_operands
from autofuse.plan.program.schedule import Run, kernel_runs, schedule
from autofuse.plan.types import Candidate, LaunchConfig

# Measured rules of this compiler, each with its reason:
FLAGS = (
    "-O3",
    NATIVE,
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",  # integers wrap, as in NumPy and XLA
    "-fno-tree-sink",  # a vector math call moved into a branch no longer vectorises
    "-fno-thread-jumps",  # selects on one condition would become branches, which do not vectorise
    "-fno-builtin-sin",  # sin and cos of one argument would merge into sincos, which is scalar
    "-fno-builtin-cos",
    "-fno-builtin-sinf",
    "-fno-builtin-cosf",
    "-fno-builtin-exp",  # the clamped exp of the prelude would be folded back into a branch
    "-fno-builtin-expf",
)
MATH_FLAGS = {
    "strict": (),
    FAST_DIVISION: (),
    "relaxed": ("-fassociative-math", "-freciprocal-math", "-fno-signed-zeros"),
}
# An entry is calls, one after another: where pointers lead takes GCC half of its time and changes
# nothing.
ENTRY_FLAGS = ("-O1", "-fno-tree-pta", WITHOUT_LIBC)


@dataclass(frozen=True, slots=True)
class CKernelText:
    """A kernel's text before it has a name (KERNEL), its number of arrays, and its iterations."""

    text: str
    params: int
    iterations: int


def flags_of(launch: LaunchConfig) -> tuple[str, ...]:
    """Compiler flags of one kernel: settings `math` and `vector_bits`."""
    width = f"-mprefer-vector-width={VECTOR_BITS.of(launch)}"
    return (*FLAGS, *MATH_FLAGS[C_MATH.of(launch)], width)


def kernel_of(run: Run) -> Kernel:
    """The kernel of one run, before it has a name."""
    group, _ = extract(run.graph, run.group)
    return (lower_panels if run.packs else lower)(group, run.launch, "KERNEL")


@lru_cache(maxsize=2048)
def rendered(group: Graph, launch: LaunchConfig, packs: bool) -> CKernelText:
    """The kernel of a group given as its own graph (see `extract`), or the one that packs its
    panels, kept for who asks again."""
    kernel = shaped_c((lower_panels if packs else lower)(group, launch, "KERNEL"))
    return CKernelText(print_c(kernel), len(kernel.params), c_iterations(kernel))


def kernel_text(kernel: Kernel, launch: LaunchConfig) -> tuple[str, str]:
    """Name and C text of one kernel; equal groups give equal text whatever graph they are in."""
    return named(render_c(kernel), flags_of(launch))


def program(graph: Graph, candidate: Candidate) -> Program:
    """What to compile for a candidate. Raises PlanError for a plan that does not fit the graph."""
    check_plan(graph, candidate.plan)
    plan = schedule(graph, candidate)
    calls: dict[Run, KernelCall | DnnlCallee] = {}
    units: dict[tuple[str, ...], dict[str, str]] = {}
    prepared: list[tuple[DnnlCall, ...]] = []
    blas = False
    for run in kernel_runs(plan.everything):
        library = library_of(run.graph, run.group, run.launch, C)
        blas |= library in IN_TABLE
        if library in IN_TABLE or same_kernel(run) in calls:
            continue
        if library == ONEDNN:
            calls[same_kernel(run)] = DnnlCallee(len(prepared))
            prepared.append(_pieces_of(run))
            continue
        kernel = rendered(extract(run.graph, run.group)[0], run.launch, run.packs)
        name, text = named(kernel.text, flags_of(run.launch))
        calls[same_kernel(run)] = KernelCall(name, kernel.iterations)
        units.setdefault(flags_of(run.launch), {})[name] = with_task(text, name, kernel.params)
    tiles = any(AMX_TEXT in text for texts in units.values() for text in texts.values())
    said = f"const int32_t {AMX_USED} = 1;\n" if tiles else ""
    entry = Source("entry", entry_text(graph, plan, calls) + said, ENTRY_FLAGS)
    return Program(
        sources=(*_parts(units), entry),
        entry=ENTRY,
        inputs=graph.input_types,
        outputs=graph.output_types,
        constants=plan.constants,
        workspace=plan.workspace,
        binding=plan.binding,
        calls=tuple(prepared),
        blas=blas,
    )


def _pieces_of(run: Run) -> tuple[DnnlCall, ...]:
    found = dnnl_group(run.graph, run.group)
    assert found is not None
    return pieces(found.call, THREADS.of(run.launch))


def lacking(candidate: Candidate) -> str:
    """Which library that a candidate calls is missing on this machine, in a sentence; "" where none
    is."""
    asked = {launch.get(C_IMPL.name, BLAS) for launch in candidate.all_launches}
    try:
        if ONEDNN in asked:
            onednn()
        if FFT in asked:
            pocketfft_table()
    except (OneDnnError, PocketfftMissing) as error:
        return str(error)
    return ""


def _version(library: str) -> str:
    """That of a library which a program finds in its table."""
    names: dict[str, Callable[[], str]] = {
        BLAS: blas_name, FFT: pocketfft_name, LAPACK: lapack_name
    }  # fmt: skip
    return names[library]()


def kernel_code(run: Run) -> str:
    """The digest of one kernel's text and flags (see `backends/codes.py`), of a library call with
    the library's version.

    Raises AutofuseError for a group that cannot be lowered, and for a library that is missing."""
    library = library_of(run.graph, run.group, run.launch, C)
    if library in IN_TABLE:
        return library_code(run, _version(library), library_task(run), *ENTRY_FLAGS)
    if library == ONEDNN:
        return library_code(run, onednn().name, repr(_pieces_of(run)), dnnl_text(), *ENTRY_FLAGS)
    group = extract(run.graph, run.group)[0]
    kernel = rendered(group, run.launch, False)
    flags = (*BASE_FLAGS, *flags_of(run.launch))
    packing = (
        (rendered(group, run.launch, True).text,) if packed_operands(group, run.launch) else ()
    )
    text = (kernel.text, str(kernel.iterations), *packing)
    return content_key(["kernel", *flags, C.prelude_digest, *text])


def runtime_code() -> str:
    """The digest of what is compiled into every plan: thread pool, entry, flags."""
    pool = pool_source()
    flags = (*BASE_FLAGS, *ENTRY_FLAGS, *pool.flags, *LINK_FLAGS, *LINK_LIBRARIES)
    return content_key(["runtime", *flags, pool.text, runtime_text()])


def _parts(units: dict[tuple[str, ...], dict[str, str]]) -> Iterator[Source]:
    for flags, texts in sorted(units.items()):
        for name in sorted(texts):
            yield Source(name, texts[name], flags, C.prelude)
