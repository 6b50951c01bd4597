"""Measure the latency of scalar operations: nanoseconds from an operand to the result that follows
from it, in chains in which each call waits for the one before.

A chain is held at the number that it begins with: what a call gives is multiplied by zero and added
to that number, by one multiply-add, of which chains by themselves say how long it takes. So each
operation is tried at several numbers, near zero and far from it: library functions have short cuts,
and a bound must hold for those too. The least counts of all numbers and passes, with vectors and
without.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from autofuse.backends.base import Program, Source
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cpu.backend import FLAGS, MATH_FLAGS
from autofuse.backends.machine import vector_bits
from autofuse.backends.sealed import load_checked
from autofuse.cost.latency import Latencies, reassociated
from autofuse.cost.scalar_calls import FLOATS
from autofuse.kernel.text.dialects import C
from autofuse.kernel.text.expressions import expression
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import LIBM, Call, Expr, Sym
from autofuse.ops.types import TensorType

# Calls of a chain between memory and memory, which forwards what was just stored in some cycles.
DEPTH = 4
# Numbers at which chains are held, and the other operand of those that have two.
STARTS, OTHER = (0.0, 1e-5, 0.5, 1.0, 3.0), 1.0
# Seconds of one run, and passes over all chains: what disturbs one pass is gone in the next.
RUN_S, PASSES = 2e-5, 10
# The width of code that is not vectorised.
SCALAR_BITS = 0
# The chain of multiply-adds alone.
HELD = "held"
_ENTRY = "af_calibrate_chains"
_BINARY = ("add", "mul", "div", "rem", "pow", "atan2")
# Where functions are defined; the others are everywhere.
_DOMAINS: Mapping[str, Callable[[float], bool]] = {
    "log": lambda x: x > 0,
    "asin": lambda x: x <= 1,
    "acos": lambda x: x <= 1,
}
_SEEN = '__attribute__((visibility("hidden"), aligned(64)))'

_RUN = """
int32_t ENTRY(void **buffers, void *workspace, void **blas)
{
  const int64_t *q = (const int64_t *)buffers[0];
  const double *at = (const double *)buffers[1];
  (void)workspace; (void)blas;
  for (int64_t i = 0; i < 64; i++) {
    x_f32[i] = held_f32[i] = at[0], y_f32[i] = at[1], zero_f32[i] = 0;
    x_f64[i] = held_f64[i] = at[0], y_f64[i] = at[1], zero_f64[i] = 0;
  }
  chains[q[0]](q[1]);
  return 0;
}
"""


@dataclass(frozen=True, slots=True)
class Chain:
    """A call whose operand `v` is what the call before gave; None: the multiply-add alone."""

    name: str
    dtype: DType
    call: Call | None
    # Whether the chain goes through the last of two operands.
    second: bool = False

    @property
    def starts(self) -> tuple[float, ...]:
        """Numbers at which the result is finite."""
        if self.second and self.name in ("div", "rem"):
            return tuple(x for x in STARTS if x != 0)
        allowed = _DOMAINS.get(self.name)
        return tuple(x for x in STARTS if allowed is None or allowed(x))

    def text(self, number: int, bits: int) -> str:
        own, ctype = self.dtype, C.types[self.dtype]
        lanes = max(1, bits // (8 * own.itemsize))
        v: Expr = Sym("v", own)
        made = expression(self.call if self.call is not None else v, C)
        step = f"v = ({made}) * zero + held;\n"
        pragma = "    #pragma omp simd\n" if bits else ""
        return (
            f"static __attribute__((noinline)) void chain{number}(int64_t times)\n{{\n"
            f"  for (int64_t r = 0; r < times; r++) {{\n{pragma}"
            f"    for (int64_t i = 0; i < {lanes}; i++) {{\n"
            f"      {ctype} v = x_{own}[i];\n"
            f"      const {ctype} y = y_{own}[i], zero = zero_{own}[i], held = held_{own}[i];\n"
            f"      (void)y;\n{f'      {step}' * DEPTH}      x_{own}[i] = v;\n    }}\n"
            '    __asm__ volatile("" ::: "memory");\n  }\n}\n'
        )


def all_chains() -> list[Chain]:
    """Every operation that has a latency in bounds, of both types; of two operands through each."""
    return [chain for dtype in FLOATS for chain in _chains(dtype)]


def _chains(dtype: DType) -> Iterator[Chain]:
    yield Chain(HELD, dtype, None)
    v, y = Sym("v", dtype), Sym("y", dtype)
    yield Chain("fma", dtype, Call("add", (Call("mul", (v, y), dtype), y), dtype))
    for name in ("add", "mul", "div", "rem", "sqrt", *sorted(LIBM)):
        if name not in _BINARY:
            yield Chain(name, dtype, Call(name, (v,), dtype))
            continue
        if name != "div":  # a quotient's dividend may be a factor
            yield Chain(name, dtype, Call(name, (v, y), dtype))
        if name not in ("add", "mul"):
            yield Chain(name, dtype, Call(name, (y, v), dtype), second=True)


def _text(chains: Sequence[Chain], bits: int) -> str:
    arrays = "".join(
        f"{_SEEN} {C.types[d]} {a}_{d}[64];\n" for d in FLOATS for a in ("x", "y", "zero", "held")
    )
    bodies = "".join(chain.text(k, bits) for k, chain in enumerate(chains))
    table = ", ".join(f"chain{k}" for k in range(len(chains)))
    return (
        f"{C.prelude}\n{arrays}{bodies}static void (*const chains[])(int64_t) = {{{table}}};\n"
        f"{_RUN.replace('ENTRY', _ENTRY)}"
    )


class _Width:
    """All chains, compiled for one vector width, and their least seconds by now."""

    def __init__(self, chains: Sequence[Chain], bits: int, math_flags: Sequence[str]) -> None:
        self.chains, self.bits = chains, bits
        width = (f"-mprefer-vector-width={bits}",) if bits else ("-fno-tree-vectorize",)
        none = TensorType((), DType.F32)
        flags = (*FLAGS, *math_flags, *width)
        source = Source(f"calibrate_chains_{bits}", _text(chains, bits), flags)
        built = compile_program(Program((source,), _ENTRY, (none,), (none,)))
        self._library = load_checked(built.artifact.path, built.artifact.digest)
        self._entry = self._library[_ENTRY]
        self._entry.argtypes = [ctypes.c_void_p] * 3
        self.best_s = [math.inf] * len(chains)

    def _run(self, chain: int, start: float, times: int) -> float:
        query, at = np.array([chain, times], np.int64), np.array([start, OTHER])
        table = (ctypes.c_void_p * 2)(query.ctypes.data, at.ctypes.data)
        begun = time.perf_counter()
        self._entry(table, None, None)
        return (time.perf_counter() - begun) / times

    def once_more(self) -> None:
        """Another pass over all chains, from every number."""
        for k, chain in enumerate(self.chains):
            for start in chain.starts:
                known = self.best_s[k]
                times = 16 if math.isinf(known) else max(4, round(RUN_S / known))
                self.best_s[k] = min(known, self._run(k, start, times))

    def latencies(self) -> dict[str, float]:
        """Nanoseconds of each operation, by name and type, without what holds the chain."""
        found: dict[str, float] = {}
        held = {c.dtype: s for c, s in zip(self.chains, self.best_s, strict=True) if c.name == HELD}
        for chain, seconds in zip(self.chains, self.best_s, strict=True):
            if chain.name != HELD:
                name = f"{chain.name}.{chain.dtype}"
                ns = max(0.0, 1e9 * (seconds - held[chain.dtype]) / DEPTH)
                found[name] = min(ns, found.get(name, ns))
        return found


def calibrate_chains(relaxed: bool = False) -> Latencies:
    """Nanoseconds of each operation by name, type and vector width (`exp.f32.256`; width 0 for code
    that is not vectorised), on this machine; `relaxed`: of arithmetic that may be reassociated, of
    which functions are left.

    Takes about a second once, most of it compiling. Raises CompileError, CompilerMissing."""
    chains, flags = all_chains(), MATH_FLAGS["relaxed" if relaxed else "strict"]
    bits = [SCALAR_BITS, vector_bits()]
    with ThreadPoolExecutor() as pool:
        widths = list(pool.map(lambda b: _Width(chains, b, flags), bits))
    for _ in range(PASSES):
        for width in widths:
            width.once_more()
    found = tuple(
        (f"{name}.{width.bits}", ns) for width in widths for name, ns in width.latencies().items()
    )
    return tuple(sorted(reassociated(found) if relaxed else found))
