"""When a group is a library call."""

from __future__ import annotations

from autofuse.graph.types import Graph
from autofuse.kernel.dialects import Dialect
from autofuse.plan.parameters import IMPL, PREPACK
from autofuse.plan.products import Product, product_of
from autofuse.plan.types import FusionGroup, LaunchConfig


def library_product(graph: Graph, group: FusionGroup, dialect: Dialect) -> Product | None:
    """The product that the library of a dialect could compute for this group, or None."""
    found = product_of(graph, group.nodes)
    if found is None or group.outputs != (found.output,):
        return None
    return found if graph.type_of(found.output).dtype in dialect.products else None


def uses_blas(graph: Graph, group: FusionGroup, launch: LaunchConfig, dialect: Dialect) -> bool:
    """Whether this group is a library call under this launch configuration."""
    if PREPACK.of(launch):  # whose panels no library reads
        return False
    return IMPL.of(launch) == "blas" and library_product(graph, group, dialect) is not None
