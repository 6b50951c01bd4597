"""Plans for islands: known, tuned for, or by rules; equal islands share one."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autofuse.devices import standing_in, under
from autofuse.errors import AutofuseError
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.interop.torch.call import Port, TensorCall, array_of, tensor_call
from autofuse.interop.torch.device import IslandPlace, why_absent
from autofuse.interop.torch.layout import bordered
from autofuse.interop.torch.options import PlanSource
from autofuse.ops.spec import Family
from autofuse.plan.types import Candidate
from autofuse.runtime.compiled import CompiledPlan
from autofuse.serving.compiling import compile
from autofuse.simplify import forms_of
from autofuse.tuning import tune
from autofuse.tuning.plans import known_peaks, known_plans
from autofuse.tuning.result import Progress
from autofuse.tuning.serve.kept import kept_untuned
from autofuse.tuning.serve.moving import moved_candidates

if TYPE_CHECKING:
    from torch import Tensor
else:
    Tensor = Any

LOG = logging.getLogger("autofuse.torch")
_TOLD_S = 5.0
_plans: dict[tuple[str | None, ...], CompiledPlan] = {}
_planning = threading.Lock()


@dataclass(frozen=True, slots=True)
class IslandGraph:
    """An island as a graph of ours, in its normal form and as it was written, where it is, and what
    is at its border; `fixed` are constants by name, and `eager` computes it in PyTorch."""

    graph: Graph
    written: Graph
    digest: str
    place: IslandPlace
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
    graph: Graph, place: IslandPlace, inputs: Sequence[Port], outputs: Sequence[Port],
    fixed: Mapping[int, Any], eager: TensorCall,
) -> IslandGraph:  # fmt: skip
    """The piece of a graph of tensors; `fixed` are those that are constants, by position."""
    layouts = [port.layout for port in inputs], [port.layout for port in outputs]
    forms = forms_of(bordered(graph, *layouts, frozenset(fixed)))
    whole = forms.graph
    arrays = {whole.input_names[k]: array_of(fixed[k], inputs[k]) for k in fixed}
    free = tuple(port for k, port in enumerate(inputs) if k not in fixed)
    return IslandGraph(
        whole, forms.written, digest(whole), place, free, tuple(outputs), arrays, eager
    )


def plan_for(piece: IslandGraph, source: PlanSource) -> CompiledPlan:
    """The best plan known for a piece, else one by rules. Raises AutofuseError."""
    if piece.fixed:
        return _compiled(piece, source)
    key = (piece.digest, *piece.place.key, *source.key)
    with _planning:
        if key not in _plans:
            _plans[key] = _compiled(piece, source)
        return _plans[key]


def planned(piece: IslandGraph, db: str | None) -> Candidate:
    """The plan that a piece would get, for a device that need not be here, with its origin. Raises
    AutofuseError."""
    kind = piece.place.device.kind
    if why_absent(piece.place.device):
        kind = standing_in(kind)
    peaks = known_peaks(kind.backend.environment(), db)
    known, _ = known_plans(piece.graph, kind.backend, db)
    return kept_untuned(piece.graph, kind, peaks) if known is None else known.candidate


def _compiled(piece: IslandGraph, source: PlanSource) -> CompiledPlan:
    with piece.place.on():
        return compile(
            piece.written, device=piece.place.device.name, constants=piece.fixed or None,
            simplify=piece.graph != piece.written, **source._asdict(),
        )  # fmt: skip


def tune_for(
    pieces: Sequence[IslandGraph], budget_s: float, source: PlanSource, sized: bool = False
) -> None:
    """Tune for the pieces that no plan is known for, each in its share of the time that all take
    by the plans that there are; `budget_s` bounds all of it. With `sized` a plan that was tuned at
    another size will do."""
    end = time.perf_counter() + budget_s
    counts = Counter(_tuned_as(piece) for piece in pieces)
    distinct = {_tuned_as(p): p for p in pieces if not _is_tuned(p, source, sized)}
    weights = {key: counts[key] * _weight_us(piece, source) for key, piece in distinct.items()}
    for number, (key, piece) in enumerate(distinct.items(), 1):
        left = end - time.perf_counter()
        share = left * weights[key] / sum(weights[k] for k in list(distinct)[number - 1 :])
        name = piece.digest[:12]
        if share < 1.0:
            LOG.warning("island %s is not tuned: %.1f s are left for it", name, share)
            continue
        told = f"island {number} of {len(distinct)}"
        LOG.info("tuning %s for %.0f s", told, share)
        try:
            tune(
                piece.written, name=f"torch {name}", device=piece.place.device.name, db=source.db,
                budget_s=share, simplify=piece.graph != piece.written, progress=_logged(told),
                math=source.math,
            )  # fmt: skip
        except AutofuseError as error:
            LOG.warning("island %s is not tuned: %s", name, error)
        with _planning:
            _plans.pop((piece.digest, *piece.place.key, *source.key), None)


def _tuned_as(piece: IslandGraph) -> tuple[str, str]:
    """Equal for what is tuned once: units of a device that differ are told apart by where plans are
    looked up."""
    return piece.digest, piece.place.device.name


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
    device = piece.place.device
    with piece.place.on():
        kind = under(device.kind, source.math)
        if known_plans(piece.graph, kind.backend, db)[0] is not None:
            return True
        moved = moved_candidates(piece.graph, kind, db) if sized else iter(())
        return next(moved, None) is not None


def _weight_us(piece: IslandGraph, source: PlanSource) -> float:
    """Microseconds of a call by the plan there is; 1 where there is none yet."""
    try:
        call = call_of(piece, plan_for(piece, source))
        return call_us(call, samples(piece), piece.place)
    except AutofuseError:  # tuning looks for another
        return 1.0


def call_of(piece: IslandGraph, plan: CompiledPlan) -> TensorCall:
    """A function of the tensors that are no constants."""
    with piece.place.on():
        return tensor_call(plan.loaded, piece.place, piece.inputs, piece.outputs, piece.eager)


def samples(piece: IslandGraph) -> tuple[Tensor, ...]:
    """Tensors for a piece that lie as those that it was traced with: numbers from 0 to 1, zeros
    where they are whole."""
    import torch

    found = []
    for port in piece.inputs:
        layout = port.layout
        base = torch.empty_strided(layout.shape, port.strides, dtype=port.dtype, device=port.device)
        if port.dtype.is_floating_point and not layout.repeated:
            base.uniform_(0.0, 1.0)
        else:
            base.as_strided((base.untyped_storage().nbytes() // base.itemsize,), (1,)).zero_()
        found.append(base)
    return tuple(found)


def call_us(call: TensorCall, tensors: Sequence[Tensor], place: IslandPlace) -> float:
    """Microseconds of a call, the second of two."""
    call(*tensors)
    with place.on():
        return 1e6 * place.device.clock(lambda: call(*tensors))
