"""The entry of a CPU program: a schedule's steps as C calls.

`blas` holds sgemm, dgemm, set_threads (or null), parallel (see `pool.c`), what calls of oneDNN need
(see `onednn.c`), the loops of pocketfft (see `pocketfft.py`) and the routines of LAPACK (see
`lapack.py`), or null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files

from autofuse.backends.cpu.rounds import is_job, issued_at_once, job_body, job_name, rounds_text
from autofuse.backends.cpu.tasks import (
    Callees,
    DnnlCallee,
    KernelCall,
    address,
    called_by_table,
    library_text,
    same_kernel,
    task_head,
    task_of,
    with_task,
)
from autofuse.backends.heads import needed_parts
from autofuse.graph.types import Graph
from autofuse.kernel.library.gemm import library_of
from autofuse.kernel.library.onednn import dnnl_group
from autofuse.kernel.text.dialects import C, prelude_file
from autofuse.plan.fusion.groups import reads
from autofuse.plan.parameters import FFT, LAPACK, THREADS
from autofuse.plan.program.schedule import (
    Copy,
    Ref,
    Repeat,
    Run,
    Schedule,
    Step,
    While,
    kernel_runs,
)

ENTRY = "af_entry"
PROFILE = f"{ENTRY}_profile"
# What runs once, in a program with constants.
PREPARE = f"{ENTRY}_prepare"
# What an entry says where a table is missing: NumPy's transforms, SciPy's LAPACK. By library: the
# table's place, and what is said.
_TABLES = {FFT: (5, 5), LAPACK: (6, 6)}
_CLOCK = """static double af_now_us(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}
/* What has passed since then, added up; now. */
static double af_lap(double since_us, double *us)
{
  const double now_us = af_now_us();
  *us += now_us - since_us;
  return now_us;
}"""
# One text for both, since compiling an entry takes as long as compiling several kernels.
_ENTRIES = f"""int32_t {ENTRY}(void **buffers, void *workspace, void **blas)
{{ return af_steps(buffers, workspace, blas, NULL); }}
int32_t {PROFILE}(void **buffers, void *workspace, void **blas, double *us)
{{ return af_steps(buffers, workspace, blas, us); }}"""
_PREPARE = f"""int32_t {PREPARE}(void **buffers, void *workspace, void **blas)
{{ return af_once(buffers, workspace, blas, NULL); }}"""
# Headers of C with what needs them: reading three of them takes as long as the rest of an entry.
_HEADERS = """
#include <time.h>
/* part: NAN floor */
#include <math.h>
/* part: malloc free */
#include <stdlib.h>
/* part: mem */
#include <string.h>
"""
_RUNTIME = """
typedef void (*af_gemm_f32)(const char *, const char *, const int *, const int *, const int *,
  const float *, const float *, const int *, const float *, const int *, const float *,
  float *, const int *);
typedef void (*af_gemm_f64)(const char *, const char *, const int *, const int *, const int *,
  const double *, const double *, const int *, const double *, const int *, const double *,
  double *, const int *);
