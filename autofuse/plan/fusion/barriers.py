"""Fusion barriers: which nodes no kernel may share, and which can take nothing into theirs.

What a kernel of ours can do with an op is decided here alone. Rules that follow another system
(`autofuse.baselines`) have barriers of their own.
"""

from __future__ import annotations

from autofuse.graph.types import Graph
from autofuse.ops.dtypes import TILED
from autofuse.ops.spec import Family
from autofuse.plan.types import Refusal

WHOLE_ARRAYS = (Family.CONTROL,)
# Says of a set of nodes whose loops are run by the host, where no single node is to blame.
SHARED = Refusal("library", "a library call or a host loop stands alone")


def stands_alone(graph: Graph, node: int) -> Refusal | None:
    """Why a node must be the only one of its kernel, or None. A contraction of whole numbers has
    tiles only of i32, and a Fourier transform is worth nothing as the fold that a kernel can do."""
    n = graph[node]
    if n.spec.family is Family.CONTRACTION and n.types[0].dtype not in TILED:
        return Refusal("library", f"%{node} {n.op} of {n.types[0].dtype} is a kernel of its own")
    if n.spec.transforms is not None:
        return Refusal("library", f"%{node} {n.op} is a kernel of its own: libraries transform")
    if n.spec.solves is not None:
        return Refusal(
            "library", f"%{node} {n.op} is a library call: no kernel factorises matrices"
        )
    return None


def may_be_library(graph: Graph, node: int) -> bool:
    """Whether a node alone may be a library call, which reads its operands from memory."""
    spec = graph[node].spec
    return spec.family in (Family.CONTRACTION, Family.SOLVER) or spec.transforms is not None


def reads_whole_arrays(graph: Graph, node: int) -> bool:
    """Whether a node needs its operands in memory, so that its kernel cannot recompute
    what it reads: counted loops."""
    return graph[node].spec.family in WHOLE_ARRAYS
