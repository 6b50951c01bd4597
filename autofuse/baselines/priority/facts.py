"""Our ops as XLA:GPU of 2026 sees them: what changed since 2022, cycles, and shares read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autofuse.baselines.xla.shapes import WARP, Fact, fact_of, slides
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family
from autofuse.ops.types import TensorType

DEFAULT_CYCLES = 3
CONCAT_CYCLES, UNALIGNED_CONCAT_CYCLES = 6, 400
ARG_REDUCE_OPS = 5  # two compares, two selects and an or for each element
MIN_TILED = 16  # extent from which a transposition goes through shared memory

# Clock cycles per element that XLA's profiler measured on an H100; everything else counts 3.
CYCLES: dict[DType, dict[str, int]] = {
    DType.F32: {
        "add": 7, "sub": 7, "mul": 3, "div": 19, "exp": 79, "expm1": 190, "log": 166, "log1p": 229,
        "sqrt": 75, "rsqrt": 75, "sin": 958, "cos": 978, "tanh": 467, "atan2": 431, "pow": 510,
    },
    DType.F16: {
        "add": 7, "sub": 7, "mul": 7, "div": 43, "exp": 102, "expm1": 217, "log": 182,
        "log1p": 245, "sqrt": 95, "rsqrt": 95, "sin": 993, "cos": 997, "tanh": 502, "atan2": 451,
        "pow": 526,
    },
    DType.F64: {
        "add": 15, "sub": 15, "mul": 15, "div": 526, "exp": 376, "expm1": 712, "log": 815,
        "log1p": 1259, "sqrt": 332, "rsqrt": 277, "sin": 554, "cos": 558, "tanh": 431,
        "atan2": 930, "pow": 2205,
    },
    DType.I64: {"mul": 11, "div": 685, "pow": 253},
    DType.I32: {"mul": 3, "div": 297, "pow": 71},
    DType.U32: {"mul": 3, "div": 122, "pow": 71},
    DType.I8: {"mul": 7, "div": 356, "pow": 122},
    DType.U8: {"mul": 7, "div": 300, "pow": 122},
}  # fmt: skip
# Ops that XLA expands, as the ops it expands them to.
EXPANDED: dict[str, tuple[str, ...]] = {
    "reciprocal": ("div",),
    "logistic": ("neg", "exp", "add", "div"),
    "sinh": ("exp", "exp", "sub", "mul"),
    "cosh": ("exp", "exp", "add", "mul"),
    "asin": ("mul", "sub", "sqrt", "atan2"),
    "acos": ("mul", "sub", "sqrt", "atan2"),
    "atan": ("atan2",),
}
COMBINERS = {
    **dict.fromkeys(("reduce_sum", "cumsum", "reduce_window_sum"), "add"),
    **dict.fromkeys(("reduce_prod", "cumprod", "reduce_window_prod"), "mul"),
}


def cycles(op: str, dtype: DType) -> int:
    """Cycles of one elementwise op on one element of `dtype`."""
    table = CYCLES.get(dtype, {})
    return sum(table.get(part, DEFAULT_CYCLES) for part in EXPANDED.get(op, (op,)))


def fact_2026(graph: Graph, node: int, inlined: Sequence[bool]) -> Fact:
    """As `fact_of`, with the ops that were library calls in 2022 as what they are expanded to, and
    scalar constants as operands (they are fused after everything else)."""
    fact = fact_of(graph, node, inlined)
    family = graph[node].spec.family
    if family is Family.RANDOM or fact.op == "threefry2x32":
        elementwise = fact.op == "threefry2x32"
        fact = replace(fact, library=False, elementwise=elementwise, loop_fusible=True)
    if fact.op == "bitcast":
        fact = replace(fact, bitcast=True)
    if fact.fast == "column":
        fact = replace(fact, shared_bytes=32 * 129 * graph.call(node).ins[0].dtype.itemsize)
    if is_tiled_transpose(graph, node):
        fact = replace(fact, shared_bytes=32 * 33 * fact.dtype.itemsize)
    return fact


def moves_minor(graph: Graph, node: int) -> bool:
    """Whether a transposition changes which axis is innermost (axes of one element aside)."""
    if graph[node].op != "transpose":
        return False
    call = graph.call(node)
    moved = [a for a in call["perm"] if call.ins[0].shape[a] != 1]
    return bool(moved) and bool(moved[-1] != max(moved))


def is_tiled_transpose(graph: Graph, node: int) -> bool:
    """A transposition that has an emitter of its own: the innermost axis moves and neither the
    old nor the new one is short."""
    if not moves_minor(graph, node):
        return False
    call = graph.call(node)
    moved = [a for a in call["perm"] if call.ins[0].shape[a] != 1]
    inner: int = min(call.ins[0].shape[moved[-1]], call.ins[0].shape[max(moved)])
    return inner >= MIN_TILED


def flops(graph: Graph, fact: Fact) -> float:
    """Cycles one call of the op takes in total."""
    call = graph.call(fact.node)
    if fact.op == "concat":
        return float(fact.size * _concat_cycles(call.ins, call["axis"]))
    if fact.op == "random_bits":  # four words are made for each that is kept
        words = 4 * graph[fact.node].spec.flops(call)
        return words * DEFAULT_CYCLES + fact.size * CONCAT_CYCLES
    if fact.op == "threefry2x32":
        return graph[fact.node].spec.flops(call) * DEFAULT_CYCLES
    if fact.op in ("argmax", "argmin"):
        return (call.ins[0].size - fact.size) * ARG_REDUCE_OPS * DEFAULT_CYCLES
    combine = cycles(COMBINERS.get(fact.op, fact.op), fact.dtype)
    spec = graph[fact.node].spec
    if slides(spec.family, spec.name):
        return float(fact.size * spec.terms(call) * combine)
    if spec.family is Family.REDUCTION:
        return (call.ins[0].size - fact.size) * combine
    return fact.size * combine if fact.elementwise and fact.op != "bitcast" else 0.0


def _concat_cycles(ins: Sequence[TensorType], axis: int) -> int:
    aligned = axis == 0 or all(t.shape[axis] % WARP == 0 for t in ins)
    return CONCAT_CYCLES if aligned else UNALIGNED_CONCAT_CYCLES


def shares(graph: Graph, fact: Fact) -> list[float]:
    """For each operand of an op that is not elementwise, the part of its elements that is read;
    above 1 where elements are read repeatedly."""
    call = graph.call(fact.node)
    found = [1.0] * len(call.ins)
    if fact.op in ("slice", "broadcast", "gather") and call.ins[0].size:
        found[0] = fact.size / call.ins[0].size
    elif fact.op == "concat" and call["axis"]:
        sizes = [t.shape[call["axis"]] for t in call.ins]
        found = [-(-n // WARP) * WARP / n if n else 1.0 for n in sizes]
    elif slides(graph[fact.node].spec.family, fact.op) and call.ins[0].size:
        found = [fact.size * graph[fact.node].spec.terms(call) / call.ins[0].size]
    return found
