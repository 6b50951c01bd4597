"""What C and CUDA text have in common: the head of a kernel and its statements."""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.kernel.ir.types import (
    Ahead,
    Assign,
    Kernel,
    Let,
    Local,
    Loop,
    LoopKind,
    Stmt,
    Store,
    Stream,
    Var,
)
from autofuse.kernel.text.dialects import Dialect
from autofuse.kernel.text.expressions import expression, operand
from autofuse.ops.scalar import Expr


def signature(kernel: Kernel, d: Dialect) -> str:
    """The function head: inputs const, every pointer restrict."""
    parts = [d.parameters[p.role].format(d.types[p.dtype], p.name) for p in kernel.params]
    return f"{d.function} {kernel.name}({', '.join(parts)})"


class Printer:
    """Statements that both languages spell alike."""

    dialect: Dialect

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.facts = dict(kernel.facts)
        self.outs = {p.name for p in kernel.params if p.role == "out"}

    def lines(self) -> Iterator[str]:
        yield from self.block(self.kernel.body, 1, False)

    def text(self, expr: Expr) -> str:
        return expression(expr, self.dialect)

    def operand(self, expr: Expr) -> str:
        return operand(expr, self.dialect)

    def block(self, body: tuple[Stmt, ...], depth: int, in_lane: bool) -> Iterator[str]:
        for stmt in body:
            yield from self.stmt(stmt, depth, in_lane)

    def stmt(self, stmt: Stmt, depth: int, in_lane: bool) -> Iterator[str]:
        pad, types = "  " * depth, self.dialect.types
        match stmt:
            case Let(sym, value):
                yield f"{pad}const {types[sym.dtype]} {sym.name} = {self.text(value)};"
            case Var(sym, init):
                yield f"{pad}{types[sym.dtype]} {sym.name} = {self.text(init)};"
            case Assign(sym, value):
                yield f"{pad}{sym.name} = {self.text(value)};"
            case Store(buffer, index, value):
                place = f"{buffer}[{self.text(index)}]"
                yield f"{pad}{self.guard(buffer, in_lane)}{place} = {self.text(value)};"
            case Stream(buffer, start, local, count):
                place = f"{buffer} + {self.operand(start)}"
                yield f"{pad}af_stream({place}, {local}, ({self.text(count)}) * sizeof *{local});"
            case Ahead(buffer, start, count, written):
                place = f"{buffer} + {self.operand(start)}"
                nbytes = f"({self.text(count)}) * sizeof *{buffer}"
                yield f"{pad}af_{'write' if written else 'read'}_soon({place}, {nbytes});"
            case Local(name, dtype, size):
                yield f"{pad}{self.local(types[dtype], name, size)}"
            case Loop():
                yield from self.loop(stmt, depth, in_lane)

    def head(self, loop: Loop, start: str = "0", step: str = "1") -> str:
        v = loop.var.name
        advance = f"{v}++" if step == "1" else f"{v} += {step}"
        return f"for (int64_t {v} = {start}; {self.condition(loop)}; {advance}) {{"

    def condition(self, loop: Loop) -> str:
        """What holds before each iteration."""
        if loop.kind is LoopKind.WHILE:
            return self.text(loop.extent)
        return f"{loop.var.name} < {self.operand(loop.extent)}"

    def guard(self, buffer: str, in_lane: bool) -> str:
        return ""

    def local(self, type_name: str, name: str, size: int) -> str:
        raise NotImplementedError

    def loop(self, loop: Loop, depth: int, in_lane: bool) -> Iterator[str]:
        raise NotImplementedError
