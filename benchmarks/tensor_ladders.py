"""Published ladders of hand-written products on tensor cores: the first rung of each that reaches
nine tenths of cuBLAS, put in the figures that `sass_tensor` reads out of our machine code.

What a rung is, its author's source says; the figures follow from that by the arithmetic of
`sass_tensor`, for the same size and device, and nothing here was measured by us.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from autofuse.backends.cuda.devices import Target
from autofuse.plan.parameters import GROUP_MMA, HALF_MMA
from benchmarks.tensor_model import Blocks, RunFacts, after_runs, tensor_share


class Rung(NamedTuple):
    """A kernel of a ladder: the tile of a block and the terms of a run, rows and columns of a warp
    (or of a product of a warpgroup), blocks on a multiprocessor, stages, runs of them that are not
    being multiplied, and the share of cuBLAS that its author measured on a device."""

    source: str
    device: str
    tile: tuple[int, int, int]
    own: tuple[int, int]
    blocks: int
    stages: int
    ahead: int
    of_cublas: float


# By instruction class.
RUNGS = {
    HALF_MMA: Rung(
        "waynehacking8/blackwell-tensorcore-kernels, mma_warptile, 8192^3", "RTX PRO 6000",
        (128, 128, 32), (64, 64), 2, 2, 1, 1.061,
    ),
    GROUP_MMA: Rung(
        "pranjalssh/fast.cu, kernel 6, 8192^3", "H100",
        (192, 192, 64), (64, 192), 1, 3, 2, 777.5 / 797.8,
    ),
}  # fmt: skip


def rung_row(
    mma: str, target: Target, sizes: tuple[int, int, int], most: float
) -> dict[str, Any] | None:
    """The figures of a rung for a product of so many rows, columns and terms of 16 bits, of which
    memory allows `most` of the peak; None for instructions of which no ladder is known. Its other
    instructions are not known, so they are never what takes longest."""
    if mma not in RUNGS:
        return None
    rung, (high, wide, deep) = RUNGS[mma], sizes
    rows, columns, terms = rung.tile
    # What each 64 x n (or warp's rectangle) reads of a run: its rows and its columns.
    read = rows * columns // math.prod(rung.own) * sum(rung.own) * terms * 2
    made, copied = rows * columns * terms, (rows + columns) * terms * 2
    run = RunFacts(0, 0, made, read, copied, 0)
    grid = -(-high // rows) * -(-wide // columns)
    after = after_runs(target, rows * columns, 2)
    share = tensor_share(target, run, Blocks(rung.blocks, grid, -(-deep // terms), after=after))
    useful = high * wide / (grid * rows * columns)
    return {
        "source": rung.source, "device": rung.device, "of_cublas": round(rung.of_cublas, 3),
        "multiply_adds_per_byte": round(made / read, 2),
        "bytes_in_flight": rung.ahead * copied * rung.blocks,
        "predicted_share": round(min(share * useful, most), 3),
    }  # fmt: skip
