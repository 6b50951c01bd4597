"""Factorisations by LAPACK as tasks that threads share: some of many matrices each.

LAPACK has columns one after another, so that a matrix of ours is its transpose there. Where that
is no other problem (symmetric matrices, both sides of a singular value decomposition, triangles),
nothing is moved; elsewhere a matrix is turned on its way in and out. A matrix that a routine fails
for becomes NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from autofuse.backends.cpu.lapack import slot
from autofuse.kernel.library.gemm import library_solver
from autofuse.ops.dtypes import DType
from autofuse.ops.library_forms import Solver
from autofuse.ops.solvers import GOLDEN
from autofuse.plan.program.schedule import Run

# Columns that a blocked routine works on together at most (ILAENV's NB).
_BLOCK = 64
# A task in C: what it declares once (integers, floats of work), and what it does of one matrix:
# `in` and `side` are its operands, `out` its result.
TaskText = Iterator[str]


def solver_of(run: Run) -> Solver:
    """What a run asks LAPACK for."""
    found = library_solver(run.graph, run.group)
    assert found is not None
    return found


def solver_task(run: Run, name: str) -> TaskText:
    """The task of a run, called with its operands, its result and the tables of libraries."""
    own, node = solver_of(run), run.graph[run.group.nodes[0]]
    call = run.graph.call(run.group.nodes[0])
    wide = node.types[0].dtype is DType.F64
    t, work, whole = "double" if wide else "float", _work(own), _integers(own)
    sides = [type_.size // own.count for type_ in (*call.ins, node.types[0])]
    yield f"static void {name}(void **p, int64_t first, int64_t last)"
    yield "{"
    yield f"  void **const table = (void **)((void **)p[{len(sides)}])[6];"
    yield f"  {t} *const work = malloc(sizeof({t}) * {work + 1}LL + sizeof(int) * {whole}LL);"
    yield f"  int *const whole = (int *)(work + {work + 1}LL);"
    yield f"  int n = {own.columns}, m = {own.rows}, k = {own.inner}, least = {own.least};"
    yield f"  int room = {work}, places = {whole}, info = 0;"
    yield f"  {t} one = 1;"
    yield "  (void)n, (void)m, (void)k, (void)least, (void)one;"
    yield "  (void)room, (void)places, (void)whole;"
    yield "  for (int64_t i = first; i < last; i++) {"
    names = ("in", "side", "out") if len(sides) == 3 else ("in", "out")
    for at, (array, size) in enumerate(zip(names, sides, strict=True)):
        const = "" if array == "out" else "const "
        yield f"    {const}{t} *const {array} = ({const}{t} *)p[{at}] + i * {size}LL;"
    yield "    info = work == NULL;"
    yield "    if (!info) {"
    for line in _TEXTS[own.kind](own, t, lambda routine: slot(routine, wide)):
        yield f"      {line}"
    yield "    }"
    yield f"    if (info) for (int64_t j = 0; j < {sides[-1]}LL; j++) out[j] = NAN;"
    yield "  }"
    yield "  free(work);"
    yield "}"


Slot = Callable[[str], int]


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


def _signed(along: str, by: str, each: str, count: str, size: str) -> TaskText:
    """Turn around each of `count` vectors of `size` that points away from `direction`; `along(j)`
    names element j of vector v, `by` the arrays that hold it, as statements on element j."""
    yield f"for (int64_t v = 0; v < {count}; v++) {{"
    yield "  double dot = 0;"
    yield f"  for (int64_t j = 0; j < {size}; j++) {{"
    yield f"    const double w = (double)j * {GOLDEN!r};"
    yield f"    dot += {along} * (0.5 + (w - floor(w)));"
    yield "  }"
    yield "  if (dot < 0) {"
    yield f"    for (int64_t j = 0; j < {size}; j++) {by};"
    if each:
        yield f"    {each};"
    yield "  }"
    yield "}"


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
    yield f"room -= {size};"
    yield _call(
        at("geqrf"), "&m", "&n", "work", "&m", f"out + {size}", f"work + {size}", "&room", "&info"
    )
    yield f"room += {size};"
    yield _turned("out", "work", "n", "m")


def _orgqr(s: Solver, t: str, at: Slot) -> TaskText:
    size = s.rows * s.columns
    yield _turned("work", "in", "m", "n")
    yield f"room -= {size};"
    yield _call(
        at("orgqr"), "&m", "&n", "&k", "work", "&m", f"({t} *)side", f"work + {size}", "&room",
        "&info",
    )  # fmt: skip
    yield f"room += {size};"
    yield _turned("out", "work", "n", "m")


def _triangular_solve(s: Solver, t: str, at: Slot) -> TaskText:
    """x^T a^T = b^T, in place."""
    yield _copied("out", "side", s.rows * s.inner, t)
    yield _call(
        at("trsm"), '"R"', '"U"' if s.lower else '"L"', '"N"', '"U"' if s.unit else '"N"', "&k",
        "&n", "&one", f"({t} *)in", "&n", "out", "&k",
    )  # fmt: skip


def _eigh(s: Solver, t: str, at: Slot) -> TaskText:
    size = s.rows * s.rows
    yield _copied("work", "in", size, t)
    yield f"room -= {size};"
    yield _call(
        at("syevd"), '"V"', '"U"' if s.lower else '"L"', "&n", "work", "&n", "out",
        f"work + {size}", "&room", "whole", "&places", "&info",
    )  # fmt: skip
    yield f"room += {size};"
    yield from _signed("work[v * n + j]", "work[v * n + j] = -work[v * n + j]", "", "n", "n")
    yield _turned("(out + n)", "work", "n", "n")


def _svd(s: Solver, t: str, at: Slot) -> TaskText:
    """a^T = v s u^T: what LAPACK gives for that is u and v^T as we have them."""
    size = s.rows * s.columns
    left, right = f"(out + {s.least})", f"(out + {s.least + s.rows * s.least})"
    yield _copied("work", "in", size, t)
    yield f"room -= {size};"
    yield _call(
        at("gesdd"), '"S"', "&n", "&m", "work", "&n", "out", right, "&n", left, "&least",
        f"work + {size}", "&room", "whole", "&info",
    )  # fmt: skip
    yield f"room += {size};"
    element = f"{left}[j * least + v]"
    other = f"{right}[v * n + j]"
    yield from _signed(
        element, f"{element} = -{element}",
        f"for (int64_t j = 0; j < n; j++) {other} = -{other}", "least", "m",
    )  # fmt: skip


def _svdvals(s: Solver, t: str, at: Slot) -> TaskText:
    size = s.rows * s.columns
    yield _copied("work", "in", size, t)
    yield f"room -= {size};"
    yield _call(
        at("gesdd"), '"N"', "&n", "&m", "work", "&n", "out", "&one", "&n", "&one", "&least",
        f"work + {size}", "&room", "whole", "&info",
    )  # fmt: skip
    yield f"room += {size};"


_TEXTS: dict[str, Callable[[Solver, str, Slot], TaskText]] = {
    "cholesky": _cholesky,
    "eigh": _eigh,
    "geqrf": _geqrf,
    "lu": _lu,
    "orgqr": _orgqr,
    "svd": _svd,
    "svdvals": _svdvals,
    "triangular_solve": _triangular_solve,
}


def _work(s: Solver) -> int:
    """Floats that a routine works in, with the matrix that it overwrites (the pages of LAPACK's
    routines; of blocked ones what is best, at least)."""
    size, long = s.rows * s.columns, max(s.rows, s.columns)
    decomposing = 4 * s.least * s.least + 7 * s.least + long + _BLOCK * (s.rows + s.columns)
    return size + {
        "eigh": 1 + 6 * s.rows + 2 * s.rows * s.rows,
        "geqrf": _BLOCK * s.columns,
        "orgqr": _BLOCK * s.columns,
        "svd": decomposing,
        "svdvals": decomposing,
    }.get(s.kind, 0)


def _integers(s: Solver) -> int:
    """Integers that a routine works in."""
    return {"eigh": 3 + 5 * s.rows, "lu": s.least}.get(s.kind, 8 * s.least)
