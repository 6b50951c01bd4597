"""The trust rule: what a candidate computed against the float64 reference.

Outputs are poisoned before the run. An element may differ from the reference by

    base * |ref| + SPREAD_FACTOR * spread

where `base` is a few units in the last place of the output's dtype, and `spread` is how far this
very element moved in runs of the reference with rounding noise of the graph's own dtypes (Monte
Carlo arithmetic, Parker 1997). Noise is drawn at every result that rounds; at a fold also in
proportion to `sqrt(terms) * sqrt(ref^2 + sum of squares of the terms)`, what summing in another
order does at random (Higham, Accuracy and Stability, 4.2; Higham and Mary 2019). So room for
reordering goes where its fold's results go, and nowhere else, and an ill-conditioned element gets
the room that any correct program needs; large elements lend none to small ones.

An element may stand still by chance, or because a clip hides the noise (max(x, 0) at x just below
0). So a mirrored pair of runs with WIDE times the noise counts as well, scaled back, where it does
not jump: in one of the pair x is above 0. Where rounding decides anything at all, 3 more runs make
a spread of 0 by chance rarer than one in 10^9. The relative norm of the error has a tighter bound.
Noise is of chance, and errors of equal elements are equal: a product of 400 numbers just below 1
in bf16 is 1 where each is stored, and iterations that all add the same number to a sum all round
alike. Where that may be, one run rounds each result to its type (Veltkamp 1968).

Programs with jumps (comparisons, floor, resets of a simulation) have elements that land elsewhere
under rounding noise. An element that lands elsewhere in several noisy runs is excused by its
spread. Those that do so in one run only stand for others that the runs did not happen to hit: a
candidate may have as many outliers as there are of them in all runs, and 2. If there are none, the
wide runs tell whether the data lie so near a jump that a candidate may have a few outliers all the
same. Any other program may have none.

An element that is NaN in the reference must be NaN, and says no more than that. One whose room is
comparable to its own size says nothing. Of an output most of whose elements are such, as of a
chaotic simulation, the verdict is "not verifiable" (`blind`), whatever a candidate computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from autofuse.graph.noise import Noise, Rounding, may_lean
from autofuse.graph.reference import Runs
from autofuse.graph.types import Graph
from autofuse.measure.check.parts import ANY_FINITE, Held, HeldParts, numpy_parts, slices
from autofuse.ops.dtypes import DType
from autofuse.ops.layout import laid_out
from autofuse.ops.types import TensorType

SPREAD_FACTOR = 16.0
# Units in the last place by which runs of the reference are perturbed: as much as the vector math
# libraries err (up to 4, rarely), and CUDA's fast division.
NOISE_ULPS = 2.0
JUMP = 1e-3
WIDE = 64.0
# A part of what rounding each result to its type does counts as spread: it is no chance, and what a
# plan may do.
ROUNDED = 4.0
_POISON_BYTE = 0xA5
_EXTRA_RUNS = 3
# Share of an output that may be NaN in the reference, or excused, before the check says that it
# says nothing; an element is excused by room of this part of its size and the output's together.
MOST_NAN = 0.5
_IDLE = 0.25
# Largest share of an output that single jumps near the data may excuse.
_RARE = 0.01

Arrays = tuple[np.ndarray, ...]
# noise scale (0.0: none; negative: mirrored) and seed -> outputs, floats as float64
Evaluate = Callable[[float, int], Sequence[np.ndarray]]
RunsOf = Callable[[Graph, Sequence[np.ndarray]], Callable[[Noise | None], Sequence[np.ndarray]]]


@dataclass(frozen=True)
class OutputReference:
    """What one output must be: flat arrays of the output's size.

    `expected` is float64, or the exact dtype; `tolerance` (float32) is absolute, ANY_FINITE where
    noise made the element jump, infinite where it made a finite element non-finite or back.
    `norm` is the 2-norm of the finite expected values, `idle` how many elements say nothing,
    because their room is comparable to their size.
    """

    type: TensorType
    expected: np.ndarray
    tolerance: np.ndarray
    rms: float
    norm: float
    norm_bound: float
    outliers: int
    idle: int = 0

    @property
    def held(self) -> Held:
        """What elements are compared with."""
        exact = not self.type.dtype.is_float
        return Held(self.expected, self.tolerance, self.rms, self.norm, exact)


@dataclass(frozen=True)
class WorkloadReference:
    """The outputs of a workload, as a candidate is held to them."""

    outputs: tuple[OutputReference, ...]

    @cached_property
    def blind(self) -> str:
        """Why a check cannot verify anything: one sentence; "" where it can."""
        said = [text for k, output in enumerate(self.outputs) if (text := _says_nothing(output, k))]
        return f"not verifiable: {' and '.join(said)}" if said else ""


def _says_nothing(output: OutputReference, number: int) -> str:
    share = _nan_share(output.expected)
    if share > MOST_NAN:
        return f"{share:.0%} of output {number} is NaN in the reference"
    excused = output.idle / max(1, output.expected.size)
    if share + excused > MOST_NAN:
        return f"rounding errors move {excused:.0%} of output {number} as far as its own size"
    return ""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """`max_rel_error` is the largest |out - ref| / (|ref| + rms(ref)) of the elements that are
    within bounds; `message` says what is wrong, or is empty; `blind` of which outputs that says
    nothing (`WorkloadReference.blind`)."""

    ok: bool
    max_rel_error: float
    message: str = ""
    blind: str = ""


def poison(array: np.ndarray) -> None:
    """Fill with NaN, or with a byte pattern in integers and bools (where it is no valid bool)."""
    if array.dtype.kind in "iub":
        array.reshape(-1).view(np.uint8)[...] = _POISON_BYTE
    else:
        array.fill(np.nan)


def reference_of(
    graph: Graph, inputs: Sequence[np.ndarray], runs: int = 2, evaluate: RunsOf = Runs
) -> WorkloadReference:
    """The reference of `graph` on these inputs: one exact run, `runs` noisy ones, two wide ones,
    3 more noisy ones where rounding decides anything, and one that rounds each result to its
    type where errors may lean to one side. `evaluate` runs the graph."""
    runs_of = evaluate(graph, inputs)

    def run(scale: float, seed: int) -> Sequence[np.ndarray]:
        return runs_of(Noise(seed, NOISE_ULPS * scale) if scale != 0 else None)

    rounded = partial(runs_of, Rounding()) if may_lean(graph) else None
    return build_reference(run, graph.output_types, runs, rounded)


def build_reference(
    evaluate: Evaluate, types: Sequence[TensorType], runs: int = 2,
    rounded: Callable[[], Sequence[np.ndarray]] | None = None,
) -> WorkloadReference:  # fmt: skip
    """As `reference_of`, from a function that runs the reference with a given noise, and one that
    runs it with each result rounded to its type."""
    # The exact run may overflow or divide by zero: that is the program's own doing.
    with np.errstate(all="ignore"):
        exact = zip(evaluate(0.0, 0), types, strict=True)
        moves = [_Moves(_flat(a, t).copy(), t) for a, t in exact]

        def add(first: int, count: int) -> None:
            for seed in range(first, first + count):
                for move, array in zip(moves, evaluate(1.0, seed), strict=True):
                    move.add(array)

        add(1, runs)
        for scale in (WIDE, -WIDE):
            for move, array in zip(moves, evaluate(scale, runs + 1), strict=True):
                move.add_wide(array)
        for move, array in zip(moves, rounded() if rounded is not None else (), strict=False):
            move.add_rounded(array)
        if any(move.delicate for move in moves):
            add(runs + 2, _EXTRA_RUNS)
        return WorkloadReference(tuple(move.finish() for move in moves))


def _flat(array: np.ndarray, type_: TensorType) -> np.ndarray:
    """Reference values of an output, flat."""
    return laid_out(array.astype(type_.dtype.reference, copy=False)).reshape(-1)


def _storable(flat: np.ndarray, type_: TensorType) -> np.ndarray:
    """Reference values; those too large for the output's dtype become infinite."""
    if type_.dtype.is_float and type_.dtype is not DType.F64:
        stored = flat.astype(type_.dtype.numpy)
        over = np.isinf(stored)
        if over.any():
            flat = flat.copy()
            flat[over] = stored[over]
    return flat


