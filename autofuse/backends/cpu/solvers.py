"""Factorisations by LAPACK as tasks that threads share: some of many matrices each.

LAPACK has columns one after another, so that a matrix of ours is its transpose there. Where that
is no other problem (symmetric matrices, both sides of a singular value decomposition, triangles),
nothing is moved; elsewhere a matrix is turned on its way in and out. A matrix that a routine fails
for becomes NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autofuse.backends.cpu.lapack import slot
from autofuse.kernel.library.gemm import library_solver
from autofuse.ops.dtypes import DType
from autofuse.ops.library_forms import Solver
from autofuse.ops.solvers import GOLDEN
from autofuse.plan.program.schedule import Run

# Columns that a blocked routine works on together at most (ILAENV's NB).
_BLOCK = 64
TaskText = Iterator[str]
Slot = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class _Routine:
    """How an op is computed. `lines` are what is done of one matrix, in C: `in` and `side` are its
    operands, `out` its result; there is room for a matrix in `work`, for `floats` more in `own` and
    for `integers` in `whole` (the pages of LAPACK's routines; of blocked ones at least what is
    best)."""

    lines: Callable[[Solver, str, Slot], TaskText]
    floats: Callable[[Solver], int] = lambda s: 0
    integers: Callable[[Solver], int] = lambda s: 0


def solver_of(run: Run) -> Solver:
    """What a run asks LAPACK for."""
    found = library_solver(run.graph, run.group)
    assert found is not None
    return found


def solver_task(run: Run, name: str) -> TaskText:
    """The task of a run, called with its operands, its result and the tables of libraries."""
    s, node = solver_of(run), run.group.nodes[0]
    call, routine = run.graph.call(node), _ROUTINES[s.kind]
    wide = call.out.dtype is DType.F64
    t, size, floats = "double" if wide else "float", s.rows * s.columns, routine.floats(s)
    arrays = ("in", "side", "out") if len(call.ins) == 2 else ("in", "out")
    sizes = [type_.size // s.count for type_ in (*call.ins, call.out)]
    yield f"static void {name}(void **p, int64_t first, int64_t last)"
    yield "{"
    yield f"  void **const table = (void **)((void **)p[{len(arrays)}])[6];"
    room = f"sizeof({t}) * {size + floats}LL + sizeof(int) * {routine.integers(s)}LL"
    yield f"  {t} *const work = malloc({room}), *const own = work + {size}, one = 1;"
    yield f"  int *const whole = (int *)(own + {floats});"
    yield f"  int n = {s.columns}, m = {s.rows}, k = {s.inner}, least = {s.least};"
    yield f"  int room = {floats}, places = {routine.integers(s)}, info = 0;"
    yield "  (void)n, (void)m, (void)k, (void)least, (void)one;"
    yield "  (void)room, (void)places, (void)whole;"
    yield "  for (int64_t i = first; i < last; i++) {"
    for at, (array, each) in enumerate(zip(arrays, sizes, strict=True)):
        const = "" if array == "out" else "const "
        yield f"    {const}{t} *const {array} = ({const}{t} *)p[{at}] + i * {each}LL;"
    yield "    info = work == NULL;"
    yield "    if (!info) {"
    for line in routine.lines(s, t, lambda name: slot(name, wide)):
        yield f"      {line}"
    yield "    }"
    yield f"    if (info) for (int64_t j = 0; j < {sizes[-1]}LL; j++) out[j] = NAN;"
    yield "  }"
    yield "  free(work);"
    yield "}"


def _call(at: int, *arguments: str) -> str:
    types = ", ".join(["void *"] * len(arguments))
    return f"((void (*)({types}))table[{at}])({', '.join(arguments)});"


def _copied(target: str, source: str, count: int, t: str) -> str:
    return f"memcpy({target}, {source}, sizeof({t}) * {count}LL);"


def _turned(target: str, source: str, rows: str, columns: str) -> str:
    """target[column][row] = source[row][column]."""
    return (
        f"for (int64_t r = 0; r < {rows}; r++) for (int64_t c = 0; c < {columns}; c++) "
        f"{target}[c * {rows} + r] = {source}[r * {columns} + c];"
    )


def _pointing(element: str, count: str, size: str, *turns: str) -> TaskText:
    """Turn around each of `count` vectors that points away from `direction`: vector v has `size`
    elements, of which number j is `element`; `turns` are statements that turn it."""
    yield f"for (int64_t v = 0; v < {count}; v++) {{"
    yield "  double dot = 0;"
    yield f"  for (int64_t j = 0; j < {size}; j++) {{"
    yield f"    const double w = (double)j * {GOLDEN!r};"
    yield f"    dot += {element} * (0.5 + (w - floor(w)));"
    yield "  }"
    yield "  if (dot < 0) {"
    for turn in turns:
        yield f"    {turn}"
    yield "  }"
    yield "}"


def _negated(element: str, size: str) -> str:
    return f"for (int64_t j = 0; j < {size}; j++) {element} = -{element};"


def _cholesky(s: Solver, t: str, at: Slot) -> TaskText:
    yield _copied("out", "in", s.rows * s.rows, t)
    yield _call(at("potrf"), '"U"', "&n", "out", "&n", "&info")
    yield "for (int64_t r = 0; r < n; r++) for (int64_t c = r + 1; c < n; c++) out[r * n + c] = 0;"


def _lu(s: Solver, t: str, at: Slot) -> TaskText:
    yield _turned("work", "in", "m", "n")
    yield _call(at("getrf"), "&m", "&n", "work", "&m", "whole", "&info")
    yield "info = info < 0;"
    yield _turned("out", "work", "n", "m")
    yield f"for (int64_t j = 0; j < least; j++) out[{s.rows * s.columns}LL + j] = whole[j] - 1;"


def _geqrf(s: Solver, t: str, at: Slot) -> TaskText:
    size = s.rows * s.columns
    yield _turned("work", "in", "m", "n")
    yield _call(at("geqrf"), "&m", "&n", "work", "&m", f"out + {size}", "own", "&room", "&info")
    yield _turned("out", "work", "n", "m")


def _orgqr(s: Solver, t: str, at: Slot) -> TaskText:
    yield _turned("work", "in", "m", "n")
    yield _call(
        at("orgqr"), "&m", "&n", "&k", "work", "&m", f"({t} *)side", "own", "&room", "&info"
    )
    yield _turned("out", "work", "n", "m")


def _triangular_solve(s: Solver, t: str, at: Slot) -> TaskText:
    """x^T a^T = b^T, in place."""
    yield _copied("out", "side", s.rows * s.inner, t)
    yield _call(
        at("trsm"), '"R"', '"U"' if s.lower else '"L"', '"N"', '"U"' if s.unit else '"N"', "&k",
        "&n", "&one", f"({t} *)in", "&n", "out", "&k",
    )  # fmt: skip


def _eigh(s: Solver, t: str, at: Slot) -> TaskText:
    yield _copied("work", "in", s.rows * s.rows, t)
    yield _call(
        at("syevd"), '"V"', '"U"' if s.lower else '"L"', "&n", "work", "&n", "out", "own", "&room",
        "whole", "&places", "&info",
    )  # fmt: skip
    vector = "work[v * n + j]"
    yield from _pointing(vector, "n", "n", _negated(vector, "n"))
    yield _turned("(out + n)", "work", "n", "n")


def _svd(s: Solver, t: str, at: Slot) -> TaskText:
    """a^T = v s u^T: what LAPACK gives for that is u and v^T as we have them."""
    left, right = f"(out + {s.least})", f"(out + {s.least + s.rows * s.least})"
    yield from _decomposed(s, t, at, '"S"', right, "&n", left, "&least")
    column, row = f"{left}[j * least + v]", f"{right}[v * n + j]"
    yield from _pointing(column, "least", "m", _negated(column, "m"), _negated(row, "n"))


def _svdvals(s: Solver, t: str, at: Slot) -> TaskText:
    yield from _decomposed(s, t, at, '"N"', "&one", "&n", "&one", "&least")


def _decomposed(s: Solver, t: str, at: Slot, job: str, *vectors: str) -> TaskText:
    yield _copied("work", "in", s.rows * s.columns, t)
    yield _call(
        at("gesdd"), job, "&n", "&m", "work", "&n", "out", *vectors, "own", "&room", "whole",
        "&info",
    )  # fmt: skip


def _decomposing(s: Solver) -> int:
    long = max(s.rows, s.columns)
    return 4 * s.least * s.least + 7 * s.least + long + _BLOCK * (s.rows + s.columns)


def _panels(s: Solver) -> int:
    return _BLOCK * s.columns


_ROUTINES = {
    "cholesky": _Routine(_cholesky),
    "eigh": _Routine(
        _eigh, lambda s: 1 + 6 * s.rows + 2 * s.rows * s.rows, lambda s: 3 + 5 * s.rows
    ),
    "geqrf": _Routine(_geqrf, _panels),
    "lu": _Routine(_lu, integers=lambda s: s.least),
    "orgqr": _Routine(_orgqr, _panels),
    "svd": _Routine(_svd, _decomposing, lambda s: 8 * s.least),
    "svdvals": _Routine(_svdvals, _decomposing, lambda s: 8 * s.least),
    "triangular_solve": _Routine(_triangular_solve),
}
