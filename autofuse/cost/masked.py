"""The least work of a kernel that may leave out what a mask hides: causal attention computes half
of its scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from autofuse.cost.amounts import PRODUCTS, Work
from autofuse.cost.work import group_work, kind_of_arithmetic
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.schedules.masks import reach_of
from autofuse.plan.schedules.tiles import tiles_of


@lru_cache(maxsize=4096)
def least_work(graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...]) -> Work:
    """As `group_work`, less what is masked: of a product the terms or columns beyond the mask, of
    everything else the same share, because elementwise work follows the product. Remembered: a
    bound and what estimates a kernel ask about the same groups."""
    work = group_work(graph, nodes, outputs)
    if not may_be_masked(graph, nodes):
        return work
    shares = masked_shares(graph, nodes, outputs)
    if not shares:
        return work
    left = {kind: getattr(work, kind) for kind in PRODUCTS}
    for n, share in shares.items():
        left[kind_of_arithmetic(graph, n)] -= graph[n].spec.flops(graph.call(n)) * (1 - share)
    least = min(shares.values())
    return Work(
        work.nbytes, work.cheap * least, work.special * least,
        max(0.0, left["contraction"]), max(0.0, left["wide"]), max(0.0, left["narrow"]),
        max(0.0, left["byte"]), work.called_cheap * least, work.called_special * least,
        calls=tuple((name, count * least) for name, count in work.calls),
    )  # fmt: skip


def may_be_masked(graph: Graph, nodes: Sequence[int]) -> bool:
    """Whether a group multiplies and chooses by a condition."""
    found = [graph[n] for n in nodes]
    if not any(n.spec.family is Family.CONTRACTION for n in found):
        return False
    chosen = (n for n in found if n.spec.family is Family.ELEMENTWISE and len(n.inputs) > 2)
    return any(graph.type_of(n.inputs[0]).dtype is DType.BOOL for n in chosen)


@lru_cache(maxsize=1024)
def masked_shares(
    graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...]
) -> dict[int, float]:
    """The share of each product's flops that a kernel needs, for products that a mask cuts short:
    those whose columns it hides, and those that multiply what they made of these."""
    verdict = check_group(graph, nodes, outputs, placed=True)
    shares: dict[int, float] = {}
    for form in () if isinstance(verdict, Refusal) else verdict:
        tiles = tiles_of(graph, form)
        if tiles is None:
            continue
        for p in tiles.products:
            reach = reach_of(graph, form, tiles, p)
            if reach is None:
                continue
            rows = form.parallel[tiles.rows[0]]
            needed = sum(min(p.width, max(0, r + reach.offset + 1)) for r in range(rows))
            share = needed / max(1, rows * p.width)
            shares[p.node] = share
            shares |= {
                q.node: share
                for q in tiles.products
                if graph[q.node].inputs[q.left] in reach.values
            }
    return shares
