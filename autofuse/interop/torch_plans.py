"""Plans for islands: known, tuned for, or by rules; equal islands share one."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autofuse.backends.library import LoadedLibrary
from autofuse.devices import device_named
from autofuse.errors import AutofuseError
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.interop.torch_call import Port, TensorCall, array_of, tensor_call
from autofuse.interop.torch_layout import bordered
from autofuse.interop.torch_options import PlanSource
from autofuse.ops.spec import Family
from autofuse.runtime.compiled import CompiledPlan
from autofuse.serving.compiling import compile
from autofuse.simplify import normal_form
from autofuse.tuning import best_plan, tune
from autofuse.tuning.moving import moved_candidates
from autofuse.tuning.result import Progress

if TYPE_CHECKING:
    from torch import Tensor
else:
    Tensor = Any

LOG = logging.getLogger("autofuse.torch")
DEVICE = "cpu"
_TOLD_S = 5.0
_plans: dict[tuple[str | None, ...], CompiledPlan] = {}
_planning = threading.Lock()


@dataclass(frozen=True, slots=True)
class IslandGraph:
    """An island as a graph of ours, with what is at its border; `fixed` are constants by name, and
    `eager` computes it in PyTorch."""

    graph: Graph
    digest: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    fixed: Mapping[str, Any]
    eager: TensorCall

    @property
    def ops(self) -> int:
        """Nodes that compute something, and do not only move it."""
        still = (Family.SOURCE, Family.MOVEMENT)
        return sum(node.spec.family not in still for node in self.graph.nodes)


def piece_of(
    graph: Graph, inputs: Sequence[Port], outputs: Sequence[Port],
    fixed: Mapping[int, Any], eager: TensorCall,
) -> IslandGraph:  # fmt: skip
    """The piece of a graph of tensors; `fixed` are those that are constants, by position."""
    layouts = [port.layout for port in inputs], [port.layout for port in outputs]
    whole = normal_form(bordered(graph, *layouts, frozenset(fixed)))
    arrays = {whole.input_names[k]: array_of(fixed[k], inputs[k]) for k in fixed}
    free = tuple(port for k, port in enumerate(inputs) if k not in fixed)
    return IslandGraph(whole, digest(whole), free, tuple(outputs), arrays, eager)


def plan_for(piece: IslandGraph, source: PlanSource) -> CompiledPlan:
    """The best plan known for a piece, else one by rules. Raises AutofuseError."""
    if piece.fixed:
        return _compiled(piece, source)
    key = (piece.digest, *source.key)
    with _planning:
        if key not in _plans:
            _plans[key] = _compiled(piece, source)
        return _plans[key]


def _compiled(piece: IslandGraph, source: PlanSource) -> CompiledPlan:
    return compile(
        piece.graph, device=DEVICE, constants=piece.fixed or None, simplify=False,
        **source._asdict(),
    )  # fmt: skip


def tune_for(
    pieces: Sequence[IslandGraph], budget_s: float, source: PlanSource, sized: bool = False
) -> None:
    """Tune for the pieces that no plan is known for, each in its share of the time that all take
    by the plans that there are; `budget_s` bounds all of it. With `sized` a plan that was tuned at
    another size will do."""
    end = time.perf_counter() + budget_s
    counts: dict[str, int] = {}
    for piece in pieces:
        counts[piece.digest] = counts.get(piece.digest, 0) + 1
    distinct = {p.digest: p for p in pieces if not _is_tuned(p, source, sized)}
    weights = {key: counts[key] * _weight_us(piece, source) for key, piece in distinct.items()}
    for number, (key, piece) in enumerate(distinct.items(), 1):
        left = end - time.perf_counter()
        share = left * weights[key] / sum(weights[k] for k in list(distinct)[number - 1 :])
        if share < 1.0:
            LOG.warning("island %s is not tuned: %.1f s are left for it", key[:12], share)
            continue
        told = f"island {number} of {len(distinct)}"
        LOG.info("tuning %s for %.0f s", told, share)
        try:
            tune(
                piece.graph, name=f"torch {key[:12]}", device=DEVICE, db=source.db, budget_s=share,
                simplify=False, progress=_logged(told),
            )  # fmt: skip
        except AutofuseError as error:
            LOG.warning("island %s is not tuned: %s", key[:12], error)
        with _planning:
            _plans.pop((key, *source.key), None)


def _logged(what: str) -> Callable[[Progress], None]:
    """Tells the log where tuning stands, every `_TOLD_S` seconds."""
    last = math.inf

    def told(now: Progress) -> None:
        nonlocal last
        if now.best_us is not None and now.left_s <= last - _TOLD_S:
            last = now.left_s
            LOG.info("%s: %.1f us a call so far, %.0f s left", what, now.best_us, now.left_s)

    return told


def _is_tuned(piece: IslandGraph, source: PlanSource, sized: bool) -> bool:
    db = source.db
    if source.bundle is not None and source.bundle.has(piece.digest):
        return True
    if best_plan(piece.graph, device=DEVICE, db=db, simplify=False) is not None:
        return True
    moved = moved_candidates(piece.graph, device_named(DEVICE), db) if sized else iter(())
    return next(moved, None) is not None


def _weight_us(piece: IslandGraph, source: PlanSource) -> float:
    """Microseconds of a call by the plan there is; 1 where there is none yet."""
    try:
        return call_us(call_of(piece, plan_for(piece, source)), samples(piece))
    except AutofuseError:  # tuning looks for another
        return 1.0


def call_of(piece: IslandGraph, plan: CompiledPlan) -> TensorCall:
    """A function of the tensors that are no constants."""
    library = plan.loaded
    assert isinstance(library, LoadedLibrary)
    return tensor_call(library, piece.inputs, piece.outputs, piece.eager)


def samples(piece: IslandGraph) -> tuple[Tensor, ...]:
    """Tensors for a piece that lie as those that it was traced with: numbers from 0 to 1, zeros
    where they are whole."""
    import torch

    found = []
    for port in piece.inputs:
        layout = port.layout
        base = torch.empty_strided(layout.shape, port.strides, dtype=port.dtype)
        if port.dtype.is_floating_point and not layout.repeated:
            base.uniform_(0.0, 1.0)
        else:
            base.as_strided((base.untyped_storage().nbytes() // base.itemsize,), (1,)).zero_()
        found.append(base)
    return tuple(found)


def call_us(call: TensorCall, tensors: Sequence[Tensor]) -> float:
    """Microseconds of a call, the second of two."""
    call(*tensors)
    begun = time.perf_counter()
    call(*tensors)
    return 1e6 * (time.perf_counter() - begun)
