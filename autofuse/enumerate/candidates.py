"""One candidate kernel at a time: a set of supernodes judged, with the outputs it may write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import or_

from autofuse.cost.bounds import Calibration
from autofuse.enumerate.structure import Key, Structures, structures_of
from autofuse.enumerate.supernodes import Supernodes
from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family
from autofuse.plan.fusion.clusters import bits
from autofuse.plan.fusion.prepared import mixes
from autofuse.plan.types import FusionGroup

_CHEAP = (Family.ELEMENTWISE, Family.MOVEMENT, Family.RANDOM, Family.SOURCE)


@dataclass(frozen=True, slots=True)
class EnumerateOptions:
    """Limits of the enumeration; every one that bites is counted.

    `max_nodes` of a grown group, `max_products` in it (attention has two, a gated MLP three),
    `whole_nodes` of kernels fused side by side or of all between
    two barriers;
    `max_groups` kept in all; `max_per_seed` sets of supernodes tried
    from each supernode; `beam` sets kept per size and supernode; `fanout` neighbours tried per set;
    `duplicate_flops` operations per element up to which a producer may be computed again by
    another kernel (0: never); `max_dropped` such values a group may leave unwritten; `variants`
    of outputs per set; `horizontal` kernels at most fused side by side, each moving at most
    `horizontal_bytes` (0: none); `join` nodes into supernodes beforehand; `prune` what only loses
    under the bound.
    """

    max_nodes: int = 64
    max_products: int = 3
    whole_nodes: int = 1024
    max_groups: int = 200_000
    max_per_seed: int = 24
    beam: int = 3
    fanout: int = 6
    duplicate_flops: float = 64.0
    max_dropped: int = 8
    variants: int = 4
    horizontal: int = 16
    horizontal_bytes: int = 1 << 22
    join: bool = True
    prune: bool = True


@dataclass(frozen=True, slots=True)
class KernelOption:
    """A group one kernel can be: the values it writes, its bound and its structure."""

    group: FusionGroup
    bound_us: float
    key: Key


@dataclass(frozen=True, slots=True)
class Sketch:
    """A set of supernodes before it is judged: its nodes, what others need of it, which of that may
    be left unwritten, and its bound when it writes everything."""

    mask: int
    nodes: tuple[int, ...]
    needed: tuple[Value, ...]
    droppable: tuple[Value, ...]
    bound_us: float
    key: Key


@dataclass(frozen=True, slots=True)
class GrownState:
    """A set of supernodes that can be a kernel: `first` writes all that others need if it legally
    can (`whole`), else as little as it may."""

    sketch: Sketch
    first: KernelOption

    @property
    def mask(self) -> int:
        return self.sketch.mask

    @property
    def whole(self) -> bool:
        return self.first.group.outputs == self.sketch.needed


class Judge:
    """Judges sets of supernodes, each once, and counts why sets were refused."""

    def __init__(
        self, supernodes: Supernodes, options: EnumerateOptions, calibration: Calibration,
        should_stop: Callable[[], bool] = lambda: False, shapes: Structures | None = None,
    ) -> None:  # fmt: skip
        self.supernodes = supernodes
        self.graph: Graph = supernodes.graph
        self.options = options
        self.calibration = calibration
        self.shapes = shapes or structures_of(supernodes.graph)
        self.counts: Counter[str] = Counter()
        self._should_stop, self._is_over = should_stop, False
        self._sketches: dict[int, Sketch | None] = {}
        self._known: dict[int, GrownState | None] = {}
        self._bounds = self.shapes.bounds(calibration)
        self._cheap = [self._is_cheap(k) for k in range(len(supernodes.items))]

    def is_over(self) -> bool:
        """Whether no more sets should be looked for; once over, it stays over."""
        self._is_over = self._is_over or self._should_stop()
        return self._is_over

    def _is_cheap(self, k: int) -> bool:
        """Whether computing a supernode again may pay: no reduction roots, few operations per
        element."""
        nodes = [self.graph[n] for n in self.supernodes.items[k].full]
        if any(n.spec.family not in _CHEAP for n in nodes):
            return False
        flops = sum(
            self.graph[n].spec.flops(self.graph.call(n)) for n in self.supernodes.items[k].full
        )
        made = sum(self.graph.type_of(e.value).size for e in self.supernodes.items[k].exports)
        return flops <= self.options.duplicate_flops * made

    def is_new(self, mask: int) -> bool:
        """Whether a set was never sketched."""
        return mask not in self._sketches

    def sketch(self, mask: int, limit: int | None = None) -> Sketch | None:
        """A set of supernodes with its bound, or None when it exceeds the limit of nodes (default:
        max_nodes) or nobody needs it."""
        if mask not in self._sketches or limit is not None:
            self.counts["enumerated"] += 1
            self._sketches[mask] = self._sketch(mask, limit or self.options.max_nodes)
        return self._sketches[mask]

    def _sketch(self, mask: int, limit: int) -> Sketch | None:
        nodes = self.supernodes.nodes(mask)
        if len(nodes) > limit and mask & (mask - 1):
            self.counts["limit: nodes"] += 1
            return None
        products = sum(self.graph[n].spec.family is Family.CONTRACTION for n in nodes)
        if products > self.options.max_products and mask & (mask - 1):
            self.counts["limit: products"] += 1
            return None
        if mask & (mask - 1) and mixes(self.graph, nodes):
            self.counts["dominated: what runs once"] += 1
            return None
        needed, droppable = self._outputs(mask)
        if not needed:
            self.counts["illegal: empty"] += 1
            return None
        key = self.shapes.key(nodes, needed)
        return Sketch(mask, nodes, needed, droppable, self._bound(key, nodes, needed), key)

    def judge(self, mask: int, limit: int | None = None) -> GrownState | None:
        """What a set of supernodes can be, or None when no kernel can be it."""
        if mask not in self._known or limit is not None:
            sketch = self.sketch(mask, limit)
            self._known[mask] = None if sketch is None else self._judge(sketch)
        return self._known[mask]

    def _judge(self, sketch: Sketch) -> GrownState | None:
        above = self._above(sketch.mask)
        option = self._option(sketch, sketch.needed, above)
        if option is None and 0 < len(sketch.droppable) <= self.options.max_dropped:
            dropped = frozenset(sketch.droppable)
            outputs = tuple(v for v in sketch.needed if v not in dropped)
            option = self._option(sketch, outputs, above)
        return None if option is None else GrownState(sketch, option)

    def options_of(self, state: GrownState) -> Iterator[KernelOption]:
        """All that a state may write; what saves nothing by writing less is left out."""
        yield state.first
        sketch, above = state.sketch, self._above(state.mask)
        for dropped in self._variants(sketch.droppable):
            outputs = tuple(v for v in sketch.needed if v not in dropped)
            if outputs == state.first.group.outputs:
                continue
            key = self.shapes.key(sketch.nodes, outputs)
            lighter = self._bound(key, sketch.nodes, outputs) < sketch.bound_us
            if self.options.prune and state.whole and not lighter:
                self.counts["dominated: saves no write"] += 1
                continue
            option = self._option(sketch, outputs, above)
            if option is not None:
                yield option

    def _outputs(self, mask: int) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """Values others need of a set, and which of them its own readers keep alive unwritten."""
        needed: list[Value] = []
        droppable: list[Value] = []
        for k in bits(mask):
            for export in self.supernodes.items[k].exports:
                if not export.is_output and not export.readers & ~mask:
                    continue
                needed.append(export.value)
                if self._cheap[k] and not export.is_output and export.readers & mask:
                    droppable.append(export.value)
        return tuple(sorted(needed)), tuple(droppable)

    def _variants(self, droppable: Sequence[Value]) -> Iterator[frozenset[Value]]:
        """Sets of values left unwritten: all of them first, then smaller ones."""
        if len(droppable) > self.options.max_dropped:
            self.counts["limit: max_dropped"] += 1
            return
        left = self.options.variants - 1
        for size in range(len(droppable), 0, -1):
            for chosen in combinations(droppable, size):
                if left <= 0:
                    self.counts["limit: variants"] += 1
                    return
                left -= 1
                yield frozenset(chosen)

    def _above(self, mask: int) -> int:
        """Everything that what the set reads depends on."""
        before = reduce(or_, (self.supernodes.preds[k] for k in bits(mask)), 0) & ~mask
        return reduce(or_, (self.supernodes.up[k] for k in bits(before)), 0)

    def _option(
        self, sketch: Sketch, outputs: tuple[Value, ...], above: int
    ) -> KernelOption | None:
        home = self.supernodes.home
        if any(above >> home[v.node] & 1 for v in outputs):
            self.counts["illegal: convex"] += 1
            return None
        key = sketch.key if outputs == sketch.needed else None
        found = self.option(sketch.nodes, outputs, key)
        if found is not None and self.shapes.sits_beside(found.key):
            self.counts["dominated: product beside others"] += 1
            return None
        return found

    def option(
        self, nodes: tuple[int, ...], outputs: tuple[Value, ...], key: Key | None = None
    ) -> KernelOption | None:
        """The option of one group whose place among other kernels is known to be possible."""
        known = key or self.shapes.key(nodes, outputs)
        refusal = self.shapes.verdict(known, nodes, outputs)
        if refusal is not None:
            self.counts[f"illegal: {refusal.rule}"] += 1
            return None
        return KernelOption(FusionGroup(nodes, outputs), self._bound(known, nodes, outputs), known)

    def _bound(self, key: Key, nodes: tuple[int, ...], outputs: tuple[Value, ...]) -> float:
        return self._bounds.us(key, nodes, outputs)

    def closure(self, mask: int) -> int:
        """The set with everything on a path between two of its members."""
        up = reduce(or_, (self.supernodes.up[k] for k in bits(mask)), 0)
        down = reduce(or_, (self.supernodes.down[k] for k in bits(mask)), 0)
        return mask | up & down
