"""Text of what a CUDA team folds, and of rows that several blocks share (`part` loops)."""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.kernel.cuda.settings import WARP, Settings
from autofuse.kernel.cuda.shape import block_team, extent_of
from autofuse.kernel.ir.types import Fold, Kernel, Loop, LoopKind, Stmt, names_read
from autofuse.kernel.text.dialects import CUDA
from autofuse.kernel.text.printer import Printer
from autofuse.ops.dtypes import DType


class PartPrinter(Printer):
    """Folds of `team`, in a kernel of one block or several to a row: `row`, `part` and `grid` are
    the texts of whose iteration it is, `edge` tests that a column is there."""

    dialect = CUDA

    def __init__(self, kernel: Kernel, own: Settings) -> None:
        super().__init__(kernel)
        self.own, self.team = own, block_team(own)
        self.outs = {p.name for p in kernel.params if p.role != "in"}
        self.grid, self.row, self.part, self.edge = "", "", "", ""
        self.works = iter(p.name for p in kernel.params if p.role == "work")
        self.met = False

    def index_type(self, dtype: DType) -> str:
        return self.dialect.types[dtype]

    def start_folds(self, loop: Loop, depth: int) -> Iterator[str]:
        """Lanes start from the identity and the running value joins once, afterwards."""
        pad = "  " * depth
        for fold in loop.folds:
            name, kind = fold.target.name, self.dialect.types[fold.target.dtype]
            yield f"{pad}const {kind} {before(fold, loop)} = {name};"
            yield f"{pad}{name} = af_identity_{fold.operator}_{fold.target.dtype}();"

    def joined(self, fold: Fold, loop: Loop) -> str:
        """The shares of a team's threads and the running value before them, as one."""
        name, kind = fold.target.name, f"{fold.operator}_{fold.target.dtype}"
        call, size = f"af_{self.team.kind}_{kind}", self.team.size
        total = {
            "warp": f"{call}({name}, {size})",
            "block": f"{call}({name}, {size}, turn ^= 1)",
            "column": f"{call}<{size}>({name}, turn ^= 1)",
        }[self.team.kind]
        return f"{name} = af_join_{kind}({before(fold, loop)}, {total});"

    def own_part(self, loop: Loop, depth: int) -> Iterator[str]:
        """The one iteration of a part loop that this block runs."""
        pad, parts = "  " * depth, extent_of(loop)
        self.row, self.part = f"{self.grid} / {parts}", f"{self.grid} % {parts}"
        yield from self.start_folds(loop, depth)
        yield f"{pad}{{"
        if reads(loop.body, loop.var.name):
            kind = self.index_type(loop.var.dtype)
            yield f"{pad}  const {kind} {loop.var.name} = {self.part};"
        yield from self.block(loop.body, depth + 1, False)
        yield f"{pad}}}"

    def publish(self, loop: Loop, depth: int) -> Iterator[str]:
        pad = "  " * depth
        self.slots = {f.target.name: next(self.works) for f in loop.folds}
        for fold in loop.folds:
            slot = f"{self.slots[fold.target.name]}[{self.slot(loop, self.part)}]"
            yield f"{pad}if ({self.team.place} == 0) {slot} = {fold.target.name};"

    def slot(self, loop: Loop, part: str) -> str:
        """Where a part leaves its total: parts of a row side by side, columns of one part too."""
        at = self.grid if part == self.part else f"({self.row}) * {extent_of(loop)} + {part}"
        return f"({at}) * {WARP} + threadIdx.x % {WARP}" if self.team.kind == "column" else at

    def last_part(self, loop: Loop, rest: tuple[Stmt, ...], depth: int) -> Iterator[str]:
        """The block that finishes last adds up what all have left, and goes on alone."""
        pad, ticket = "  " * depth, next(self.works)
        yield from self.publish(loop, depth)
        yield f"{pad}if (af_is_last({ticket}, {self.row}, {extent_of(loop)})) {{"
        yield from self.join_parts(loop, depth + 1)
        yield from self.block(rest, depth + 1, False)
        yield f"{pad}}}"

    def all_parts(self, loop: Loop, depth: int) -> Iterator[str]:
        """Blocks wait for each other, then each adds up what all have left."""
        pad, ticket = "  " * depth, next(self.works)
        yield from self.publish(loop, depth)
        yield f"{pad}af_wait_for_all({ticket}, {self.row}, {extent_of(loop)}, {self.part} == 0);"
        yield from self.join_parts(loop, depth)

    def in_cluster(self, loop: Loop, depth: int) -> Iterator[str]:
        """Blocks leave their totals in each other's memory, once all of them have begun."""
        pad = "  " * depth
        if not self.met:
            self.met = True
            yield f"{pad}af_cluster_wait();"
        for fold in loop.folds:
            name, kind = fold.target.name, f"{fold.operator}_{fold.target.dtype}"
            total = f"af_cluster_{kind}<{extent_of(loop)}>({name}, meeting ^= 1)"
            yield f"{pad}{name} = af_join_{kind}({before(fold, loop)}, {total});"

    def join_parts(self, loop: Loop, depth: int) -> Iterator[str]:
        pad, team, p = "  " * depth, self.team, f"{loop.var.name}_p"
        for fold in loop.folds:
            name, kind = fold.target.name, f"{fold.operator}_{fold.target.dtype}"
            read = f"__ldcg({self.slots[name]} + ({self.slot(loop, p)}))"
            yield f"{pad}{name} = af_identity_{kind}();"
            step = f"{p} < {extent_of(loop)}; {p} += {team.size}"
            yield f"{pad}for (int32_t {p} = {team.place}; {step})"
            yield f"{pad}  {name} = af_join_{kind}({name}, {read});"
            yield f"{pad}{self.joined(fold, loop)}"


def before(fold: Fold, loop: Loop) -> str:
    return f"{fold.target.name}_{loop.var.name}"


def reads(body: tuple[Stmt, ...], name: str) -> bool:
    return any(name in names_read(s) for s in body)


def is_part(stmt: Stmt) -> bool:
    return isinstance(stmt, Loop) and stmt.kind is LoopKind.PART
