"""Launch parameters of CUDA kernels.

threads: of a block. items: elements of one thread (item form). vector: elements of one access, at
most 16 bytes. grid: blocks stride over the work ("stride") or there is one for each piece ("one").
reduce: a row folded by a warp, by a block, or by several blocks, in two phases ("split") or waiting
for each other ("barrier"). rows: of a block whose warps fold (0: one a warp). keep: where a row
stays between passes. unroll: of serial loops (0: the compiler's choice), and of a counted loop one
that divides its trips. blocks: wanted on a multiprocessor (0: any number). transpose: through a
padded tile of shared memory. math: "relaxed" lets the compiler use its fast functions. impl: cuBLAS
or generated loops.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from autofuse.graph.types import Graph
from autofuse.kernel.gemm import blas_form
from autofuse.ops.spec import Motion
from autofuse.plan.forms import Form, local_shape
from autofuse.plan.groups import reads
from autofuse.plan.legality import Refusal, check_group
from autofuse.plan.types import FusionGroup, LaunchConfig, Setting
from search_spaces.launch import Chooser

WARP = 32
VECTOR_BYTES = 16
# Elements of a row that one thread may keep in registers.
ROW_REGISTERS = 32
# Rows up to this length are folded by a warp unless something else is asked for.
WARP_ROW = 1024
# Rows of which each gives work to several blocks.
SPLIT_ROW = 1 << 14
# The printer's own defaults, which a configuration leaves out.
SILENT: Mapping[str, Setting] = {
    "vector": 1, "rows": 0, "unroll": 0, "blocks": 0, "transpose": False, "math": "strict",
}  # fmt: skip


class Limits(Protocol):
    """What of a device bounds a launch; sizes in bytes. `backends.cuda.devices.Target` is one."""

    @property
    def sms(self) -> int: ...

    @property
    def threads_per_block(self) -> int: ...

    @property
    def threads_per_sm(self) -> int: ...

    @property
    def registers_per_sm(self) -> int: ...

    @property
    def shared_per_block(self) -> int: ...


@dataclass(frozen=True, slots=True)
class CommonLimits:
    """What every device of the last generations has."""

    sms: int = 108
    threads_per_block: int = 1024
    threads_per_sm: int = 1536
    registers_per_sm: int = 65536
    shared_per_block: int = 99 << 10


@dataclass(frozen=True, slots=True)
class _Facts:
    """A group as far as its space depends on it: independent items, the longest row, bytes of the
    widest and the narrowest element it reads or writes, whether it moves axes about, and the trips
    of its counted loops."""

    kind: str
    items: int
    row: int
    widest: int
    narrowest: int
    transposes: bool
    trips: tuple[int, ...]


class CudaLaunchSpace:
    """See the module text for the parameters."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits: Limits = limits or CommonLimits()

    def for_limits(self, limits: Limits) -> CudaLaunchSpace:
        """The same space on another device."""
        return CudaLaunchSpace(limits)

    def kind(self, graph: Graph, group: FusionGroup) -> str:
        if group.body is not None:
            return "body"
        if blas_form(graph, group) is not None:
            return "gemm"
        form = _form(graph, group)
        if form is not None and form.carries:
            return "loop"
        return "item" if form is None else form.kind

    def default(self, graph: Graph, group: FusionGroup) -> LaunchConfig:
        return self.choose(graph, group, lambda _, options: options[0], "")

    def ruled(
        self, graph: Graph, group: FusionGroup, threads: int, unroll: int, strided: bool
    ) -> LaunchConfig:
        default = self.default(graph, group)
        if self.kind(graph, group) != "item":
            return default
        vector = max(w for w in _vectors(_facts(graph, group, "item")) if w <= max(unroll, 1))
        block = min(-(-threads // WARP) * WARP, self.limits.threads_per_block)
        grid = "stride" if strided else "one"
        asked: dict[str, Setting] = {
            "threads": block, "items": max(unroll, 1), "vector": vector, "grid": grid,
        }  # fmt: skip
        return _canonical({**dict(default.settings), **asked})

    def choose(
        self, graph: Graph, group: FusionGroup, chooser: Chooser, prefix: str
    ) -> LaunchConfig:
        kind = self.kind(graph, group)
        if kind == "body":
            return LaunchConfig()

        def pick(name: str, options: tuple[Setting, ...]) -> Setting:
            # The options are part of the name: those of one name may never change.
            text = "/".join(map(str, options))
            return options[0] if len(options) == 1 else chooser(f"{prefix}.{name}.{text}", options)

        if kind == "gemm":
            if pick("gemm.impl", ("blas", "loops")) == "blas":
                return LaunchConfig()
            return _canonical({"impl": "loops", **self._item(_facts(graph, group, "item"), pick)})
        facts = _facts(graph, group, kind)
        made = self._row(facts, pick) if kind == "row" else self._item(facts, pick)
        return _canonical(made)

    # --- kinds --------------------------------------------------------------------------------

    def _item(self, facts: _Facts, pick: Chooser) -> dict[str, Setting]:
        """Pointwise work, column folds, and loops whose state is in registers."""
        looping = facts.kind == "loop"
        wide = 1 if looping else max(1, min(4, VECTOR_BYTES // facts.widest))
        first = _first(facts.items // wide // self.limits.sms, looping)
        threads = int(pick("item.threads", _ordered(first, self._threads())))
        vector = 1 if looping else int(pick("item.vector", _ordered(wide, _vectors(facts))))
        items = 1
        if not looping:
            items = max(vector, int(pick("item.items", _ordered(wide, (1, 2, 4, 8, 16)))))
        made: dict[str, Setting] = {"threads": threads, "items": items, "vector": vector}
        made["grid"] = pick("item.grid", ("one", "stride"))
        if facts.transposes:
            made["transpose"] = pick("item.transpose", (False, True))
        return made | self._common(facts, threads, pick)

    def _row(self, facts: _Facts, pick: Chooser) -> dict[str, Setting]:
        """Several folds over the same rows."""
        folds = self._folds(facts)
        fold = str(pick("row.reduce", folds))
        team, threads, own_rows = WARP, 0, 0
        if fold == "warp":
            threads = int(pick("row.warp.threads", (256, 128, 512)))
            own_rows = int(pick("row.warp.rows", (0, 16, 32)))
        else:
            least = -(-facts.row // (4 * WARP)) * WARP
            first = max(WARP, min(1 << (least - 1).bit_length(), 512))
            threads = team = int(pick("row.threads", _ordered(first, self._threads())))
        wide = max(1, min(4, VECTOR_BYTES // facts.widest))
        first_wide = wide if facts.row % wide == 0 else 1
        vector = int(pick("row.vector", _ordered(first_wide, _vectors(facts))))
        made: dict[str, Setting] = {"threads": threads, "reduce": fold, "vector": vector}
        per_block = 1
        if fold == "warp":
            made["rows"], per_block = own_rows, threads // WARP
        made["keep"] = pick("row.keep", self._keeps(facts, team, per_block))
        made["grid"] = "one" if fold == "barrier" else pick("row.grid", ("one", "stride"))
        return made | self._common(facts, threads, pick)

    def _common(self, facts: _Facts, threads: int, pick: Chooser) -> dict[str, Setting]:
        most = self.limits.threads_per_sm // threads
        # More threads than registers for 32 each would spill everything.
        room = self.limits.registers_per_sm // (WARP * threads)
        blocks = tuple(b for b in (0, 1, 2, 4, 8) if b <= min(most, room))
        unrolls = tuple(u for u in (0, 1, 2, 4) if all(t % max(u, 1) == 0 for t in facts.trips))
        return {
            "unroll": pick("unroll", unrolls),
            "blocks": pick("blocks", blocks),
            "math": pick("math", ("strict", "relaxed")),
        }

    def _threads(self) -> tuple[int, ...]:
        return tuple(t for t in (64, 128, 256, 512, 1024) if t <= self.limits.threads_per_block)

    def _folds(self, facts: _Facts) -> tuple[Setting, ...]:
        """Ways to fold the rows, the likely best first."""
        found: list[Setting] = ["warp", "block"] if facts.row <= WARP_ROW else ["block", "warp"]
        if facts.row > ROW_REGISTERS * WARP_ROW:
            found.remove("warp")
        if facts.row >= SPLIT_ROW:
            found += ["split", "barrier"]
            if facts.items < self.limits.sms // 2:  # too few rows to give every one work
                found.insert(0, found.pop(found.index("split")))
        return tuple(found)

    def _keeps(self, facts: _Facts, team: int, per_block: int) -> tuple[Setting, ...]:
        found: list[Setting] = []
        if -(-facts.row // team) <= ROW_REGISTERS:
            found.append("registers")
        if per_block * facts.row * max(4, facts.narrowest) <= self.limits.shared_per_block:
            found.append("shared")
        return (*found, "reread")


def _first(per_sm: int, looping: bool) -> int:
    """Threads of a block that leave no multiprocessor idle for want of blocks."""
    most = 128 if looping else 256
    return max(64, min(most, 1 << max(per_sm, 1).bit_length() - 1))


def _ordered(first: int, options: tuple[int, ...]) -> tuple[Setting, ...]:
    return (first, *(o for o in options if o != first))


def _vectors(facts: _Facts) -> tuple[int, ...]:
    """Widths of at most 16 bytes of what is widest."""
    return tuple(w for w in (1, 2, 4, 8) if w * facts.widest <= VECTOR_BYTES)


def _canonical(settings: dict[str, Setting]) -> LaunchConfig:
    """Leave out what equals the printer's own default, so equal kernels are equal candidates."""
    return LaunchConfig.of(**{k: v for k, v in settings.items() if SILENT.get(k) != v})


def _form(graph: Graph, group: FusionGroup) -> Form | None:
    verdict = check_group(graph, group.nodes, group.outputs)
    if isinstance(verdict, Refusal):
        return None
    return max(verdict, key=lambda f: f.items)


def _facts(graph: Graph, group: FusionGroup, kind: str) -> _Facts:
    form = _form(graph, group)
    values = (*reads(graph, group.nodes), *group.outputs)
    widths = [graph.type_of(v).dtype.itemsize for v in values if graph.type_of(v).size > 1] or [4]
    row = 1
    if form is not None:
        row = max((math.prod(local_shape(graph, v, t)) for v, t in form.tags), default=1)
    items = max((graph.type_of(v).size for v in group.outputs), default=1)
    if form is not None:
        items = max(1, form.items)
    moves = any(graph[n].spec.motion is Motion.PERMUTE for n in group.nodes)
    loops = (graph.call(n) for n in group.nodes if graph[n].op == "loop")
    trips = tuple(int(call["trip"]) for call in loops)
    return _Facts(kind, items, row, max(widths), min(widths), moves, trips)
