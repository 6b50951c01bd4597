"""print_cuda: a kernel as CUDA text.

Segments (grid loops) are numbered through: each owns a range of blocks, so that small ones run
side by side. A *team* runs the iterations of a lane loop: a block, a warp, or a column of a block.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.kernel.cuda.mma import mma_tile
from autofuse.kernel.cuda.settings import FOLDS_WANT_WARPS, WARP, Settings, settings
from autofuse.kernel.cuda.shape import (
    begins_early,
    bytes_of,
    cluster,
    extent_of,
    grids,
    has_groups,
    inner_team,
    is_dynamic,
    is_one_turn,
    takes_turns,
)
from autofuse.kernel.cuda.sync import fills, has_local, must_meet
from autofuse.kernel.cuda.wgmma import group_tile
from autofuse.kernel.ir.fragment import Collective
from autofuse.kernel.ir.instructions import by_group
from autofuse.kernel.ir.types import (
    Join,
    Kernel,
    LoadVector,
    Local,
    Loop,
    LoopKind,
    Stmt,
    Store,
    StoreVector,
    TileProduct,
    has_product,
    statements,
)
from autofuse.kernel.text.cuda.boxes import boxes_alone
from autofuse.kernel.text.cuda.fetch import Fetching, fetching
from autofuse.kernel.text.cuda.fragments import FragmentText
from autofuse.kernel.text.cuda.join import join_text
from autofuse.kernel.text.cuda.mma import MmaText
from autofuse.kernel.text.cuda.parts import PartPrinter, is_part, reads
from autofuse.kernel.text.cuda.tile import tile_text
from autofuse.kernel.text.cuda.turns import fetched, turn_text, turns_of
from autofuse.kernel.text.cuda.wgmma import GroupText, group_prologue
from autofuse.kernel.text.dialects import CUDA, EARLY
from autofuse.kernel.text.printer import signature
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Lit
from autofuse.plan.parameters import LaunchSettingError

# Passes of one thread over its lanes that are unrolled, so that their loads are in flight together,
# as long as the text does not grow beyond so many statements.
MOST_UNROLLED, MOST_STATEMENTS = 16, 1024
# Elements of a buffer whose numbers take more than 32 bits.
FAR = 1 << 31


def print_cuda(kernel: Kernel) -> str:
    """One CUDA kernel, after its passes (`kernel/render.py`). Raises LaunchSettingError."""
    own = settings(kernel)
    # Registers change hands only where the number of blocks is given (PTX ISA, setmaxnreg).
    blocks = own.blocks or int(has_groups(kernel))
    bounds = f"{own.threads}, {blocks}" if blocks else f"{own.threads}"
    bounds = f"__launch_bounds__({bounds})"
    if cluster(kernel):
        bounds = f"__cluster_dims__({cluster(kernel)}, 1, 1) {bounds}"
    dialect = EARLY if begins_early(kernel) else CUDA
    head = signature(kernel, dialect).replace(" void ", f" void {bounds} ", 1)
    return "\n".join([head, "{", *_CudaPrinter(kernel, own).lines(), "}", ""])


def body_in_scope(kernel: Kernel) -> Iterator[str]:
    """What a kernel does (after its passes), where its buffers are in scope, any number of blocks
    run it, and others write meanwhile."""
    yield from _CudaPrinter(kernel, settings(kernel), alone=False).lines()


class _CudaPrinter(PartPrinter):
    def __init__(self, kernel: Kernel, own: Settings, alone: bool = True) -> None:
        super().__init__(kernel, own)
        self.early, self.dynamic = alone and begins_early(kernel), is_dynamic(kernel)
        self.later = "_later" if self.early or not alone else ""
        self.offset, self.tiled, self.fetches = 0, False, False
        self.outside = frozenset(p.name for p in kernel.params if p.role != "map")
        self.wide = any(p.size >= FAR for p in kernel.params)
        self.fetching = next(map(fetching, grids(kernel)), None)

    def lines(self) -> Iterator[str]:
        if self.dynamic:
            yield "  AF_DYNAMIC(unsigned char, af_shared);"
        if self.early:
            yield "  af_wait_for_earlier();"
        if _meets(self.kernel.body):
            yield "  int32_t turn = 0;"
        if cluster(self.kernel):
            yield "  int32_t meeting = 0;"
            yield "  af_cluster_begin();"
        if has_groups(self.kernel):
            yield from group_prologue(self.own, self.kernel)
        segments = grids(self.kernel)
        if takes_turns(self.kernel):
            yield from self.in_turns(segments[0])
            return
        yield from self.block(tuple(s for s in self.kernel.body if s not in segments), 1, False)
        if not segments:
            return
        if self.fetching is not None:
            yield from self.fetch_ahead(self.fetching)
        total = sum(extent_of(s) for s in segments)
        wide = any(s.var.dtype is DType.I64 for s in segments)
        kind = self.index_type(DType.I64 if wide else DType.I32)
        once = is_one_turn(self.kernel)
        if once:
            yield "  {"
            yield f"    const {kind} g = blockIdx.x;"
        else:
            yield f"  for ({kind} g = blockIdx.x; g < {total}; g += gridDim.x) {{"
        first = 0
        for segment in segments:
            end = first + extent_of(segment)
            # A grid loop has tested for the end of the last segment.
            test = "" if end == total and not once else f"if (g < {end}) "
            yield f"    {'else ' if first else ''}{test}{{"
            yield from self.segment(segment, first)
            yield "    }"
            first = end
        yield "  }"

    def in_turns(self, loop: Loop) -> Iterator[str]:
        """One group fetches what the others multiply, each for a grid iteration of its own."""
        turns, before = turns_of(loop, self.own, self.outside), self.offset
        self.grid, self.part, self.tiled, self.team = loop.var.name, "", True, turns.team

        def role(fetches: bool) -> Iterator[str]:
            self.fetches, self.offset = fetches, before
            yield from self.iteration(fetched(loop.body) if fetches else loop.body, 3, not fetches)

        yield from turns.lines(loop, self.index_type(loop.var.dtype), role)

    def segment(self, loop: Loop, first: int) -> Iterator[str]:
        """The blocks of one grid loop: `first` and those after it."""
        value = "g" if first == 0 else f"g - {first}"
        if reads(loop.body, loop.var.name) or any(is_part(s) for s in statements(loop.body)):
            yield f"      const {self.index_type(loop.var.dtype)} {loop.var.name} = {value};"
        self.grid, self.part, self.tiled = loop.var.name, "", has_product(loop)
        yield from self.iteration(loop.body, 3, self.own.grid != "one")

    def iteration(self, body: tuple[Stmt, ...], depth: int, again: bool) -> Iterator[str]:
        """One of a team's iterations, after which there may be others."""
        pad, fetched = "  " * depth, self.fetching
        own = fetched if any(isinstance(s, Local) and s.source for s in body) else None
        if own is not None:
            types = self.dialect.types
            yield from (f"{pad}{line}" for line in own.arrival(lambda row: types[row.dtype]))
        yield from self.block(body, depth, False)
        if again and must_meet(body, self.kernel, self.team.kind):
            yield f"{pad}{self.team.sync}"
        if own is not None:
            yield f"{pad}{own.departure()}"

    def fetch_ahead(self, fetched: Fetching) -> Iterator[str]:
        outer = self.team
        self.team = inner_team(fetched.dealt.kind, self.own, outer) if fetched.dealt else outer
        for row in fetched.stored():
            yield from (f"  {line}" for line in self.shared(row))
        yield from fetched.prologue(self.team, lambda sym: self.index_type(sym.dtype), self.operand)
        self.team = outer

    def block(self, body: tuple[Stmt, ...], depth: int, in_lane: bool) -> Iterator[str]:
        for n, stmt in enumerate(body):
            yield from self.stmt(stmt, depth, in_lane)
            if isinstance(stmt, Loop) and is_part(stmt) and stmt.folds:
                if self.own.reduce == "split":
                    yield from self.last_part(stmt, body[n + 1 :], depth)
                    return
                joining = self.all_parts if self.own.reduce == "barrier" else self.in_cluster
                yield from joining(stmt, depth)

    def guard(self, buffer: str, in_lane: bool) -> str:
        """Uniform values are stored once: by a team's first thread, and of one part."""
        if in_lane:
            return ""
        tests = [f"{self.team.place} == 0", *filter(None, (self.edge,))]
        if self.part and self.own.reduce != "split" and buffer in self.outs:
            tests.append(f"{self.part} == 0")
        return f"if ({' && '.join(tests)}) "

    def stmt(self, stmt: Stmt, depth: int, in_lane: bool) -> Iterator[str]:
        pad, types = "  " * depth, self.dialect.types
        match stmt:
            case Local(name, dtype, size, True):
                yield f"{pad}{types[dtype]} {name}[{size}];"
            case Local(source=None):
                yield from (f"{pad}{line}" for line in self.shared(stmt))
            case Local():
                pass  # declared where it arrives
            case LoadVector(syms, buffer, index, keep):
                kind = f"af_{syms[0].dtype}x{len(syms)}"
                name = f"{syms[0].name}_x{len(syms)}"
                call = "af_load_vector" + (f"_{keep}{self.later}" if keep else "")
                loaded = f"{call}({kind}, {buffer}, {self.text(index)})"
                yield f"{pad}const {kind} {name} = {loaded};"
                for k, sym in enumerate(syms):
                    yield f"{pad}const {types[sym.dtype]} {sym.name} = {name}.x[{k}];"
            case TileProduct():
                yield from (pad + line for line in self.product(stmt))
            case Join():
                yield from (pad + line for line in join_text(stmt, self.operand, self.team))
            case Collective():
                together = FragmentText(self.operand, self.team, self.outside, self.wide, self.own)
                yield from (pad + line for line in together.lines(stmt))
            case StoreVector(buffer, index, values):
                kind = f"af_{values[0].dtype}x{len(values)}"
                given = ", ".join(self.text(v) for v in values)
                call = f"af_store_vector({kind}, {buffer}, {self.text(index)}, {given});"
                yield f"{pad}{self.guard(buffer, in_lane)}{call}"
            case _:
                yield from super().stmt(stmt, depth, in_lane)

    def product(self, stmt: TileProduct) -> Iterator[str]:
        """A tile, by tensor cores or not."""
        given = (self.operand, self.team, self.outside, self.wide)
        if not stmt.mma:
            return tile_text(stmt, *given)
        if stmt.alone:
            return turn_text(stmt, given, self.own, self.fetches)
        if by_group(stmt.mma):
            tile = group_tile(stmt, self.team.size, self.own.stages)
            alone = boxes_alone(self.kernel)
            return GroupText(stmt, tile, *given, self.own.blocks, alone).lines()
        return MmaText(stmt, mma_tile(stmt, self.team.size, self.own.stages), *given).lines()

    def shared(self, stmt: Local) -> Iterator[str]:
        """A row or tile in shared memory, one for each team of the block."""
        kind, size = self.dialect.types[stmt.dtype], bytes_of(stmt, self.team)
        each = size // self.team.count // stmt.dtype.itemsize
        offset = f" + {self.team.number} * {each}" if self.team.count > 1 else ""
        if self.dynamic:
            apart = f" + {self.team.number} * {size // self.team.count}" if offset else ""
            place = f"af_shared + {self.offset}{apart}"
            yield f"const auto {stmt.name} = reinterpret_cast<{kind} *>({place});"
            self.offset += size
        elif offset:
            yield f"__shared__ __align__(16) {kind} {stmt.name}_all[{each * self.team.count}];"
            yield f"{kind} *const {stmt.name} = {stmt.name}_all{offset};"
        else:
            yield f"__shared__ __align__(16) {kind} {stmt.name}[{stmt.size}];"

    def loop(self, loop: Loop, depth: int, in_lane: bool) -> Iterator[str]:
        before = self.offset
        yield from self.any_loop(loop, depth, in_lane)
        # What follows may have the place of what the loop has declared (see `local_bytes`).
        if self.tiled and self.team.kind in ("block", "group"):
            self.offset = before

    def any_loop(self, loop: Loop, depth: int, in_lane: bool) -> Iterator[str]:
        match loop.kind:
            case LoopKind.LANE:
                yield from self.lane(loop, depth, in_lane)
            case LoopKind.WARP | LoopKind.COLUMN:
                yield from self.dealt(loop, depth)
            case LoopKind.PART:
                yield from self.own_part(loop, depth)
            case LoopKind.THREADS:
                kind = self.index_type(loop.var.dtype)
                yield f"{'  ' * depth}{{ const {kind} {loop.var.name} = threadIdx.x;"
                yield from self.block(loop.body, depth + 1, True)
                yield f"{'  ' * depth}}}"
            case LoopKind.WHEN:
                yield f"{'  ' * depth}if ({self.text(loop.extent)}) {{"
                yield from self.block(loop.body, depth + 1, in_lane)
                yield from self.scope_end(loop, depth + 1)
                yield f"{'  ' * depth}}}"
            case _:
                yield from self.serial(loop, depth, in_lane)

    def serial(self, loop: Loop, depth: int, in_lane: bool) -> Iterator[str]:
        pad = "  " * depth
        if loop.kind is LoopKind.UNROLLED:
            yield f"{pad}#pragma unroll"
        elif self.own.compiler_unroll and not any(isinstance(s, Loop) for s in loop.body):
            yield f"{pad}#pragma unroll {self.own.compiler_unroll}"
        yield f"{pad}{self.head(loop)}"
        yield from self.block(loop.body, depth + 1, in_lane)
        yield from self.scope_end(loop, depth + 1)
        yield f"{pad}}}"
        # One thread has stored what all are going to read.
        if not in_lane and any(self.is_shared(s) for s in loop.body):
            yield f"{pad}{self.team.sync}"

    def scope_end(self, loop: Loop, depth: int) -> Iterator[str]:
        """A barrier before others write over what the body has declared and still reads."""
        declares = any(isinstance(s, Local) and not s.private for s in loop.body)
        if declares and not isinstance(loop.body[-1], TileProduct):
            yield f"{'  ' * depth}{self.team.sync}"

    def head(self, loop: Loop, start: str = "0", step: str = "1") -> str:
        v = loop.var.name
        advance = f"{v}++" if step == "1" else f"{v} += {step}"
        kind = self.index_type(loop.var.dtype)
        return f"for ({kind} {v} = {start}; {self.condition(loop)}; {advance}) {{"

    def is_shared(self, stmt: Stmt) -> bool:
        return isinstance(stmt, Store | StoreVector) and stmt.buffer not in self.outs

    def lane(self, loop: Loop, depth: int, in_lane: bool) -> Iterator[str]:
        pad = "  " * depth
        if loop.folds and self.team.kind == "block" and self.team.size < WARP:
            raise LaunchSettingError(FOLDS_WANT_WARPS)
        yield from self.start_folds(loop, depth)
        yield from self.passes(loop, depth)
        for fold in loop.folds:
            yield f"{pad}{self.joined(fold, loop)}"
        if (not loop.folds or self.team.kind == "warp") and fills(loop, self.kernel):
            yield f"{pad}{self.team.sync}"

    def passes(self, loop: Loop, depth: int) -> Iterator[str]:
        """The lanes of this thread: those `team.size` apart, numbered by the loop's counter."""
        pad, team, v = "  " * depth, self.team, loop.var.name
        most = _most(loop)
        count = -(-most // team.size) if most is not None else None
        kind = self.index_type(loop.var.dtype)
        nested = any(isinstance(s, Loop) and s.kind is not LoopKind.WHEN for s in loop.body)
        few = (
            count is not None and count <= MOST_UNROLLED and count * _size(loop) <= MOST_STATEMENTS
        )
        if count is None or (loop.counter is None and (nested or not few) and count > 1):
            if count is not None and not nested:
                yield f"{pad}#pragma unroll {4 if 4 * _size(loop) <= MOST_STATEMENTS else 1}"
            yield f"{pad}{self.head(loop, team.place, str(team.size))}"
            yield from self.block(loop.body, depth + 1, True)
            yield f"{pad}}}"
            return
        assert most is not None
        n = loop.counter.name if loop.counter is not None else f"{v}_n"
        place = team.place if count == 1 else f"{n} * {team.size} + {team.place}"
        exact = isinstance(loop.extent, Lit) and most % team.size == 0
        if count == 1:
            yield f"{pad}{{"
            if loop.counter is not None:
                yield f"{pad}  const int32_t {n} = 0;"
        else:
            yield f"{pad}#pragma unroll"
            yield f"{pad}for (int32_t {n} = 0; {n} < {count}; {n}++) {{"
        if not exact or reads(loop.body, v):
            yield f"{pad}  const {kind} {v} = {place};"
        if not exact:
            yield f"{pad}  if ({v} < {self.operand(loop.extent)}) {{"
        yield from self.block(loop.body, depth + (1 if exact else 2), True)
        if not exact:
            yield f"{pad}  }}"
        yield f"{pad}}}"

    def dealt(self, loop: Loop, depth: int) -> Iterator[str]:
        """Iterations for the warps of a block, or for its columns."""
        pad, outer, own = "  " * depth, (self.team, self.edge), self.own
        v, kind = loop.var.name, self.index_type(loop.var.dtype)
        self.team = inner_team(loop.kind, own, self.team)
        if loop.kind is LoopKind.WARP:
            yield f"{pad}{self.head(loop, f'threadIdx.x / {WARP}', str(own.warps))}"
        else:
            # Threads beyond the last column repeat it: they must meet the others.
            extent, place = self.operand(loop.extent), f"{v}_n + threadIdx.x % {WARP}"
            yield f"{pad}for ({kind} {v}_n = 0; {v}_n < {extent}; {v}_n += {WARP}) {{"
            known = isinstance(loop.extent, Lit) and extent_of(loop) % WARP == 0
            kinds = "i32" if loop.var.dtype is DType.I32 else "i64"
            clamped = f"af_min_{kinds}({place}, {extent} - 1)"
            if reads(loop.body, v):
                yield f"{pad}  const {kind} {v} = {place if known else clamped};"
            self.edge = "" if known else f"{place} < {extent}"
        yield from self.iteration(loop.body, depth + 1, loop.kind is LoopKind.WARP)
        yield f"{pad}}}"
        self.team, self.edge = outer
        if self.tiled and (has_local(loop) or fills(loop, self.kernel)):
            yield f"{pad}{self.team.sync}"


def _most(loop: Loop) -> int | None:
    """The largest number of lanes, where it is known."""
    return int(loop.extent.value) if isinstance(loop.extent, Lit) else loop.var.extent


def _size(loop: Loop) -> int:
    return max(1, sum(1 for _ in statements(loop.body)))


def _meets(body: tuple[Stmt, ...]) -> bool:
    """Threads of a block fold something together."""
    loops = [s for s in body if isinstance(s, Loop) and s.kind is not LoopKind.WARP]
    return any(s.folds or _meets(s.body) for s in loops)
