"""A Fourier transform by pocketfft as a task that threads share: some of many transforms each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autofuse.backends.cpu.pocketfft import slot
from autofuse.kernel.library.gemm import library_transform
from autofuse.ops.library_forms import Transform
from autofuse.plan.program.schedule import Run


def transform_of(run: Run) -> Transform:
    """What a run transforms by the library."""
    found = library_transform(run.graph, run.group)
    assert found is not None
    return found


def fft_task(run: Run, name: str) -> Iterator[str]:
    """The task of a run: what the table's loop is called with is what NumPy calls it with."""
    own, type_ = transform_of(run), run.graph.type_of(run.group.outputs[0])
    t, width = ("float", 4) if type_.dtype.numpy == np.float32 else ("double", 8)
    at = slot(own.kind, own.n, np.dtype(type_.dtype.numpy))
    (places, read), (made, written) = ((n, width * parts) for n, parts in own.sides)
    # Neighbours along the axis lie `after` numbers apart, transforms next to each other or a whole
    # axis apart.
    alone = own.after == 1
    rest = "last - first" if alone else f"{own.after} - first % {own.after}"
    yield f"static void {name}(void **p, int64_t first, int64_t last)"
    yield "{"
    yield "  void **const table = (void **)((void **)p[2])[5];"
    yield f"  const {t} one = 1;"
    yield "  while (first < last) {"
    yield f"    const int64_t before = first / {own.after}, rest = {rest};"
    yield "    const intptr_t count = (intptr_t)(last - first < rest ? last - first : rest);"
    for array, place, extent, size in (("in", 0, places, read), ("out", 1, made, written)):
        offset = f"before * {extent * own.after}LL + first % {own.after}"
        yield f"    char *{array} = (char *)p[{place}] + ({offset}) * {size};"
    yield "    char *args[] = {in, (char *)&one, out};"
    apart = (places * read, made * written) if alone else (read, written)
    yield f"    const intptr_t extents[] = {{count, {places}, {made}}};"
    steps = (apart[0], 0, apart[1], own.after * read, own.after * written)
    yield f"    const intptr_t steps[] = {{{', '.join(map(str, steps))}}};"
    yield f"    ((af_ufunc)table[{at}])(args, extents, steps, table[{at + 1}]);"
    yield "    first += count;"
    yield "  }"
    yield "}"
