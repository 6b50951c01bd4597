"""Lanes that are one vector, written out as such: `LoopKind.VECTOR`.

GCC makes vectors of bytes as wide as those of the numbers that they become: of 16 bytes it makes
four vectors of 128 bits, and unpacks them in two steps. Written out, 8 bytes become 8 numbers of 32
bits in one instruction (a row by 2048 x 2048 of i8, one thread of Zen 3: 190 us instead of 560).

Whole numbers of up to 32 bits are lanes of i32 here, cut back to their type where they may have
left it. Positions are no vectors: what is loaded or stored must lie side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from autofuse.kernel.ir.types import Let, Loop, Store, substitute
from autofuse.kernel.text.c.tile import Text
from autofuse.kernel.text.dialects import INFIX, C
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym, walk

# Whole numbers that are lanes of i32, and what brings lanes back into their range.
CUT = {
    DType.I8: "(({}) << 24 >> 24)",
    DType.U8: "(({}) & 255)",
    DType.I16: "(({}) << 16 >> 16)",
    DType.U16: "(({}) & 65535)",
    DType.I32: "({})",
}
# What is read as lanes of i32 or f32, and how the prelude calls it.
NARROW = (DType.I8, DType.U8, DType.I16, DType.U16, DType.BF16)
ARITHMETIC = ("add", "sub", "mul", "and", "or", "xor", "shl", "shr")
# Of whole numbers: results that are in the range of their type where operands are.
IN_RANGE = ("and", "or", "xor", "shr")


class _PlainError(Exception):
    """Lanes that are not written as vectors here."""


def vector_lines(loop: Loop, text: Text) -> list[str] | None:
    """The lines of a loop over the lanes of one vector; None where something in it is no vector."""
    if not isinstance(loop.extent, Lit) or loop.folds:
        return None
    try:
        return list(_Lanes(loop.var, int(loop.extent.value), text).lines(loop))
    except _PlainError:
        return None


@dataclass
class _Lanes:
    """One vector of so many `lanes`: what is known of names in it."""

    var: Sym
    lanes: int
    text: Text
    # Positions that differ from lane to lane, by name.
    places: dict[str, Expr] = field(default_factory=dict)
    # Names of vectors, and of what is one number for all lanes.
    vectors: set[str] = field(default_factory=set)

    def lines(self, loop: Loop) -> Iterator[str]:
        for stmt in loop.body:
            match stmt:
                case Let(sym, value) if sym.dtype is DType.I64 and self.differs(value):
                    self.places[sym.name] = substitute(value, self.places)
                case Let(sym, value) if self.differs(value):
                    yield f"const {self.type(sym.dtype)} {sym.name} = {self.vector(value)};"
                    self.vectors.add(sym.name)
                case Let(sym, value):
                    yield f"const {C.types[sym.dtype]} {sym.name} = {self.text(value)};"
                case Store(buffer, index, value) if value.dtype in (DType.F32, DType.I32):
                    place = f"{buffer} + {self.place(index)}"
                    kept = self.vector(value) if self.differs(value) else self.spread(value)
                    yield f"*({self.type(value.dtype)}_u *)({place}) = {kept};"
                case _:
                    raise _PlainError

    def type(self, dtype: DType) -> str:
        if dtype is DType.F32:
            return f"af_floatx{self.lanes}"
        if dtype in CUT or dtype is DType.BF16:
            return f"af_int32_tx{self.lanes}"
        raise _PlainError

    def differs(self, expr: Expr) -> bool:
        """Whether an expression is another one in each lane."""
        names = (e.name for e in walk(expr) if isinstance(e, Sym))
        return any(n == self.var.name or n in self.places or n in self.vectors for n in names)

    def place(self, index: Expr) -> str:
        """Where the first of the lanes lies that an index finds side by side."""
        found = ix.coefficients(substitute(index, self.places), (self.var.name,))
        if found is None or found[0] != (1,):
            raise _PlainError
        return f"({self.text(found[1])})"

    def spread(self, expr: Expr) -> str:
        """One number for all lanes."""
        zeros = f"({self.type(expr.dtype)}){{0}}"
        if isinstance(expr, Lit) and expr.value == 0:
            return zeros
        raise _PlainError

    def vector(self, expr: Expr) -> str:
        """The text of a vector, or of a number that operators take for all lanes."""
        if not self.differs(expr):
            return f"({self.text(expr)})"
        match expr:
            case Sym(name=name) if name in self.vectors:
                return name
            case Load(buffer, index, dtype):
                return self.load(buffer, index, dtype)
            case Call(fn="cast", args=(value,), dtype=dtype):
                return self.cast(value, dtype)
            case Call(fn="neg", args=(value,), dtype=dtype):
                return self.cut(f"-{self.vector(value)}", dtype, True)
            case Call(fn=fn, args=(a, b), dtype=dtype) if fn in ARITHMETIC:
                made = f"{self.vector(a)} {INFIX[fn][0]} {self.vector(b)}"
                return self.cut(made, dtype, fn not in IN_RANGE)
            case Call(fn="div", args=(a, b), dtype=DType.F32):
                return f"({self.vector(a)} / {self.vector(b)})"
        raise _PlainError

    def cut(self, made: str, dtype: DType, leaves: bool) -> str:
        """A result, which may have left the range of its type."""
        self.type(dtype)
        return CUT[dtype].format(made) if leaves and dtype in CUT else f"({made})"

    def load(self, buffer: str, index: Expr, dtype: DType) -> str:
        place = f"{buffer} + {self.place(index)}"
        if dtype in NARROW:
            return f"af_wide_{dtype}_x{self.lanes}({place})"
        if dtype in (DType.F32, DType.I32):
            return f"*(const {self.type(dtype)}_u *)({place})"
        raise _PlainError

    def cast(self, value: Expr, dtype: DType) -> str:
        made = self.vector(value)
        if value.dtype is DType.BF16 and dtype is DType.F32:
            return f"(af_floatx{self.lanes})({made} << 16)"
        if value.dtype in CUT and dtype is DType.F32:
            return f"__builtin_convertvector({made}, af_floatx{self.lanes})"
        if value.dtype in CUT and dtype in CUT:
            return CUT[dtype].format(made)
        raise _PlainError
