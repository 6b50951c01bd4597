"""Building kernel IR: values are bound where their operands first allow it.

A block is the body of a loop under construction. `let` puts a value in the outermost block that
knows all its operands, so loop-invariant work leaves loops as it is emitted, and looks up what has
been computed before, so common sub-expressions are computed once.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from autofuse.kernel.ir.types import (
    Assign,
    Fold,
    Let,
    Local,
    Loop,
    LoopKind,
    Stmt,
    Store,
    Var,
    walk,
)
from autofuse.ops.dtypes import DType
from autofuse.ops.index import bounds
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym
from autofuse.ops.types import AutofuseError

# Statements of one kernel, and elements it remembers: compiling more takes minutes.
MOST_STATEMENTS, MOST_ELEMENTS = 1 << 14, 1 << 16
# No array has so many elements.
_FAR = 1 << 62


class LoweringError(AutofuseError):
    """A group that the kernel IR cannot express, or that would make a kernel beyond its limits."""


@dataclass
class _Block:
    stmts: list[Stmt] = field(default_factory=list)
    memo: dict[Hashable, Expr] = field(default_factory=dict)
    bound: dict[Expr, Expr] = field(default_factory=dict)


class Emitter:
    """Blocks under construction, the innermost last. Raises LoweringError where they would hold
    more than MOST_STATEMENTS statements, or remember more than MOST_ELEMENTS elements, so that
    lowering ends in time and memory proportional to these."""

    def __init__(self) -> None:
        self.blocks = [_Block()]
        self._depth: dict[str, int] = {}
        self._count: dict[str, int] = {}
        self._statements = self._elements = 0
        # Elements that wait for others right now, and open folds: frames keep them in bounds.
        self.waiting = self.folds = 0

    def fresh(self, prefix: str) -> str:
        """A name nothing else has."""
        n = self._count.get(prefix, 0)
        self._count[prefix] = n + 1
        return f"{prefix}{n}"

    def put(self, stmt: Stmt, at: int = -1) -> None:
        """`stmt` as the last of block `at` (default: the innermost)."""
        self._statements += 1
        if self._statements > MOST_STATEMENTS:
            raise LoweringError(f"the kernel would have more than {MOST_STATEMENTS} statements")
        self.blocks[at].stmts.append(stmt)

    def depth(self, expr: Expr) -> int:
        """The innermost block that defines something `expr` reads."""
        found = 0
        for e in walk(expr):
            name = e.name if isinstance(e, Sym) else e.buffer if isinstance(e, Load) else None
            if name is not None:
                found = max(found, self._depth.get(name, 0))
        return found

    def let(self, value: Expr, prefix: str = "v") -> Expr:
        """`value` bound to a name, unless it is one already."""
        if isinstance(value, Sym | Lit):
            return value
        for block in self.blocks:
            if value in block.bound:
                return block.bound[value]
        at = self.depth(value)
        sym = self._sym(prefix, value.dtype, at, _extent_of(value))
        self.put(Let(sym, value), at)
        self.blocks[at].bound[value] = sym
        return sym

    def name_index(self, value: Expr, extent: int | None) -> Expr:
        """One name for equal index values, in 0 .. extent-1 if that is known."""
        key = ("index", value)
        known = self.recall(key)
        if known is None:
            known = self.let_index(value, "x", extent)
            self.remember(key, known)
        return known

    def let_index(self, value: Expr, prefix: str, extent: int | None) -> Sym | Lit:
        """An index value bound to a name; `extent`: it is known to lie in 0 .. extent-1."""
        if isinstance(value, Lit):
            return value
        at = self.depth(value)
        sym = Sym(self.fresh(prefix), value.dtype, extent)
        self._depth[sym.name] = at
        self.put(Let(sym, value), at)
        return sym

    def bind(self, value: Expr, prefix: str = "v") -> Sym:
        """`value` read here and now (for registers, whose value changes)."""
        sym = self._sym(prefix, value.dtype, len(self.blocks) - 1)
        self.put(Let(sym, value))
        return sym

    def _sym(self, prefix: str, dtype: DType, depth: int, extent: int | None = None) -> Sym:
        sym = Sym(self.fresh(prefix), dtype, extent)
        self._depth[sym.name] = depth
        return sym

    def recall(self, key: Hashable) -> Expr | None:
        """What was remembered under `key` in a block that is still open."""
        for block in reversed(self.blocks):
            if key in block.memo:
                return block.memo[key]
        return None

    def remember(self, key: Hashable, value: Expr) -> None:
        """Keep `value` for `key` as long as the block that defines it is open."""
        self._elements += 1
        if self._elements > MOST_ELEMENTS:
            raise LoweringError(f"the kernel would compute more than {MOST_ELEMENTS} elements")
        self.blocks[self.depth(value)].memo[key] = value

    def variable(self, init: Expr, prefix: str = "acc") -> Sym:
        """A register in the current block."""
        sym = self._sym(prefix, init.dtype, len(self.blocks) - 1)
        self.put(Var(sym, init))
        return sym

    def assign(self, sym: Sym, value: Expr) -> None:
        self.put(Assign(sym, value))

    def symbol(self, dtype: DType, prefix: str = "v") -> Sym:
        """A name in the current block for what a statement is about to define."""
        return self._sym(prefix, dtype, len(self.blocks) - 1)

    def local(self, dtype: DType, size: int, prefix: str = "row", *, private: bool = False) -> str:
        """Scratch in the current block."""
        name = self.fresh(prefix)
        self._depth[name] = len(self.blocks) - 1
        self.put(Local(name, dtype, size, private))
        return name

    def store(self, buffer: str, index: Expr, value: Expr) -> None:
        self.put(Store(buffer, index, value))

    def open(self, prefix: str, extent: int | None) -> Sym:
        """Start a loop body; its variable runs below `extent`."""
        self.blocks.append(_Block())
        sym = Sym(self.fresh(prefix), DType.I64, extent)
        self._depth[sym.name] = len(self.blocks) - 1
        return sym

    def close(self, kind: str, var: Sym, extent: Expr, folds: tuple[Fold, ...] = ()) -> None:
        """End the innermost loop body and put the loop into the enclosing block; `kind` is the
        word of a LoopKind."""
        block = self.blocks.pop()
        self.put(Loop(LoopKind(kind), var, extent, tuple(block.stmts), folds))

    @property
    def body(self) -> tuple[Stmt, ...]:
        """The finished statements; every loop must have been closed."""
        if len(self.blocks) != 1:
            raise AssertionError("a loop was left open")
        return tuple(self.blocks[0].stmts)


def widen(value: Expr) -> Expr:
    """A stored element as the type it is computed in."""
    compute = value.dtype.compute
    return value if value.dtype is compute else Call("cast", (value,), compute)


def narrow(value: Expr, dtype: DType) -> Expr:
    """A computed element as the type it is stored in."""
    return value if value.dtype is dtype else Call("cast", (value,), dtype)


def _extent_of(value: Expr) -> int | None:
    """Below what a position stays that data decide and that is never negative: where a window
    begins is clamped. Others are spelled out where they are used."""
    data = any(isinstance(e, Load | Sym) and e.dtype is not DType.I64 for e in walk(value))
    known = bounds(value) if value.dtype is DType.I64 and data else None
    return None if known is None or known[0] < 0 or known[1] >= _FAR else known[1] + 1
