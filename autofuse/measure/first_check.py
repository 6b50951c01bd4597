"""A program checked in this process before it serves: once, on drawn inputs, at some places.

The whole program runs, on poisoned outputs between guard zones, as it will for its users; so
buffers that are shared, threads and blocks at the ends of arrays are checked too. What it must give
is computed at a few places of each axis (`graph/surgery/narrowed.py`), first without noise: what is
as right as rounding each result and its folds allows is right. Only what is not gets noise runs,
and so the room that its conditioning asks for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from zlib import crc32

import numpy as np

from autofuse.backends.base import LaunchError, Runnable
from autofuse.errors import Blame
from autofuse.graph.reference import random_inputs
from autofuse.graph.settled import constant_inputs
from autofuse.graph.surgery.narrowed import narrowed, picked
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import (
    MOST_NAN,
    OutputReference,
    WorkloadReference,
    check,
    poison,
    reference_of,
)
from autofuse.measure.device import GuardedOutput
from autofuse.measure.truth.build import LateTruthError
from autofuse.measure.truth.expected import expected, expected_s, runs_of
from autofuse.measure.truth.threads import one_thread_of_blas
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType
from autofuse.records import CHECKED, UNVERIFIED, WRONG, Trust

# Operations from which on fewer places are looked at.
ENOUGH = 4e6
# Bytes of arrays that a check may draw and hold.
MOST_BYTES = 1 << 30
# Noise runs take about so many times what the reference takes.
_NOISE_RUNS = 8
# What one operation and the functions of libraries may err, in epsilons of the dtype.
_PLAIN = 16.0
# Share of an output whose terms may cancel so far that its size says nothing of its room.
_MOST_CANCELLED = 0.02
# Iterations that rounding is taken to add up over.
_MOST_TRIPS = 1 << 20
SEED = 20_251
# Different elements of a large input: a prime, so that no block begins with the same ones.
_PERIOD = 65_521


def first_check(
    graph: Graph, load: Callable[[], Runnable], limit_s: float, noise_limit_s: float
) -> Trust:
    """Whether the program that `load` loads gives what `graph` says. What it must give may take
    `limit_s` seconds to compute, and what rounding may do to that `noise_limit_s`.

    Raises LaunchError for what the machine does wrong."""
    begun = time.perf_counter()
    with one_thread_of_blas():
        trust = _trust(graph, load, limit_s, noise_limit_s)
    return replace(trust, check_s=time.perf_counter() - begun)


def _trust(
    graph: Graph, load: Callable[[], Runnable], limit_s: float, noise_limit_s: float
) -> Trust:
    held = sum(t.nbytes for t in (*graph.input_types, *graph.output_types))
    if held > MOST_BYTES:
        return Trust(UNVERIFIED, f"its arrays have {held >> 20} MiB, too many for a check")
    late = Trust(UNVERIFIED, f"computing what it must give takes more than {limit_s:g} s")
    few = narrowed(graph, ENOUGH)
    if expected_s(few.graph) > limit_s:
        return late
    inputs = _with_ends(graph, random_inputs(graph, SEED, period=_PERIOD))
    given = tuple(picked(a, w).copy() for a, w in zip(inputs, few.inputs, strict=True))
    wanted = expected(few.graph, given, limit_s)
    if wanted is None:
        return late
    try:
        outputs, fault = run_once(graph, load, inputs)
    except LaunchError as error:
        if error.blame is Blame.MACHINE:
            raise
        return Trust(WRONG, str(error))
    if fault:
        return Trust(WRONG, fault)
    found = tuple(picked(a, w).copy() for a, w in zip(outputs, few.outputs, strict=True))
    return compared(few.graph, given, wanted, found, noise_limit_s)


def run_once(
    graph: Graph, load: Callable[[], Runnable], inputs: Sequence[np.ndarray]
) -> tuple[tuple[np.ndarray, ...], str]:
    """The outputs of a run on poisoned memory, and what it did that no program may do. No page is
    forbidden here, as it is in a worker: this may be the process of a user."""
    fixed = constant_inputs(graph)
    guarded = [GuardedOutput(t) for t in graph.output_types]
    for output in guarded:
        output.arm()
    before = [_sum_of(a) for a in inputs]
    loaded = load()
    try:
        workspace = getattr(loaded, "workspace", None)
        if isinstance(workspace, np.ndarray):
            poison(workspace)
        if fixed:
            loaded.prepare([inputs[k] for k in fixed])
        free = [a for k, a in enumerate(inputs) if k not in fixed]
        loaded.run(free, [output.array for output in guarded])
    finally:
        loaded.close()
    outputs = tuple(output.array for output in guarded)
    if not all(output.intact() for output in guarded):
        return outputs, "it wrote outside its outputs"
    if [_sum_of(a) for a in inputs] != before:
        return outputs, "it changed its inputs"
    return outputs, ""


def _sum_of(array: np.ndarray) -> int:
    return crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _with_ends(graph: Graph, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Inputs whose least and largest elements lie at both ends, where blocks and rows end."""
    for array, type_ in zip(inputs, graph.input_types, strict=True):
        if array.size > 1 and type_.dtype.is_float:
            flat = array.reshape(-1)
            flat[0], flat[-1] = flat.min(), flat.max()
    return tuple(inputs)


