"""deep: factors of 16 bits that warps multiply, twice as many terms at once as usual."""

from autofuse.kernel.ir.instructions import INSTRUCTIONS, WARP, InstructionClass
from autofuse.ops.dtypes import DType

INSTRUCTIONS["deep"] = InstructionClass("deep", (DType.F16, DType.BF16), WARP, 128, 1, "half")
