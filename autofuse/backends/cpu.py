"""The CPU backend: a candidate as one C library with one entry point."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256

from autofuse.backends.base import Program, Source
from autofuse.graph.types import Graph
from autofuse.kernel.dialects import C
from autofuse.kernel.gemm import blas_form, uses_blas
from autofuse.kernel.lower import extract, lower
from autofuse.kernel.render import render_c
from autofuse.ops.contraction import GemmForm
from autofuse.ops.dtypes import DType
from autofuse.plan.groups import reads
from autofuse.plan.legality import check_plan
from autofuse.plan.schedule import Copy, Ref, Repeat, Run, Schedule, Step, kernel_runs, schedule
from autofuse.plan.types import Candidate, LaunchConfig

# Measured rules of this compiler, each with its reason:
FLAGS = (
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",  # integers wrap, as in NumPy and XLA
    "-fno-tree-sink",  # a vector math call moved into a branch no longer vectorises
    "-fno-thread-jumps",  # selects on one condition would become branches, which do not vectorise
    "-fno-builtin-sin",  # sin and cos of one argument would merge into sincos, which is scalar
    "-fno-builtin-cos",
    "-fno-builtin-sinf",
    "-fno-builtin-cosf",
)
MATH_FLAGS = {
    "strict": (),
    "relaxed": ("-fassociative-math", "-freciprocal-math", "-fno-signed-zeros"),
}
# Kernels per translation unit: small kernels share the compiler's start-up.
PER_UNIT = 8


def flags_of(launch: LaunchConfig) -> tuple[str, ...]:
    """Compiler flags of one kernel: settings `math` and `vector`."""
    width = int(launch.get("vector", 512))
    return (*FLAGS, *MATH_FLAGS[str(launch.get("math", "strict"))], f"-mprefer-vector-width={width}")


def kernel_text(graph: Graph, run: Run) -> tuple[str, str]:
    """Name and C text of one kernel; equal groups give equal text whatever graph they are in."""
    group, _ = extract(graph, run.group)
    text = render_c(lower(group, run.launch, "KERNEL"))
    # One text under two sets of flags is two kernels: their symbols must differ.
    identity = " ".join([*flags_of(run.launch), text])
    name = "k_" + sha256(identity.encode()).hexdigest()[:16]
    return name, text.replace("KERNEL(", f"{name}(", 1)


def program(graph: Graph, candidate: Candidate) -> Program:
    """What to compile for a candidate. Raises PlanError for a plan that does not fit the graph."""
    check_plan(graph, candidate.plan)
    plan = schedule(graph, candidate)
    names: dict[Run, str] = {}
    units: dict[tuple[str, ...], dict[str, str]] = {}
    heads: dict[str, str] = {}
    for run in kernel_runs(plan.steps):
        if uses_blas(run.graph, run.group, run.launch):
            continue
        name, text = kernel_text(run.graph, run)
        names[_kernel_key(run)] = name
        units.setdefault(flags_of(run.launch), {})[name] = text
        heads[name] = text[: text.index("\n{")] + ";"
    sources = list(_units(units))
    entry = "\n".join([C.prelude, _RUNTIME, *(heads[n] for n in sorted(heads)), *_entry(graph, plan, names)])  # fmt: skip
    sources.append(Source("entry", entry, ("-O1",)))
    return Program(
        sources=tuple(sources),
        entry="af_entry",
        inputs=graph.input_types,
        outputs=graph.output_types,
        constants=plan.constants,
        workspace=plan.workspace,
    )


def _kernel_key(run: Run) -> Run:
    """Runs of one group under one configuration are one kernel, whatever buffers they use."""
    return Run(run.graph, run.group, run.launch, (), ())


def _units(units: dict[tuple[str, ...], dict[str, str]]) -> Iterator[Source]:
    for flags, texts in sorted(units.items()):
        ordered = sorted(texts)
        size = 1 if len(ordered) <= PER_UNIT else PER_UNIT
        for start in range(0, len(ordered), size):
            chunk = ordered[start : start + size]
            text = "\n".join([C.prelude, *(texts[name] for name in chunk)])
            yield Source(chunk[0], text, flags)


_RUNTIME = """
#include <string.h>
typedef void (*af_gemm_f32)(const char *, const char *, const int *, const int *, const int *,
  const float *, const float *, const int *, const float *, const int *, const float *, float *, const int *);
typedef void (*af_gemm_f64)(const char *, const char *, const int *, const int *, const int *,
  const double *, const double *, const int *, const double *, const int *, const double *, double *, const int *);