def compared(
    graph: Graph, given: Sequence[np.ndarray], wanted: Sequence[np.ndarray],
    found: Sequence[np.ndarray], noise_limit_s: float,
) -> Trust:  # fmt: skip
    """What is to be said of outputs `found` of `graph` on `given` arrays, where it gives `wanted`
    in float64."""
    types, fold = graph.output_types, _longest_fold(graph)
    rows = zip(found, wanted, types, strict=True)
    said = next(filter(None, (_plainly(*row, fold, k) for k, row in enumerate(rows))), "")
    if not said:
        blind = _mostly_nan(wanted)
        return Trust(UNVERIFIED, blind) if blind else Trust(CHECKED)
    if not any(t.dtype.is_float for t in (*types, *graph.input_types)):
        return Trust(WRONG, said)
    why = f"what rounding may do takes more than {noise_limit_s:g} s to compute"
    late = Trust(UNVERIFIED, f"{said}, and {why}")
    if _NOISE_RUNS * expected_s(graph) > noise_limit_s:
        return late
    try:
        noisy = reference_of(graph, given, evaluate=runs_of(noise_limit_s))
    except LateTruthError:
        return late
    result = check(found, _with_floors(noisy))
    if not result.ok:
        return Trust(WRONG, result.message)
    return Trust(UNVERIFIED, result.blind) if result.blind else Trust(CHECKED)


def _longest_fold(graph: Graph) -> int:
    """Terms of the longest sum, product or scan; a loop folds its body."""
    found = 1
    for i, node in enumerate(graph.nodes):
        attrs = dict(node.attrs)
        trips = min(int(attrs.get("trip", attrs.get("max_trips", 1))), _MOST_TRIPS)
        inner = (trips * _longest_fold(v) for v in attrs.values() if isinstance(v, Graph))
        own = node.spec.terms(graph.call(i)) if node.inputs else 1
        found = max(found, own, *inner)
    return found


def _plainly(
    found: np.ndarray, wanted: np.ndarray, type_: TensorType, fold: int, number: int
) -> str:
    """What is wrong with an output as far as rounding of its results and folds can tell."""
    dtype = type_.dtype
    if found.shape != wanted.shape or found.dtype != dtype.numpy:
        return f"output {number} is {found.dtype}{list(found.shape)}"
    with np.errstate(all="ignore"):
        if dtype.is_float:
            stored = wanted.astype(dtype.numpy).astype(np.float64)
            values = found.astype(np.float64)
            alike = _close(values, stored, (_PLAIN + 2 * math.sqrt(fold)) * dtype.eps, least(dtype))
        else:  # as bytes, because a bool may hold what is neither 0 nor 1
            width = (*found.shape, dtype.numpy.itemsize)
            pair = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (found, wanted)]
            alike = (pair[0] == pair[1]).reshape(width).all(axis=-1)
    if alike.all():
        return ""
    first = np.unravel_index(int(np.argmin(alike)), alike.shape) if alike.ndim else ()
    where, beyond = list(map(int, first)), alike.size - int(np.count_nonzero(alike))
    told = f"{beyond} of {alike.size} elements differ, first at {where}"
    return f"output {number}: {told}: {found[first]!s} instead of {wanted[first]!s}"


def _close(values: np.ndarray, wanted: np.ndarray, relative: float, floor: float) -> np.ndarray:
    """Which elements differ by rounding: as much as their own size allows. A few, where terms
    cancel, may differ as much as that of the others does."""
    error = np.abs(values - wanted)
    alike = (error <= relative * np.abs(wanted) + floor) | (values == wanted)
    alike |= np.isnan(values) & np.isnan(wanted)
    left = alike.size - int(np.count_nonzero(alike))
    if 0 < left <= max(2.0, _MOST_CANCELLED * alike.size):
        finite = wanted[np.isfinite(wanted)]
        alike |= error <= relative * math.sqrt(float(np.mean(finite**2)) if finite.size else 0.0)
    return np.asarray(alike)


def least(dtype: DType) -> float:
    """The least normal number: below it kernels and the reference may round to zero or not."""
    return 2.0**-14 if dtype is DType.F16 else 2.0**-1022 if dtype is DType.F64 else 2.0**-126


def _with_floors(reference: WorkloadReference) -> WorkloadReference:
    """A reference that lets results be zero where they are no normal numbers."""
    return WorkloadReference(tuple(map(_with_floor, reference.outputs)))


def _with_floor(output: OutputReference) -> OutputReference:
    if not output.type.dtype.is_float:
        return output
    room = least(output.type.dtype)
    bound = output.norm_bound
    if output.norm > 0:
        bound += room * math.sqrt(output.expected.size) / output.norm
    wide = (output.tolerance.astype(np.float64) + room).astype(np.float32)
    return replace(output, tolerance=wide, norm_bound=bound)


def _mostly_nan(wanted: Sequence[np.ndarray]) -> str:
    """Of which output a check says nothing."""
    for k, array in enumerate(wanted):
        if array.dtype.kind == "f" and array.size:
            share = np.count_nonzero(np.isnan(array)) / array.size
            if share > MOST_NAN:
                return f"{share:.0%} of output {k} is NaN in the reference"
    return ""
