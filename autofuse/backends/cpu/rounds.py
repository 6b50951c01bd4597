"""A whole loop as one job of the thread pool (`rounds.c`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from itertools import chain

from autofuse.backends.cache import content_key
from autofuse.backends.cpu.tasks import Callees, KernelCall, same_kernel, task_of
from autofuse.plan.parameters import THREADS
from autofuse.plan.program.schedule import Repeat, Run, kernel_runs

# Pieces of a round for each member of a team, and rounds that a ticket can count.
CHUNKS_EACH, MOST_ROUNDS = 4, 1 << 22


def rounds_text() -> str:
    """What runs a whole loop as one job."""
    return files("autofuse.backends.cpu").joinpath("rounds.c").read_text()


def is_job(step: Repeat, calls: Callees) -> bool:
    """Whether a loop runs as one job of the pool: it is to, several threads share it, there is
    something to do in every kernel, and none is a call of oneDNN, which is a job itself."""
    runs = kernel_runs((step,))
    shared = any(THREADS.of(run.launch) > 1 for run in runs)
    called = [calls.get(same_kernel(run)) for run in runs]
    plain = all(c is None or (isinstance(c, KernelCall) and c.iterations > 0) for c in called)
    return step.resident and shared and plain and step.trip * len(runs) < MOST_ROUNDS


def _members(step: Repeat) -> int:
    return max(THREADS.of(run.launch) for run in kernel_runs((step,)))


def job_name(step: Repeat, calls: Callees, gemms: Mapping[Run, int]) -> str:
    """A name that follows from the content."""
    return f"af_job_{content_key(list(job_body(step, calls, gemms)))[:16]}"


def job_body(step: Repeat, calls: Callees, gemms: Mapping[Run, int]) -> Iterator[str]:
    """The body of what a member of the team does for one kernel of one iteration."""
    each = len(step.turns[0])
    yield "{"
    yield "  void **const buffers = (void **)c[0], **const blas = (void **)c[1];"
    yield "  char *const work = (char *)c[2];"
    yield f"  int32_t t{step.level} = (int32_t)(round / {each});"
    yield "  (void)buffers; (void)blas; (void)work;"
    yield f"  switch (round % {each * len(step.turns)}) {{"
    for k, run in enumerate(kernel_runs(chain(*step.turns))):
        own = task_of(run, calls, gemms)
        table = own.table({step.counter: f"(void *)&t{step.level}"})
        yield f"  case {k}: {{ void *p[] = {{{table}}}; {own.name}(p, first, last); break; }}"
    yield "  }"
    yield "}"


def issued_at_once(
    step: Repeat, calls: Callees, gemms: Mapping[Run, int], pad: str
) -> Iterator[str]:
    """A loop as one job, of which every kernel of an iteration is a round."""
    members, totals, chunks = _members(step), [], []
    for run in kernel_runs(chain(*step.turns)):
        total = task_of(run, calls, gemms).total
        alone = THREADS.of(run.launch) == 1
        totals.append(total)
        chunks.append(total if alone else max(1, total // (members * CHUNKS_EACH)))
    rounds = step.trip * len(step.turns[0])
    yield f"{pad}{{"
    yield f"{pad}  static const int64_t totals[] = {{{', '.join(map(str, totals))}}};"
    yield f"{pad}  static const int64_t chunks[] = {{{', '.join(map(str, chunks))}}};"
    yield f"{pad}  void *c[] = {{buffers, blas, work}};"
    context = f"{job_name(step, calls, gemms)}, c, totals, chunks, {len(totals)}, {rounds}, 0, 0"
    yield f"{pad}  af_rounds job = {{{context}}};"
    yield f"{pad}  parallel(af_member, (void **)&job, {members}, {members});"
    yield f"{pad}}}"
