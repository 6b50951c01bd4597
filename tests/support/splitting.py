"""Halves of split groups on the emulator."""

from __future__ import annotations

from autofuse.backends.cuda.devices import DEFAULT_TARGET
from autofuse.backends.cuda.program import unit_of
from autofuse.kernel.lower import extract
from autofuse.plan.program.schedule import Ref, Run
from autofuse.plan.program.splitting import HalfOfGroup
from tests.support.emulation import OneKernel


def on_gpu(half: HalfOfGroup) -> OneKernel:
    refs = tuple(Ref("in", k) for k in range(len(half.reads)))
    outs = tuple(Ref("out", k) for k in range(len(half.writes)))
    unit = unit_of(Run(half.graph, half.group, half.launch, refs, outs), DEFAULT_TARGET)
    return OneKernel(half.graph, unit, extract(half.graph, half.group)[1])
