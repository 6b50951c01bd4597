"""Measure the reciprocal throughput of scalar functions: nanoseconds from one result to the next of
many independent ones, in the first-level cache, as the compiler makes them of the printer's text.

It is the best that a kernel could do: of loops of one function, of the function twice, and of it
beside another one. Where two beside each other take less than both by themselves, their units
are not wholly shared, and both count for that much less (Fog's tables and uops.info find the same
from ports, which not every processor tells).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autofuse.backends.base import Program, Source
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cpu.backend import FLAGS, MATH_FLAGS
from autofuse.backends.machine import vector_bits
from autofuse.backends.sealed import load_checked
from autofuse.cost.scalar_calls import FLOATS, WHOLE, call_name
from autofuse.kernel.text.dialects import LANES, C
from autofuse.kernel.text.expressions import expression
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import LIBM, Call, Expr, Sym, call
from autofuse.ops.types import TensorType

# Elements of a loop: three arrays of the widest type stay in a first-level cache of 32 KiB.
ELEMENTS = 1024
# What other library functions are measured beside.
PARTNERS = ("exp", "log", "sin")
# Seconds of one run, and passes over all loops: what disturbs one pass is gone in the next.
RUN_S, PASSES = 3e-5, 48
# Functions that take no longer than so many copies are not told apart from loads and stores.
TELLING = 1.5
# The width of code that is not vectorised.
SCALAR_BITS = 0
_ENTRY = "af_calibrate_scalar"
_BINARY = frozenset(("pow", "atan2", "div", "rem", "mul", "mulhi"))
_COPY = "copy"
# No static arrays: compilers drop what is written to these and never read.
_SEEN = '__attribute__((visibility("hidden"), aligned(64)))'
Nanoseconds = dict[str, float]

_FILL = """
static void fill(void)
{
  for (int64_t i = 0; i < ELEMENTS; i++) {
    a_f32[i] = 0.1f + 0.7f * i / ELEMENTS, b_f32[i] = 0.6f + 0.6f * i / ELEMENTS;
    a_f64[i] = 0.1 + 0.7 * i / ELEMENTS, b_f64[i] = 0.6 + 0.6 * i / ELEMENTS;
    a_i32[i] = a_i64[i] = a_u32[i] = 1000 + 37 * i, b_i32[i] = b_i64[i] = b_u32[i] = 1001 + 37 * i;
  }
}
int32_t ENTRY(void **buffers, void *workspace, void **blas)
{
  const int64_t *q = (const int64_t *)buffers[0];
  (void)workspace; (void)blas;
  if (q[0] < 0) {
    fill();
    return 0;
  }
  for (int64_t r = 0; r < q[1]; r++) {
    loops[q[0]]();
    __asm__ volatile("" ::: "memory");
  }
  return 0;
}
"""


@dataclass(frozen=True, slots=True)
class TimedLoop:
    """What a loop computes of `x` and `y` of one type. `of`: the functions in it, by name."""

    of: tuple[str, ...]
    value: Expr
    source: DType

    @property
    def name(self) -> str:
        return "+".join(self.of)

    def text(self, number: int, pragma: str) -> str:
        own, made = self.source, self.value.dtype
        value = expression(self.value, LANES if pragma else C)
        return (
            f"static __attribute__((noinline)) void loop{number}(void)\n{{\n{pragma}"
            f"  for (int64_t i = 0; i < ELEMENTS; i++) {{\n"
            f"    const {C.types[own]} x = a_{own}[i], y = b_{own}[i];\n"
            f"    (void)x; (void)y;\n    r_{made}[i] = {value};\n  }}\n}}\n"
        )


def _functions() -> dict[str, Call]:
    """Every function that is measured, of `x` (and `y`), by name."""
    made: list[Call] = []
    for dtype in (*FLOATS, *WHOLE):
        x, y = Sym("x", dtype), Sym("y", dtype)
        fns = {*LIBM, "div", "rem", "sqrt"} if dtype.is_float else {"div", "mul"}
        fns |= {"mulhi"} if dtype is DType.U32 else set()
        made += [Call(fn, (x, y) if fn in _BINARY else (x,), dtype) for fn in sorted(fns)]
        made += [Call("cast", (x,), other) for other in (*FLOATS, *WHOLE) if other is not dtype]
    return {call_name(one): one for one in made}


def _of_y(one: Call) -> Call:
    """The same function of the other operand."""
    other = {"x": "y", "y": "x"}
    args = (Sym(other[a.name], a.dtype) for a in one.args if isinstance(a, Sym))
    return Call(one.fn, tuple(args), one.dtype)


def single_loops() -> list[TimedLoop]:
    """Copies, and every function by itself."""
    copies = [TimedLoop((f"{_COPY}.{d}",), call("neg", Sym("x", d)), d) for d in FLOATS]
    found = _functions().items()
    return copies + [TimedLoop((name,), one, one.args[0].dtype) for name, one in found]


def all_loops() -> list[TimedLoop]:
    """Every function by itself; library functions twice, and beside some others."""
    functions = _functions()
    loops = single_loops()
    for name, one in functions.items():
        if one.fn in LIBM:
            beside = dict.fromkeys((name, *(f"{fn}.{one.dtype}" for fn in PARTNERS)))
            loops += [
                TimedLoop((name, other), call("add", one, _of_y(functions[other])), one.dtype)
                for other in beside
            ]
    return loops


def _text(loops: Sequence[TimedLoop], pragma: str) -> str:
    arrays = "".join(
        f"{_SEEN} {C.types[d]} {a}_{d}[ELEMENTS];\n" for d in (*FLOATS, *WHOLE) for a in "abr"
    )
    bodies = "".join(loop.text(k, pragma) for k, loop in enumerate(loops))
    table = ", ".join(f"loop{k}" for k in range(len(loops)))
    return (
        f"{C.prelude}\nenum {{ ELEMENTS = {ELEMENTS} }};\n{arrays}{bodies}"
        f"static void (*const loops[])(void) = {{{table}}};\n{_FILL.replace('ENTRY', _ENTRY)}"
    )


def _program(loops: Sequence[TimedLoop], bits: int) -> Program:
    pragma = "  #pragma omp simd\n" if bits else ""
    width = (f"-mprefer-vector-width={bits}",) if bits else ("-fno-tree-vectorize",)
    flags = (*FLAGS, *MATH_FLAGS["relaxed"], *width)
    none = TensorType((), DType.F32)
    source = Source(f"calibrate_scalar_{bits}", _text(loops, pragma), flags)
    return Program((source,), _ENTRY, (none,), (none,))


class _Width:
    """All loops, compiled for one vector width, and their least seconds by now."""

    def __init__(self, loops: Sequence[TimedLoop], bits: int) -> None:
        self.loops, self.bits = loops, bits
        built = compile_program(_program(loops, bits))
        self._library = load_checked(built.artifact.path, built.artifact.digest)
        self._entry = self._library[_ENTRY]
        self._entry.argtypes = [ctypes.c_void_p] * 3
        self._run(-1, 0)
        self.best_s = [max(self._run(k, 1), 1e-8) for k in range(len(loops))]

    def _run(self, loop: int, repeat: int) -> float:
        query = np.array([loop, repeat], np.int64)
        table = (ctypes.c_void_p * 1)(query.ctypes.data)
        start = time.perf_counter()
        self._entry(table, None, None)
        return time.perf_counter() - start

    def once_more(self) -> None:
        """Another pass over all loops."""
        for k, known in enumerate(self.best_s):
            repeat = max(1, round(RUN_S / known))
            self.best_s[k] = min(known, self._run(k, repeat) / repeat)

    def times(self) -> Nanoseconds:
        """Nanoseconds an element, by loop."""
        return {
            loop.name: 1e9 * s / ELEMENTS for loop, s in zip(self.loops, self.best_s, strict=True)
        }


def _loops_by_width() -> Iterator[tuple[int, list[TimedLoop]]]:
    """The widest first: it takes the compiler longest."""
    widest = vector_bits()
    yield widest, all_loops()
    for bits in (SCALAR_BITS, 128, 256, 512):
        if bits < widest:
            yield bits, single_loops()


def scalar_programs() -> list[Program]:
    """What `calibrate_scalar` compiles, for whoever compiles ahead."""
    return [_program(loops, bits) for bits, loops in _loops_by_width()]


def calibrate_scalar() -> tuple[tuple[str, float], ...]:
    """Nanoseconds an element of each function at each vector width (`exp.f32.256`, and 0 for code
    that is not vectorised), by one thread; without functions that are as fast as a copy at some
    width. Only at the widest, where they are fastest, are functions measured beside others.

    Takes a few seconds once, most of them compiling. Raises CompileError, CompilerMissing."""
    widths = [_Width(loops, bits) for bits, loops in _loops_by_width()]
    for _ in range(PASSES):
        for width in widths:
            width.once_more()
    times = {width.bits: told(width.times()) for width in widths}
    names = set.intersection(*(set(found) for found in times.values()))
    kept = {f"{name}.{bits}": ns[name] for bits, ns in times.items() for name in names}
    return tuple(sorted(kept.items()))


def _slower_than_copies(times: Mapping[str, float]) -> dict[str, float]:
    """Single functions, with the times of their loops."""
    copies = {name.split(".")[1]: ns for name, ns in times.items() if name.startswith(_COPY)}
    slowest = max(copies.values())
    return {
        name: ns
        for name, ns in times.items()
        if "+" not in name and ns > TELLING * copies.get(name.partition(".")[2], slowest)
    }


def told(times: Mapping[str, float]) -> Nanoseconds:
    """Nanoseconds of each function that is slower than a copy of its type, of which loops of one
    and of two functions took `times`; no two together count for more than they took."""
    found = _slower_than_copies(times)
    for name, ns in sorted(times.items()):
        pair = [found[one] for one in name.split("+") if one in found]
        if len(pair) == 2 and sum(pair) > ns:
            share = ns / sum(pair)
            found |= {one: found[one] * share for one in name.split("+")}
    return found