typedef void (*af_ufunc)(char **, const intptr_t *, const intptr_t *, void *);
typedef int (*af_set_threads)(int);
typedef void (*af_task)(void **, int64_t, int64_t);
typedef void (*af_parallel)(af_task, void **, int64_t, int);
"""


def entry_text(graph: Graph, plan: Schedule, calls: Callees) -> str:
    """The translation unit of the entry; kernels are declared here and defined elsewhere."""
    names = {call.name for call in calls.values() if isinstance(call, KernelCall)}
    gemms = [r for r in kernel_runs(plan.everything) if called_by_table(r)]
    numbers = {run: i for i, run in enumerate(dict.fromkeys(map(same_kernel, gemms)))}
    lines = [_RUNTIME, *(f"{task_head(name)};" for name in sorted(names))]
    for run, number in numbers.items():
        lines += library_text(run, number)
    if any(isinstance(call, DnnlCallee) for call in calls.values()):
        lines.append(dnnl_text())
    lines += [_spaces(graph, plan), _CLOCK]
    jobs = [s for s in plan.everything if isinstance(s, Repeat) and is_job(s, calls)]
    lines += [rounds_text()] if jobs else []
    bodies = {job_name(job, calls, numbers): job_body(job, calls, numbers) for job in jobs}
    for name, body in bodies.items():
        lines.append(f"static void {name}(void **c, int64_t round, int64_t first, int64_t last)")
        lines += body
    lines += _steps_of(plan, calls, numbers, "af_steps")
    lines += [_ENTRIES]
    if plan.binding.bound:
        once = Schedule(plan.prepare, (), 0, (-1,) * len(plan.prepare))
        lines += _steps_of(once, calls, numbers, "af_once")
        lines += [_PREPARE]
    text = "\n".join(lines) + "\n"
    return f"{prelude_file(C.preludes[0])}\n{needed_parts(_HEADERS, text)}\n{text}"


def runtime_text() -> str:
    """What every entry is made of whatever its plan: the steps of a loop around a copy, and the
    task that runs a kernel."""
    here, there = Ref("work"), Ref("work", offset=64)
    copy = (Copy(here, there, 64),)
    turns = (copy, (), ())
    loop = Repeat(2, 0, here, turns)
    ended = While(2, 0, here, turns[:2], (here, there), 1, turns[:2])
    plan = Schedule((loop, ended), (), 128, (0, 0))
    bare = Graph((), (), ())
    return "\n".join([entry_text(bare, plan, {}), with_task("", "KERNEL", 1), rounds_text()])


def dnnl_text() -> str:
    """What runs calls of oneDNN, whichever they are."""
    return files("autofuse.backends.cpu").joinpath("onednn.c").read_text()


def library_task(run: Run) -> str:
    """The text of a library call, whatever else is in the plan."""
    return "\n".join(library_text(run, 0))


def _spaces(graph: Graph, plan: Schedule) -> str:
    inputs = len(graph.inputs)
    out = inputs + len(plan.constants)
    held = f", AF_HELD = {out + len(graph.outputs)}" if plan.binding.bound else ""
    return f"enum {{ AF_IN = 0, AF_CONST = {inputs}, AF_OUT = {out}{held} }};"


def _steps_of(plan: Schedule, calls: Callees, gemms: Mapping[Run, int], name: str) -> Iterator[str]:
    """The steps of a plan, which add the microseconds of each group to `us[group]` where there is
    such an array."""
    yield f"static int32_t {name}(void **buffers, void *workspace, void **blas, double *us)"
    yield "{"
    yield "  char *const work = (char *)workspace;"
    yield "  const af_parallel parallel = (af_parallel)blas[3];"
    yield "  (void)work; (void)buffers; (void)parallel;"
    may_fail = any(isinstance(call, DnnlCallee) for call in calls.values())
    if may_fail:
        yield "  int32_t failed = 0;"
    called = {library_of(run.graph, run.group, run.launch, C) for run in gemms}
    for library, (place, said) in _TABLES.items():
        if library in called:
            yield f"  if (!blas[{place}]) return {said};"
    yield "  double since_us = us ? af_now_us() : 0.0;"
    if gemms:
        # BLAS runs single-threaded inside our threads: two pools would wait for each other.
        yield "  const af_set_threads set = (af_set_threads)blas[2];"
        yield "  const int before = set ? set(1) : 0;"
    for step, owner in zip(plan.steps, plan.owners, strict=True):
        yield from _steps((step,), calls, gemms, 1)
        now = f"af_lap(since_us, us + {owner})" if owner >= 0 else "af_now_us()"
        yield f"  if (us) since_us = {now};"
    if gemms:
        yield "  if (set) set(before);"
    yield "  (void)since_us;"
    yield f"  return {'failed' if may_fail else 0};"
    yield "}"


def _steps(
    steps: Iterable[Step], calls: Callees, gemms: Mapping[Run, int], depth: int
) -> Iterator[str]:
    pad = "  " * depth
    for step in steps:
        match step:
            case Run():
                yield from _call(step, calls, gemms, pad)
            case Copy(source, target, nbytes):
                yield f"{pad}memcpy({address(target)}, {address(source)}, {nbytes});"
            case Repeat() if is_job(step, calls):
                yield from issued_at_once(step, calls, gemms, pad)
            case Repeat(trip, level, counter):
                yield f"{pad}for (int32_t t{level} = 0; t{level} < {trip}; t{level}++) {{"
                yield f"{pad}  *(int32_t *){address(counter)} = t{level};"
                yield from _turns(step.turns, step.level, calls, gemms, depth + 1)
                yield f"{pad}}}"
            case While():
                yield from _while(step, calls, gemms, pad)


def _while(step: While, calls: Callees, gemms: Mapping[Run, int], outer: str) -> Iterator[str]:
    t, pad, depth = f"t{step.level}", f"{outer}  ", len(outer) // 2 + 2
    *others, going = (f"memchr({address(go)}, 1, {step.flags})" for go in step.go)
    for k, flags in reversed(list(enumerate(others))):
        going = f"({t} % {len(step.go)} == {k} ? {flags} : {going})"
    yield f"{outer}{{"
    yield f"{pad}int32_t {t} = 0;"
    yield f"{pad}for (; {t} < {step.trip} && {going} != NULL; {t}++) {{"
    yield f"{pad}  *(int32_t *){address(step.counter)} = {t};"
    yield from _turns(step.turns, step.level, calls, gemms, depth)
    yield f"{pad}}}"
    yield from _turns(step.ends, step.level, calls, gemms, depth - 1)
    yield f"{outer}}}"


def _turns(
    turns: Sequence[Sequence[Step]], level: int, calls: Callees, gemms: Mapping[Run, int],
    depth: int,
) -> Iterator[str]:  # fmt: skip
    """The steps of one of the turns, by the iteration number."""
    pad, last = "  " * depth, len(turns) - 1
    if last == 0:
        yield from _steps(turns[0], calls, gemms, depth)
        return
    for k, steps in enumerate(turns):
        head = f"if (t{level} % {len(turns)} == {k}) {{" if k < last else "{"
        yield f"{pad}{'} else ' if k else ''}{head}"
        yield from _steps(steps, calls, gemms, depth + 1)
    yield f"{pad}}}"


def _call(run: Run, calls: Callees, gemms: Mapping[Run, int], pad: str) -> Iterator[str]:
    threads = THREADS.of(run.launch)
    callee = calls.get(same_kernel(run))
    if isinstance(callee, DnnlCallee):
        yield f"{pad}{{ void *p[] = {{{_operands(run)}, blas[4], 0, &failed}};"
        yield f"{pad}  af_dnnl_call(p, {callee.number}, parallel, {threads}); }}"
        return
    own = task_of(run, calls, gemms)
    start = "parallel(" if threads > 1 and own.total > 1 else ""
    end = f"{own.total}, {threads})" if start else f"0, {own.total})"
    task = f"{start}{own.name}, p, {end}" if start else f"{own.name}(p, {end}"
    yield f"{pad}{{ void *p[] = {{{own.table()}}}; {task}; }}"


def _operands(run: Run) -> str:
    """The arrays of a call of oneDNN: source, weights, result."""
    place = dict(zip(reads(run.graph, run.group.nodes), run.reads, strict=True))
    found = dnnl_group(run.graph, run.group)
    assert found is not None
    return ", ".join(map(address, (place[found.lhs], place[found.rhs], *run.writes)))
