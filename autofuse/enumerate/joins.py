"""Which sets of supernodes are worth judging together: neighbours, whole parts, everything that is
legal, and independent kernels side by side (horizontal fusion)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_

from autofuse.cost.work import group_work
from autofuse.enumerate.candidates import GrownState, Judge, KernelOption
from autofuse.enumerate.supernodes import Supernodes
from autofuse.graph.types import Value
from autofuse.plan.fusion.barriers import may_be_library
from autofuse.plan.fusion.clusters import bits, connected, mask_of
from autofuse.plan.fusion.groups import is_source, reads
from autofuse.plan.fusion.products import folded_moves

# A value that more supernodes read makes no neighbours of them.
CROWD = 8
# Up to this many supernodes single ones go side by side too, not only what fusing left.
_FEW = 128


def neighbours(supernodes: Supernodes, mask: int, fanout: int) -> list[int]:
    """Supernodes that read from a set, are read by it or read what it reads; most shared bytes
    first."""
    graph, shared = supernodes.graph, Counter[int]()
    for k in bits(mask):
        for value in supernodes.items[k].reads:
            maker, nbytes = supernodes.home.get(value.node), graph.type_of(value).nbytes
            if maker is None:  # of others: there, as inputs are
                continue
            if not mask >> maker & 1:
                shared[maker] += 2 * nbytes + 1
            readers = next(e.readers for e in supernodes.items[maker].exports if e.value == value)
            if readers.bit_count() <= CROWD:
                for other in bits(readers & ~mask):
                    shared[other] += nbytes
        for export in supernodes.items[k].exports:
            nbytes = graph.type_of(export.value).nbytes
            for reader in bits(export.readers & ~mask):
                shared[reader] += 2 * nbytes + 1
        for readers in supernodes.sharing[k]:
            if readers.bit_count() <= CROWD:
                for other in bits(readers & ~mask):
                    shared[other] += 1
    ranked = sorted(shared, key=lambda k: (-shared[k], k))
    return [k for k in ranked if not supernodes.barriers >> k & 1][:fanout]


def fuse_legal(judge: Judge) -> list[GrownState]:
    """A plan that fuses whatever is legal: each supernode joins the kernel of its last producer, or
    of a sibling, if it may. Kernels are numbered, and no supernode joins one before its producers',
    so that the kernels never wait for each other. Cut short, it leaves the last supernodes out."""
    supernodes = judge.supernodes
    masks: list[int] = []
    home: list[int] = []
    for k in range(len(supernodes.items)):
        if judge.is_over():
            break
        at = _kernel_for(judge, k, masks, home)
        if at is None:
            masks.append(1 << k)
            at = len(masks) - 1
        else:
            masks[at] |= 1 << k
        home.append(at)
    found = (judge.judge(mask) for mask in masks)
    return [state for state in found if state is not None]


def _kernel_for(judge: Judge, k: int, masks: Sequence[int], home: Sequence[int]) -> int | None:
    supernodes = judge.supernodes
    if supernodes.barriers >> k & 1:
        return None
    first = max((home[p] for p in bits(supernodes.preds[k])), default=0)
    near = {home[p] for p in bits(supernodes.preds[k])}
    near |= {home[o] for o in neighbours(supernodes, 1 << k, judge.options.fanout) if o < k}
    for at in sorted((at for at in near if at >= first), reverse=True):
        if masks[at] & supernodes.barriers:
            continue
        state = judge.judge(masks[at] | 1 << k)
        if state is not None and state.whole:
            return at
    return None


def whole_parts(judge: Judge) -> list[GrownState]:
    """Everything connected between barriers as one kernel each, where legal."""
    supernodes = judge.supernodes
    free = [k for k in range(len(supernodes.items)) if not supernodes.barriers >> k & 1]
    links = ((p, k) for k in free for p in bits(supernodes.preds[k] & ~supernodes.barriers))
    parts = (mask_of(part) for part in connected(free, links))
    found = (judge.judge(part, judge.options.whole_nodes) for part in parts if not judge.is_over())
    return [state for state in found if state is not None]


def products(judge: Judge) -> Iterator[KernelOption]:
    """Every product with the moves of its operands that a library call can do, where these moves
    are among the supernodes and what they read is written."""
    graph, supernodes = judge.graph, judge.supernodes
    inside = frozenset[int]().union(*(one.full for one in supernodes.items))
    written = {export.value for one in supernodes.items for export in one.exports}
    written.update(value for one in supernodes.items for value in one.reads)
    for one in supernodes.items:
        node = one.own[0]
        if len(one.own) > 1 or not may_be_library(graph, node):
            continue
        moves = folded_moves(graph, node)
        if not inside.issuperset(moves):  # of a part of the graph: another part has them
            continue
        nodes = (*moves, node)
        needs = (v for v in reads(graph, nodes) if not is_source(graph, v.node))
        option = (
            judge.option(nodes, (Value(node),)) if moves and written.issuperset(needs) else None
        )
        if option is not None:
            judge.counts["products with moves"] += 1
            yield option


def side_by_side(judge: Judge, states: Sequence[GrownState]) -> Iterator[KernelOption]:
    """Small kernels that do not depend on each other fused horizontally, 2, 4, 8, ... at a time,
    and what is left over."""
    limit = judge.options.horizontal
    if limit < 2:
        return
    few = len(judge.supernodes.items) <= _FEW
    units = [s for s in states if (few or s.mask & (s.mask - 1)) and _is_small(judge, s)]
    units = sorted({s.mask: s for s in units}.values(), key=lambda s: s.mask.bit_length())
    seen: set[int] = set()
    size = 2
    while size <= limit:
        for start in range(0, len(units), max(1, size // 2)):
            if judge.is_over():
                return
            mask = _independent(judge, units[start : start + 4 * size], size)
            if mask is None or mask in seen:
                continue
            seen.add(mask)
            state = judge.judge(mask, judge.options.whole_nodes)
            if state is not None and state.whole:
                judge.counts["packs"] += 1
                yield state.first
        size *= 2


def _is_small(judge: Judge, state: GrownState) -> bool:
    if not state.whole or state.mask & judge.supernodes.barriers:
        return False
    group = state.first.group
    return (
        group_work(judge.graph, group.nodes, group.outputs).nbytes <= judge.options.horizontal_bytes
    )


def _independent(judge: Judge, units: Sequence[GrownState], size: int) -> int | None:
    """The first unit with the next ones that neither need it, nor feed it, nor share supernodes: as
    many as asked for, or all there are where that is more than half of it."""
    supernodes = judge.supernodes
    mask = around = 0
    taken = 0
    for unit in units:
        if unit.mask & (mask | around):
            continue
        mask |= unit.mask
        around |= reduce(or_, (supernodes.up[k] | supernodes.down[k] for k in bits(unit.mask)), 0)
        taken += 1
        if taken == size:
            break
    return mask if 2 * taken > size else None
