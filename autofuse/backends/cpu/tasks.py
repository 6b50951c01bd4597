"""What a run of a kernel or of a library does on a CPU, as a task that threads share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from autofuse.backends.cpu.ffts import fft_task, transform_of
from autofuse.backends.cpu.solvers import solver_of, solver_task
from autofuse.graph.types import Value
from autofuse.kernel.library.gemm import library_of, library_product
from autofuse.kernel.lower import extract
from autofuse.kernel.text.dialects import C
from autofuse.ops.contraction import GemmForm
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion.groups import reads
from autofuse.plan.fusion.products import Product
from autofuse.plan.parameters import BLAS, FFT, LAPACK, THREADS
from autofuse.plan.program.schedule import UNREAD, Ref, Run


@dataclass(frozen=True, slots=True)
class KernelCall:
    """How a kernel is called: its name and grid iterations."""

    name: str
    iterations: int


@dataclass(frozen=True, slots=True)
class DnnlCallee:
    """The place of a call of oneDNN among those of its program."""

    number: int


Callees = Mapping[Run, KernelCall | DnnlCallee]


def same_kernel(run: Run) -> Run:
    """Runs of one group under one configuration are one kernel, whatever buffers they use."""
    return replace(run, reads=(), writes=(), panels=())


@dataclass(frozen=True, slots=True)
class Task:
    """What a run does: the task, its pieces, the arrays that it is given, and what else."""

    name: str
    total: int
    arrays: tuple[Ref, ...]
    extra: tuple[str, ...] = ()

    def table(self, instead: Mapping[Ref, str] | None = None) -> str:
        """Its arguments; `instead`: what stands for some arrays."""
        known = instead or {}
        return ", ".join([*(known.get(r) or address(r) for r in self.arrays), *self.extra])


def task_head(name: str) -> str:
    """The head of the task that runs a kernel, its arrays in one table as the thread pool wants
    it."""
    return f"void t_{name}(void **p, int64_t first, int64_t last)"


def with_task(text: str, name: str, params: int) -> str:
    """A kernel of so many arrays and its task, which is compiled with it once, and not with every
    plan. It stays a function of its own: what `restrict` says ends where a call is inlined."""
    arguments = ", ".join([*(f"p[{i}]" for i in range(params)), "first", "last"])
    task = f"{task_head(name)}\n{{ {name}({arguments}); }}"
    return f"__attribute__((noinline))\n{text}{task}\n"


def task_of(run: Run, calls: Callees, gemms: Mapping[Run, int]) -> Task:
    """The task of a run that is no call of oneDNN; `gemms` numbers those of other libraries."""
    callee = calls.get(same_kernel(run))
    if callee is None:
        place = dict(zip(reads(run.graph, run.group.nodes), run.reads, strict=True))
        own = _call_of(run)
        operands = (place[value] for value in own.operands(run))
        name = f"t_{own.word}{gemms[same_kernel(run)]}"
        return Task(name, own.pieces(run), (*operands, *run.writes), ("blas",))
    assert isinstance(callee, KernelCall)
    return Task(f"t_{callee.name}", callee.iterations, (*_inputs(run), *run.writes))


def _inputs(run: Run) -> tuple[Ref, ...]:
    """Buffers in the order of the kernel's parameters."""
    place = dict(zip(reads(run.graph, run.group.nodes), run.reads, strict=True))
    own = (place[value] for value in extract(run.graph, run.group)[1])
    return (*(ref for ref in own if ref != UNREAD), *run.panels)


def address(ref: Ref) -> str:
    """Where an array begins, in C."""
    named = f"(char *)buffers[AF_{ref.space.upper()} + {ref.index}]"
    parts = ["work" if ref.space == "work" else named]
    if ref.offset:
        parts.append(str(ref.offset))
    if ref.stride:
        parts.append(f"(int64_t)t{ref.level} * {ref.stride}")
    return f"(void *)({' + '.join(parts)})"


def _product(run: Run) -> Product:
    found = library_product(run.graph, run.group, C)
    assert found is not None
    return found


def _cuts(run: Run) -> int:
    """Slices per matrix: batches are enough work to share when there are several per thread."""
    threads = THREADS.of(run.launch)
    return 1 if _product(run).form.products >= 2 * threads else 2 * threads if threads > 1 else 1


