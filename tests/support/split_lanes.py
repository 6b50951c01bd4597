"""Kernels after the passes that split lanes."""

from __future__ import annotations

from typing import Any

import autofuse
from autofuse import spec
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.kernel.ir.types import Kernel
from autofuse.kernel.passes import drop_dead, nest_lanes, split_lanes, unswitch_lanes, verify


def passed(kernel: Kernel) -> Kernel:
    for step in (nest_lanes, split_lanes, unswitch_lanes, drop_dead):
        kernel = verify(step(kernel))
    return kernel


def traced(fn: Any, *shape: int) -> Graph:
    return canonical(autofuse.trace(lambda x: {"y": fn(x)}, spec(shape)))
