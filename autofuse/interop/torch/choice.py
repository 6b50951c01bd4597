"""Whose code serves, ours or PyTorch's own: they take turns, once on a machine.

Of an island by itself, and of a whole program, which PyTorch may run without what islands cost at
their borders and what AOTAutograd decomposes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from statistics import median
from typing import TYPE_CHECKING, Any

from autofuse.interop.torch.call import TensorCall
from autofuse.interop.torch.device import CPU, IslandPlace
from autofuse.interop.torch.plans import IslandGraph, samples
from autofuse.runtime.compiled import CompiledPlan
from autofuse.tuning.serve.kept import keep, kept_key, recalled

if TYPE_CHECKING:
    from torch.fx import GraphModule
else:
    GraphModule = Any

# PyTorch's own code is kept where it is faster than a tuned plan by more than noise.
CLEARLY = 1.03
_ROUNDS, _ROUND_S = 7, 0.01
TorchProgram = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Rival:
    """A way of PyTorch to compute what we do, and how many times as fast it is."""

    name: str
    ratio: float

    def __str__(self) -> str:
        return f"{self.name} is {self.ratio:.2f} times as fast"


def faster_island(piece: IslandGraph, plan: CompiledPlan, call: TensorCall) -> Rival | None:
    """PyTorch's own code for an island, where it is clearly faster."""
    lying = (str((port.shape, port.strides)) for port in (*piece.inputs, *piece.outputs))
    key = _key(piece.digest, (plan.candidate.digest, *lying), piece.place)
    rivals = {"torch's own code": lambda: piece.eager}
    return _fastest(key, call, rivals, lambda: _Turn(samples(piece), (), piece.place), piece.place)


def faster_program(
    gm: GraphModule, ours: TorchProgram, rivals: Mapping[str, Callable[[], TorchProgram]],
    inputs: Sequence[Any], plans: Sequence[str], place: IslandPlace,
) -> Rival | None:  # fmt: skip
    """The fastest rival of our program for `gm` that is clearly faster, by the clock of `place`;
    `plans` are digests of what ours calls, and rivals are made when they are timed. Tensors are
    copied, and what a program writes to is restored before each call. None where inputs share
    memory or sizes are symbolic."""
    if not _are_apart(inputs):
        return None
    told = (str((x.dtype, x.shape, x.stride())) for x in inputs if hasattr(x, "stride"))
    graph = sha256(str(gm.graph).encode()).hexdigest()
    key = _key(graph, (*plans, *told, *rivals), place)
    return _fastest(key, ours, rivals, lambda: _turn(ours, inputs, place), place)


def _key(what: str, more: Sequence[str], place: IslandPlace) -> str:
    import torch

    told = (torch.__version__, str(torch.get_num_threads()), *more)
    with place.on():
        return kept_key("torch's own", what, place.device.kind.backend.environment(), told)


@dataclass(frozen=True, slots=True)
class _Turn:
    """Arguments of a call, pairs of one that the call writes to and what it held before, and where
    it is timed."""

    given: Sequence[Any]
    written: Sequence[tuple[Any, Any]]
    place: IslandPlace

    def seconds(self, program: TorchProgram) -> float:
        """Seconds a call, the median of a round: other work on the machine meets single calls."""
        end, taken = time.perf_counter() + _ROUND_S, list[float]()
        clock = self.place.device.clock
        with self.place.on():
            while time.perf_counter() < end or not taken:
                for tensor, before in self.written:
                    tensor.copy_(before)
                taken.append(clock(lambda: program(*self.given)))
        return median(taken)


def _fastest(
    key: str, ours: TorchProgram, rivals: Mapping[str, Callable[[], TorchProgram]],
    turn: Callable[[], _Turn], place: IslandPlace,
) -> Rival | None:  # fmt: skip
    """The fastest rival that is clearly faster than ours, as it was kept or is measured now."""
    import torch

    kept = recalled(key) or {}
    if kept.keys() != rivals.keys() or not all(isinstance(r, float) for r in kept.values()):
        made = {name: make() for name, make in rivals.items()}
        units = [] if place.device.serves == CPU else [place.unit]
        with torch.no_grad(), torch.random.fork_rng(devices=units):
            kept = _ratios(ours, made, turn())
        keep(key, kept)
    name = max(kept, key=kept.__getitem__)
    return Rival(name, kept[name]) if kept[name] > CLEARLY else None


def _ratios(
    ours: TorchProgram, rivals: Mapping[str, TorchProgram], turn: _Turn
) -> dict[str, float]:
    """Our time over that of each rival, the median of rounds in which all take turns."""
    for program in rivals.values():
        turn.seconds(program)  # what is compiled or allocated in a first call is no part of it
    rounds = [
        (turn.seconds(ours), {name: turn.seconds(each) for name, each in rivals.items()})
        for _ in range(_ROUNDS)
    ]
    return {name: median(us / theirs[name] for us, theirs in rounds) for name in rivals}


def _are_apart(inputs: Sequence[Any]) -> bool:
    """Whether no two tensors share memory, and all have it."""
    import torch
    from torch._subclasses import FakeTensor

    if any(isinstance(x, FakeTensor | torch.SymInt) for x in inputs):
        return False
    tensors = [x for x in inputs if isinstance(x, torch.Tensor) and x.numel()]
    return len({x.untyped_storage().data_ptr() for x in tensors}) == len(tensors)


def _turn(program: TorchProgram, inputs: Sequence[Any], place: IslandPlace) -> _Turn:
    """Tensors of their own that lie as the inputs do; a first call says which it writes to."""
    import torch
    from torch._prims_common import clone_preserve_strides

    with torch.inference_mode(False):
        given = [clone_preserve_strides(x) if isinstance(x, torch.Tensor) else x for x in inputs]
        before = [getattr(x, "_version", 0) for x in given]
        program(*given)
        after = [getattr(x, "_version", 0) for x in given]
    places = [k for k in range(len(given)) if before[k] != after[k]]
    return _Turn(given, [(given[k], inputs[k]) for k in places], place)