def base_tolerance(dtype: DType) -> float:
    """Relative tolerance before conditioning; half types are rounded once per stored value."""
    return (4 if dtype.compute is not dtype else 16) * dtype.eps


class _Moves:
    """Gathers how far the elements of one output move under noise, a part at a time: passes over
    whole arrays of temporaries would take most of the time, and several times the memory."""

    def __init__(self, exact: np.ndarray, type_: TensorType) -> None:
        """`exact`: flat reference values, which are this object's own from now on."""
        self.exact, self.type = exact, type_
        self.parts = tuple(slices(exact.size))
        for part in self.parts:
            exact[part] = _storable(exact[part], type_)
        self.base = base_tolerance(type_.dtype)
        self.rms, finite = self._root_mean_square()
        self.norm = self.rms * math.sqrt(finite)
        self.largest, self.second, self.wide, self.rounded = (
            np.zeros(exact.shape, np.float32) for _ in range(4)
        )

    def _root_mean_square(self) -> tuple[float, int]:
        """Of the finite elements, scaled so that squares do not overflow; and how many they are."""
        top, count, square = 0.0, 0, 0.0
        for finite in self._finite():
            top, count = max(top, float(finite.max(initial=0.0))), count + finite.size
        for finite in self._finite():
            square += float(np.sum((finite / top if top > 0 else finite) ** 2))
        return (top * math.sqrt(square / count) if count else 0.0), count

    def _finite(self) -> Iterator[np.ndarray]:
        for part in self.parts:
            values = self.exact[part]
            yield np.abs(values[np.isfinite(values)].astype(np.float64))

    def _weight(self, part: slice) -> np.ndarray:
        """What a jump is told by, never room."""
        return np.asarray(np.abs(self.exact[part]).astype(np.float64) + self.rms)

    def _moved(self, array: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """|noisy - exact| as float32, part by part; infinite where finiteness changed."""
        flat = _flat(array, self.type)
        for part in self.parts:
            exact, noisy = self.exact[part], _storable(flat[part], self.type)
            if not self.type.dtype.is_float:
                yield part, np.where(noisy == exact, np.float32(0), ANY_FINITE)
                continue
            moved: np.ndarray = np.abs(noisy - exact)
            odd = ~np.isfinite(moved)
            if odd.any():
                a, b = noisy[odd], exact[odd]
                moved[odd] = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.inf)
            yield part, moved.astype(np.float32)

    def add(self, array: np.ndarray) -> None:
        for part, moved in self._moved(array):
            largest, second = self.largest[part], self.second[part]
            np.maximum(second, np.minimum(largest, moved), out=second)
            np.maximum(largest, moved, out=largest)

    def add_rounded(self, array: np.ndarray) -> None:
        for part, moved in self._moved(array):
            self.rounded[part] = moved

    def add_wide(self, array: np.ndarray) -> None:
        for part, moved in self._moved(array):
            np.maximum(self.wide[part], moved, out=self.wide[part])

    def _spread(self, part: slice, weight: np.ndarray) -> np.ndarray:
        """How far elements moved: in wide runs too, scaled back, unless they jumped there; and a
        part of how far rounding each result moved them."""
        wide, rounded = self.wide[part], self.rounded[part]
        certain = np.where(rounded >= ANY_FINITE, rounded, rounded / ROUNDED)
        largest = np.maximum(self.largest[part], certain)
        back = np.where(self._leaped(wide, weight), 0.0, wide.astype(np.float64) / WIDE)
        return np.asarray(np.maximum(largest.astype(np.float64), back))

    def _leaped(self, moved: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Moved too far for rounding; beside a non-finite value, at all."""
        leap = max(JUMP, 8 * self.type.dtype.eps) * weight
        return np.asarray((moved > leap) | np.isinf(moved))

    def _once(self, part: slice, weight: np.ndarray) -> np.ndarray:
        """Elements that leaped in a single run; a smooth one moves about alike in all."""
        largest = self.largest[part]
        return self._leaped(largest, weight) & (largest > SPREAD_FACTOR * self.second[part])

    def _near(self) -> int:
        """Elements that wide noise moved farther than their slope explains."""
        found = 0
        for part in self.parts:
            weight, wide = self._weight(part), self.wide[part]
            slope = self.largest[part] + self.type.dtype.eps * weight
            far = wide > SPREAD_FACTOR * WIDE * slope
            found += int(np.count_nonzero(self._leaped(wide, weight) & far))
        return found

    @property
    def delicate(self) -> bool:
        """More noisy runs are needed: few may by chance all leave an unstable element still."""
        return any(map(self._is_unstable, self.parts)) or self._near() > 0

    def _is_unstable(self, part: slice) -> bool:
        spread = np.maximum(self.largest[part], self.wide[part] / np.float32(WIDE))
        return bool(np.any(spread > self.base * np.abs(self.exact[part]).astype(np.float64)))

    def finish(self) -> OutputReference:
        room = np.empty(self.exact.shape, np.float32)
        seen, idle, square, step = 0, 0, 0.0, self.type.dtype.least_step
        for part in self.parts:
            weight = self._weight(part)
            spread, once = self._spread(part, weight), self._once(part, weight)
            tolerance = self.base * np.abs(self.exact[part]).astype(np.float64)
            tolerance += SPREAD_FACTOR * spread + step
            tolerance[~np.isfinite(self.exact[part])] = 0.0
            tolerance[once | (spread >= ANY_FINITE)] = ANY_FINITE
            tolerance[np.isinf(spread)] = np.inf
            room[part] = _as_float32(tolerance)
            idle += int(np.count_nonzero((tolerance > _IDLE * weight) & np.isfinite(weight)))
            seen += int(np.count_nonzero(once))
            if self.norm > 0:
                steady = np.where(tolerance < ANY_FINITE, spread, 0.0)
                square += float(np.sum((steady / self.norm) ** 2))
        bound = 0.5 * (self.base + SPREAD_FACTOR * math.sqrt(square))
        bound = bound + step * self.exact.size**0.5 / self.norm if self.norm > 0 else 0.0
        outliers = 0
        if seen:
            outliers = seen + 2
        elif near := self._near():
            outliers = max(2, min(near, int(_RARE * self.exact.size)))
        norm = (self.rms, self.norm, bound)
        return OutputReference(self.type, self.exact, room, *norm, outliers, idle)


def _as_float32(tolerance: np.ndarray) -> np.ndarray:
    """Rounded up, but zero and ANY_FINITE kept."""
    small = tolerance.astype(np.float32)
    up = np.nextafter(small, ANY_FINITE, where=small < tolerance, out=small)
    return np.asarray(up)


def check(
    outputs: Sequence[np.ndarray], reference: WorkloadReference, parts: HeldParts = numpy_parts
) -> CheckResult:
    """Hold `outputs` (arrays of the workload's output types) to the reference; `parts` compares
    elements."""
    worst = 0.0
    for position, (array, wanted) in enumerate(zip(outputs, reference.outputs, strict=True)):
        result = _check_output(array, wanted, f"output {position}", parts)
        worst = max(worst, result.max_rel_error)
        if not result.ok:
            return CheckResult(False, worst, result.message)
    return CheckResult(True, worst, blind=reference.blind)


def _nan_share(expected: np.ndarray) -> float:
    if expected.dtype.kind != "f" or not expected.size:
        return 0.0
    found = sum(int(np.count_nonzero(np.isnan(expected[part]))) for part in slices(expected.size))
    return found / expected.size


def _check_output(
    array: np.ndarray, wanted: OutputReference, name: str, parts: HeldParts
) -> CheckResult:
    type_ = wanted.type
    if array.shape != type_.shape or array.dtype != type_.dtype.numpy:
        return CheckResult(False, 0.0, f"{name} is {array.dtype}{list(array.shape)}, not {type_}")
    flat = array.reshape(-1)
    worst = square = 0.0
    beyond, first = 0, -1
    for part in parts(flat, wanted.held):
        if part.broken >= 0:
            where = _told(flat, wanted, part.broken)
            return CheckResult(False, worst, f"{name} has a non-finite element {where}")
        beyond, first = beyond + part.beyond, part.first if first < 0 else first
        worst, square = max(worst, part.worst), square + part.square
    if beyond > wanted.outliers:
        allowed = f" ({wanted.outliers} allowed)" if wanted.outliers else ""
        told = f"{beyond} of {flat.size} elements differ{allowed}"
        return CheckResult(False, worst, f"{name}: {told}, first {_told(flat, wanted, first)}")
    if math.sqrt(square) > wanted.norm_bound and type_.dtype.is_float:
        message = f"{name}: relative error {math.sqrt(square):.3g} is over {wanted.norm_bound:.3g}"
        return CheckResult(False, worst, message)
    return CheckResult(True, worst)


def _told(flat: np.ndarray, wanted: OutputReference, at: int) -> str:
    where = list(map(int, np.unravel_index(at, wanted.type.shape)))
    return f"at {where}: {flat[at]!s} instead of {wanted.expected[at]!s}"
