"""Connected parts of a graph of numbered vertices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray


def components(
    size: int, links: Sequence[tuple[int, int]], connection: Literal["weak", "strong"]
) -> NDArray[np.int32]:
    """The part, i32[size], that each vertex is in."""
    # A third of a second to import: who plans without a solver has no use for it.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = np.array(links, dtype=np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends), np.int8), (ends[:, 0], ends[:, 1])), shape=(size, size))
    labels: NDArray[np.int32] = connected_components(
        graph.tocsr(), directed=True, connection=connection
    )[1]
    return labels
