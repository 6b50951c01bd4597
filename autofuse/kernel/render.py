"""Kernels as text: the passes of a dialect, then its printer."""

from __future__ import annotations

from functools import lru_cache

from autofuse.kernel.ir.types import Kernel
from autofuse.kernel.passes import C_PASSES, CUDA_PASSES, run_passes
from autofuse.kernel.text.c.printer import print_c
from autofuse.kernel.text.cuda.printer import print_cuda


def shaped_c(kernel: Kernel) -> Kernel:
    """A kernel as it is written in C: both its text and its iterations are this one's, since passes
    may cut a grid otherwise."""
    return run_passes(kernel, C_PASSES)


@lru_cache(maxsize=256)
def shaped_cuda(kernel: Kernel) -> Kernel:
    """A kernel as it is written in CUDA: its text and what its launch needs are this one's. Raises
    LaunchSettingError."""
    return run_passes(kernel, CUDA_PASSES)


def render_c(kernel: Kernel) -> str:
    """One C function of a kernel as it was lowered; the text starts after the prelude."""
    return print_c(shaped_c(kernel))


def render_cuda(kernel: Kernel) -> str:
    """One CUDA kernel, for blocks of `threads` threads (a launch setting); `kernel/cuda/shape.py`
    says what its launch needs. Raises LaunchSettingError for a setting that no kernel can have."""
    return print_cuda(shaped_cuda(kernel))