typedef int (*af_set_threads)(int);
"""  # noqa: E501  # C prototypes


def _entry(graph: Graph, plan: Schedule, names: dict[Run, str]) -> Iterator[str]:
    inputs = len(graph.inputs)
    yield f"enum {{ AF_IN = 0, AF_CONST = {inputs}, AF_OUT = {inputs + len(plan.constants)} }};"
    yield "int32_t af_entry(void **buffers, void *workspace, void **blas)"
    yield "{"
    yield "  char *const work = (char *)workspace;"
    yield "  (void)work; (void)blas; (void)buffers;"
    blas = any(uses_blas(r.graph, r.group, r.launch) for r in kernel_runs(plan.steps))
    if blas:
        yield "  const af_set_threads set = (af_set_threads)blas[2];"
        yield "  const int before = set ? set(1) : 0;"
    yield from _steps(plan.steps, names, 1)
    if blas:
        yield "  if (set) set(before);"
    yield "  return 0;"
    yield "}"


def _steps(steps: Iterable[Step], names: dict[Run, str], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for step in steps:
        match step:
            case Run() if uses_blas(step.graph, step.group, step.launch):
                yield from _gemm(step, pad)
            case Run():
                arguments = ", ".join(_address(r) for r in (*_inputs(step), *step.writes))
                yield f"{pad}{names[_kernel_key(step)]}({arguments});"
            case Copy(source, target, nbytes):
                yield f"{pad}memcpy({_address(target)}, {_address(source)}, {nbytes});"
            case Repeat(trip, level, counter, even, odd):
                yield f"{pad}for (int32_t t{level} = 0; t{level} < {trip}; t{level}++) {{"
                yield f"{pad}  *(int32_t *){_address(counter)} = t{level};"
                yield f"{pad}  if (t{level} % 2 == 0) {{"
                yield from _steps(even, names, depth + 2)
                yield f"{pad}  }} else {{"
                yield from _steps(odd, names, depth + 2)
                yield f"{pad}  }}"
                yield f"{pad}}}"


def _inputs(run: Run) -> tuple[Ref, ...]:
    """Buffers in the order of the kernel's parameters."""
    place = dict(zip(reads(run.graph, run.group.nodes), run.reads, strict=True))
    return tuple(place[value] for value in extract(run.graph, run.group)[1])


def _address(ref: Ref) -> str:
    base = "work" if ref.space == "work" else f"(char *)buffers[AF_{ref.space.upper()} + {ref.index}]"
    parts = [base]
    if ref.offset:
        parts.append(str(ref.offset))
    if ref.stride:
        parts.append(f"(int64_t)t{ref.level} * {ref.stride}")
    return f"(void *)({' + '.join(parts)})"


def _gemm(run: Run, pad: str) -> Iterator[str]:
    """Row-major C = A B as the column-major product of the transposes, cut into one slice per
    thread: BLAS itself runs single-threaded, so that its threads do not fight OpenMP's."""
    form = blas_form(run.graph, run.group)
    assert form is not None
    dtype = run.graph.type_of(run.group.outputs[0]).dtype
    t, slot = ("float", 0) if dtype is DType.F32 else ("double", 1)
    node = run.graph[run.group.nodes[0]]
    place = dict(zip(reads(run.graph, run.group.nodes), run.reads, strict=True))
    a, b = (_address(place[v]) for v in node.inputs)
    m, n, k, lda, ldb = (str(x) for x in _extents(form))
    threads = int(run.launch.get("threads", 1))
    slices = 1 if form.batch >= 2 * threads else threads
    by_rows = form.m >= form.n or form.m >= 64 * threads
    whole = form.m if by_rows else form.n
    yield f"{pad}#pragma omp parallel for num_threads({threads}) schedule(static)"
    yield f"{pad}for (int64_t i = 0; i < {form.batch * slices}; i++) {{"
    yield f"{pad}  const int64_t j = i / {slices}, s = i % {slices};"
    yield f"{pad}  const int first = (int)({whole} * s / {slices});"
    yield f"{pad}  const int count = (int)({whole} * (s + 1) / {slices}) - first;"
    yield f"{pad}  const {t} one = 1, zero = 0;"
    mine = ("count", n) if by_rows else (m, "count")
    yield f"{pad}  const int m = {mine[0]}, n = {mine[1]}, k = {k}, lda = {lda}, ldb = {ldb}, ldc = {n};"
    shift_a = f"first{'' if form.trans_a else f' * (int64_t){k}'}" if by_rows else "0"
    shift_b = "0" if by_rows else f"first{f' * (int64_t){k}' if form.trans_b else ''}"
    shift_c = f"first * (int64_t){n}" if by_rows else "first"
    yield f"{pad}  const {t} *a = (const {t} *){a} + j * {form.m * form.k} + {shift_a};"
    yield f"{pad}  const {t} *b = (const {t} *){b} + j * {form.k * form.n} + {shift_b};"
    yield f"{pad}  {t} *c = ({t} *){_address(run.writes[0])} + j * {form.m * form.n} + {shift_c};"
    call = f"((af_gemm_{dtype})blas[{slot}])"
    ta, tb = ("T" if form.trans_a else "N"), ("T" if form.trans_b else "N")
    yield f'{pad}  {call}("{tb}", "{ta}", &n, &m, &k, &one, b, &ldb, a, &lda, &zero, c, &ldc);'
    yield f"{pad}}}"


def _extents(form: GemmForm) -> tuple[int, int, int, int, int]:
    """m, n, k and the leading dimensions of A and B as stored."""
    lda, ldb = (form.m if form.trans_a else form.k), (form.k if form.trans_b else form.n)
    return form.m, form.n, form.k, lda, ldb
