"""peeled: with setting `peel`, the last, shorter tile of a C kernel is a segment of its own."""

from autofuse.kernel.ir.types import Kernel
from autofuse.kernel.passes.peel_tails import peel_tails
from autofuse.plan.parameters import C_LAUNCH, LaunchConfig


def peeled(kernel: Kernel) -> Kernel:
    """`kernel` as it is where nothing asks for more: a setting may be without effect."""
    return peel_tails(kernel) if C_LAUNCH["peel"].of(LaunchConfig(kernel.facts)) else kernel
