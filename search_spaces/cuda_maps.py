"""Tensor maps as a choice: where an operand of warpgroups is copied in boxes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from autofuse.graph.types import Graph
from autofuse.kernel.ir.emit import LoweringError
from autofuse.kernel.ir.instructions import by_group
from autofuse.kernel.lower import extract, lower
from autofuse.kernel.render import shaped_cuda
from autofuse.plan.parameters import MAPS, MMA, LaunchParameter
from autofuse.plan.types import FusionGroup, LaunchConfig, Setting
from search_spaces.launch import Chosen, Offer


def with_maps(offer: Offer, graph: Graph, group: FusionGroup) -> Offer:
    """What is offered besides, to a group in tiles: tensor maps, where its kernel has any."""

    def offered(row: LaunchParameter[Any], made: Chosen) -> tuple[Setting, ...]:
        if row is not MAPS:
            return offer(row, made)
        if not by_group(str(made.get(MMA.name))):
            return ()
        settings = LaunchConfig.of(**{**made, MAPS.name: True})
        # First, as in published kernels: one thread asks, and the rest of its group does nothing.
        return MAPS.choices[::-1] if _has_maps(extract(graph, group)[0], settings) else ()

    return offered


@lru_cache(maxsize=4096)
def _has_maps(group: Graph, launch: LaunchConfig) -> bool:
    """Whether some operand is copied in boxes; the pass `box_copies` says so."""
    try:
        kernel = shaped_cuda(lower(group, launch))
    except LoweringError:
        return False
    return any(param.map is not None for param in kernel.params)
