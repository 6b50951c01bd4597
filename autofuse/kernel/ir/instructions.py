"""The instruction classes of tensor cores: one row each, and everything that is known of one.

Sources: PTX ISA (mma.sync, wgmma.mma_async), CUDA programming guide (arithmetic of tensor cores).
"""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.ops.dtypes import DType
from autofuse.plan.parameters import (
    BYTE_GROUP_MMA,
    BYTE_MMA,
    GROUP_MMA,
    HALF_MMA,
    STRICT_MMA,
    TF32_MMA,
)


@dataclass(frozen=True, slots=True)
class InstructionClass:
    """What multiplies a tile."""

    # The setting of the launch parameter `mma` that asks for it.
    name: str
    # Types that factors may have.
    factors: tuple[DType, ...]
    # Threads that multiply together.
    together: int
    # Bytes of a row (or column) that go through shared memory at once.
    run_bytes: int
    # Parts in which a factor is multiplied.
    parts: int
    # The peak rate of a device that it has (`Target.peaks`).
    peak: str
    # What a compiler's target must be called for it; "": any.
    only: str = ""
    # The type of sums.
    sums: DType = DType.F32


WARP = 32
_HALVES = (DType.F16, DType.BF16)
INSTRUCTIONS: dict[str, InstructionClass] = {
    row.name: row
    for row in (
        InstructionClass(HALF_MMA, _HALVES, WARP, 64, 1, "half"),
        InstructionClass(TF32_MMA, (DType.F32,), WARP, 64, 1, "tf32"),
        InstructionClass(STRICT_MMA, (DType.F32,), WARP, 64, 2, "tf32"),
        InstructionClass(BYTE_MMA, (DType.I8,), WARP, 64, 1, "byte", sums=DType.I32),
        InstructionClass(GROUP_MMA, _HALVES, 4 * WARP, 128, 1, "half", "sm_90a"),
        InstructionClass(
            BYTE_GROUP_MMA, (DType.I8,), 4 * WARP, 128, 1, "byte", "sm_90a", DType.I32
        ),
    )
}
# Factors that an instruction class multiplies.
FACTORS = {name: row.factors for name, row in INSTRUCTIONS.items()}


def by_group(name: str) -> bool:
    """Whether a class is of warpgroups: products that go on while their threads do."""
    row = INSTRUCTIONS.get(name)
    return row is not None and row.together > WARP