def _gemm_slices(run: Run) -> int:
    """Pieces of work a library call is cut into."""
    return _product(run).form.products * _cuts(run)


def called_by_table(run: Run) -> bool:
    """Whether a run is a call of a library that a program finds in its table."""
    return library_of(run.graph, run.group, run.launch, C) in IN_TABLE


def library_text(run: Run, number: int) -> Iterator[str]:
    """The task of such a call."""
    own = _call_of(run)
    return own.text(run, f"t_{own.word}{number}")


def gemm_task(run: Run, name: str) -> Iterator[str]:
    """Row-major C = A B as the column-major product of the transposes, one slice of rows (or
    columns, when they are more) at a time."""
    form, cuts = _product(run).form, _cuts(run)
    dtype = run.graph.type_of(run.group.outputs[0]).dtype
    t, slot = ("float", 0) if dtype is DType.F32 else ("double", 1)
    by_rows = form.m >= form.n or form.m >= 64 * cuts
    whole = form.m if by_rows else form.n
    m, n = ("count", str(form.n)) if by_rows else (str(form.m), "count")
    step_a = (1 if form.a.transposed else form.a.leading) if by_rows else 0
    step_b = 0 if by_rows else form.b.leading if form.b.transposed else 1
    step_c = form.n if by_rows else 1
    ta, tb = ("T" if form.a.transposed else "N"), ("T" if form.b.transposed else "N")
    yield f"static void {name}(void **p, int64_t first, int64_t last)"
    yield "{"
    yield "  void **const blas = (void **)p[3];"
    yield "  for (int64_t i = first; i < last; i++) {"
    yield f"    const int64_t j = i / {cuts}, s = i % {cuts};"
    yield f"    const int64_t first_row = {whole} * s / {cuts};"
    yield f"    const int count = (int)({whole} * (s + 1) / {cuts} - first_row);"
    yield "    if (count == 0) continue;"
    yield f"    const {t} one = 1, zero = 0;"
    yield f"    const int m = {m}, n = {n}, k = {form.k};"
    yield f"    const int lda = {form.a.leading}, ldb = {form.b.leading}, ldc = {form.n};"
    for name, place, step, offset in (
        ("a", 0, step_a, form.a.offset), ("b", 1, step_b, form.b.offset), ("c", 2, step_c, 0),
    ):  # fmt: skip
        const = "" if name == "c" else "const "
        at = _element(form, name, offset, step)
        yield f"    {const}{t} *{name} = ({const}{t} *)p[{place}] + {at};"
    yield f'    ((af_gemm_{dtype})blas[{slot}])("{tb}", "{ta}", &n, &m, &k, &one, b, &ldb, a, &lda,'
    yield "      &zero, c, &ldc);"
    yield "  }"
    yield "}"


def _element(form: GemmForm, matrix: str, offset: int, step: int) -> str:
    """Where product `j` begins in an array, `first_row` rows or columns of `step` elements on."""
    parts = [f"{offset}LL", f"first_row * {step}LL"]
    inner = form.products
    for axis in form.batch:
        inner //= axis.extent
        parts.append(f"j / {inner} % {axis.extent} * {getattr(axis, matrix)}LL")
    return " + ".join(parts)


@dataclass(frozen=True, slots=True)
class _TableCall:
    """How a library that a program finds in its table is called: the word in names of its tasks,
    the values that it reads, into how many pieces a call is cut, and the text of a task by its
    name, which gets these values, the result and the table."""

    word: str
    operands: Callable[[Run], tuple[Value, ...]]
    pieces: Callable[[Run], int]
    text: Callable[[Run, str], Iterator[str]]


def _factors(run: Run) -> tuple[Value, ...]:
    return (_product(run).lhs, _product(run).rhs)


def _own_inputs(run: Run) -> tuple[Value, ...]:
    return run.graph[run.group.nodes[0]].inputs


IN_TABLE = {
    BLAS: _TableCall("gemm", _factors, _gemm_slices, gemm_task),
    FFT: _TableCall("fft", _own_inputs, lambda run: transform_of(run).count, fft_task),
    LAPACK: _TableCall("lapack", _own_inputs, lambda run: solver_of(run).count, solver_task),
}


def _call_of(run: Run) -> _TableCall:
    return IN_TABLE[library_of(run.graph, run.group, run.launch, C)]
