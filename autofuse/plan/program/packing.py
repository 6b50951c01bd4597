"""Panels that are packed once: right operands of products that are computed from constants alone.

Under the launch setting `prepack` a kernel of the tile schedule is two: one that packs, which runs
before the first call where it can, and one that reads panels. Both are of one group.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache

from autofuse.graph.canonical import subgraph
from autofuse.graph.settled import settled
from autofuse.graph.types import Graph, Value
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr
from autofuse.ops.types import TensorType
from autofuse.order import closure
from autofuse.plan.fusion.groups import is_inline
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.parameters import BATCH_LANES, DOT, MICRO, MMA, PAIRS, PREPACK, SPLIT
from autofuse.plan.schedules.forms import Form
from autofuse.plan.schedules.online import Online, online_under
from autofuse.plan.schedules.pairs import pair_unit
from autofuse.plan.schedules.tiles import Contraction, tiles_of
from autofuse.plan.types import FusionGroup, LaunchConfig

# Columns that the last panel of a product is filled up to a multiple of.
LANES = 16
# An operand whose panels take so many times the bytes of what they are made of stays as it is.
MOST_GROWTH = 8


@dataclass(frozen=True, slots=True)
class PackedOperand:
    """The panels of a product's right operand, `columns` wide: for each matrix of the batch all
    full ones, each with all terms, then the last one, filled up to `last` columns (0: none). Terms
    are filled up to a multiple of `unit`; where that is not 1 they lie in pairs."""

    product: Contraction
    batch: int
    columns: int
    last: int
    dtype: DType
    unit: int = 1

    @property
    def depth(self) -> int:
        """Terms of a panel."""
        return -(-self.product.terms // self.unit) * self.unit

    @property
    def type(self) -> TensorType:
        """All panels, as one buffer."""
        return TensorType((self.batch * self.matrix,), self.dtype)

    @property
    def full(self) -> int:
        """Full panels of one matrix."""
        return self.product.width // self.columns

    @property
    def matrix(self) -> int:
        """Elements of one matrix's panels."""
        return self.depth * (self.full * self.columns + self.last)

    def start(self, matrix: Expr, column: Expr) -> Expr:
        """Where the panel of a matrix begins whose first column is `column`."""
        before = ix.imul(matrix, self.matrix)
        return ix.iadd(before, ix.imul(column, self.depth))


def padded(count: int) -> int:
    """So many rows or columns, filled up to whole vectors."""
    return -(-count // LANES) * LANES


def panel_width(count: int, columns: int) -> int:
    """Columns of a panel that has `count`, filled up: to whole vectors, but no wider than what is
    left of a row in scratch, whose stride is a multiple of LANES."""
    even = math.gcd(LANES, columns)
    return -(-count // even) * even


def tile_columns(graph: Graph, products: Iterable[Contraction], columns: int) -> int:
    """Columns of a register tile that has `columns` of 4 bytes, for products of any float type."""
    widest = max(graph.type_of(Value(p.node)).dtype.compute.itemsize for p in products)
    return max(1, columns * 4 // widest)


@lru_cache(maxsize=2048)
def packed_operands(group: Graph, launch: LaunchConfig) -> tuple[PackedOperand, ...]:
    """What the kernel of a group, given as its own graph (`subgraph`), finds packed under a launch
    configuration; nothing without `prepack`, or where no right operand is made of constants."""
    elsewhere = any(row.of(launch) for row in (BATCH_LANES, DOT))
    known = settled(group) if PREPACK.of(launch) and not elsewhere else frozenset()
    if not known:
        return ()
    verdict = check_group(group, _computed(group), tuple(dict.fromkeys(group.outputs)))
    forms = () if isinstance(verdict, Refusal) else verdict
    found = (packed for form in forms for packed in _packed(group, form, known, launch))
    return tuple(packed for packed in found if _is_worth_it(group, packed))


def _computed(group: Graph) -> tuple[int, ...]:
    nodes = (n for n in range(len(group.nodes)) if n not in set(group.inputs))
    return tuple(n for n in nodes if not is_inline(group, n))


def _sources(online: Online | None) -> set[int]:
    return set() if online is None else {p.node for p in online.sources}


def _packed(
    group: Graph, form: Form, known: frozenset[int], launch: LaunchConfig
) -> Iterable[PackedOperand]:
    tiles = tiles_of(group, form)
    if tiles is None or tiles.groups > 1:
        return
    wanted = int(str(launch.get(MICRO.name, MICRO.default)).split("x")[1])
    columns = tile_columns(group, tiles.products, wanted)
    batch = math.prod(form.parallel[a] for a in tiles.batch)
    online = online_under(group, form, tiles, launch)
    turned = _sources(online)
    for p in tiles.products:
        if group[p.node].inputs[p.right].node in known and p.node not in turned:
            last = panel_width(p.width % columns, columns)
            dtype = group.type_of(Value(p.node)).dtype.compute
            unit = pair_unit(tiles, p, PAIRS.of(launch), MMA.of(launch))
            if not unit:
                yield PackedOperand(p, batch, columns, last, dtype)
            elif columns % LANES == 0:  # pairs lie in whole vectors
                yield PackedOperand(p, batch, columns, last, DType.BF16, unit)


def _is_worth_it(group: Graph, packed: PackedOperand) -> bool:
    made_of = _read(group, [_operand(group, packed)], {})
    nbytes = sum(group[n].types[0].nbytes for n in made_of)
    return packed.type.nbytes <= MOST_GROWTH * nbytes


def _operand(group: Graph, packed: PackedOperand) -> Value:
    return group[packed.product.node].inputs[packed.product.right]


def packing_reads(group: Graph, packed: Iterable[PackedOperand]) -> tuple[int, ...]:
    """The inputs of a group (their positions) that panels are made of."""
    return _positions(group, _read(group, [_operand(group, each) for each in packed], {}))


def reads_beside(group: Graph, packed: Collection[PackedOperand]) -> tuple[int, ...]:
    """The inputs of a group (their positions) that its kernel reads besides panels."""
    if not packed:
        return tuple(range(len(group.inputs)))
    done = {each.product.node: each.product.right for each in packed}
    return _positions(group, _read(group, group.outputs, done))


def _positions(group: Graph, nodes: frozenset[int]) -> tuple[int, ...]:
    return tuple(p for p, node in enumerate(group.inputs) if node in nodes)


def _read(group: Graph, values: Iterable[Value], done: dict[int, int]) -> frozenset[int]:
    """The inputs that values depend on, not through the operand of a node that `done` names."""

    def near(n: int) -> Iterable[int]:
        return (v.node for k, v in enumerate(group[n].inputs) if done.get(n) != k)

    return frozenset(closure((v.node for v in values), near) & set(group.inputs))


@dataclass(frozen=True, slots=True)
class Packing:
    """The panels of a group inside a graph: their types, the values that they are made of, and
    those that the kernel reads besides."""

    panels: tuple[TensorType, ...] = ()
    made_of: tuple[Value, ...] = ()
    beside: tuple[Value, ...] = ()


def packing_of(graph: Graph, group: FusionGroup, launch: LaunchConfig) -> Packing | None:
    """The panels that a group's kernel finds packed; None where it is one kernel."""
    if group.body is not None or not PREPACK.of(launch) or SPLIT.of(launch) > 1:
        return None
    alone, values = subgraph(graph, group.nodes, group.outputs)
    packed = packed_operands(alone, launch)
    if not packed:
        return None
    return Packing(
        tuple(each.type for each in packed),
        tuple(values[p] for p in packing_reads(alone, packed)),
        tuple(values[p] for p in reads_beside(alone, packed)),
    )
