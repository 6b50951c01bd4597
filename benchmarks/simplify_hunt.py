"""A search for numbers that a simplification does not hold for.

Each rule runs alone on its own examples, in all dtypes that these can be written in, and all rules
run on drawn trees of scalar ops. Of 8 bits all pairs of numbers are tried, of 16 bits all numbers,
of others those that identities fail for: zeros of both signs, infinities, NaN, denormals, the ends
of a dtype.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical, text
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph, Node, Value
from autofuse.graph.verify import verify
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family, OpSpec, all_specs
from autofuse.ops.types import (
    Attrs,
    AutofuseError,
    GraphError,
    Literal,
    OpCall,
    TensorType,
    make_attrs,
)
from autofuse.simplify import RULES, simplify
from autofuse.simplify.rules import Simplification
from benchmarks.special_numbers import everything, special

Arrays = tuple[np.ndarray, ...]
# The graph of a program in which the second dtype stands for the first.
Example = Callable[[DType, DType], Graph]
_MOST = 1 << 16
_EXTREMA = ("max", "min", "clamp")
# Their order is not said, nor whether a sum begins at 0.0: the sign of a zero result is open.
_FOLDS = (Family.CONTROL, Family.REDUCTION, Family.SCAN, Family.WINDOW, Family.CONTRACTION,
          Family.SCATTER, Family.SORT)  # fmt: skip
# They leave out a rounding, or round elsewhere, which differs in units of the last place.
ROUNDING = frozenset(
    ("product-without-sum", "known-exponent", "inverse-root", "convolution-channels-last",
     "window-of-all", "reduce-of-broadcast", "reduce-of-move", "root-divided-by", "exp-of-log",
     "product-with-ones", "constant-folding", "cast-of-cast", "bitcast-of-bitcast")
)  # fmt: skip
# What is written loses digits, or overflows where the result does not: only its exact value tells.
_BETTER = frozenset(("exp-of-log",))
# What makes a large difference of one unit in the last place.
_SNAPS = ("floor", "ceil", "round", "sign", "rem", "eq", "ne", "lt", "le", "gt", "ge", "isnan",
          "isfinite", "bitcast", "cast", "sin", "cos", "tan", "sub", "add")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """A graph that computes something else once it is simplified: by which rules, from what."""

    rules: tuple[str, ...]
    what: str
    graph: Graph

    def __str__(self) -> str:
        return f"{', '.join(self.rules)}: {self.what}\n{text(self.graph)}"


# --- numbers --------------------------------------------------------------------------------------


def flat_inputs(types: Sequence[TensorType], seed: int) -> list[np.ndarray]:
    """Arrays of `_MOST` elements: all pairs of numbers for two inputs where there are not too many,
    others drawn."""
    rng = np.random.default_rng(seed)
    pools = [everything(t.dtype) for t in types]
    pairs = len(types) <= 2 and np.prod([p.size for p in pools]) <= _MOST
    if pairs:
        grids = np.meshgrid(*pools, indexing="ij")
        return [np.resize(grid.reshape(-1), _MOST) for grid in grids]
    made = []
    for k, pool in enumerate(pools):
        whole = pool if pool.size >= _MOST else rng.choice(pool, _MOST)
        made.append(whole[:_MOST] if k == 0 else rng.permutation(whole)[:_MOST])
    return made


def drawn_inputs(graph: Graph, seed: int) -> list[np.ndarray]:
    """Special numbers in the shapes of a graph's inputs, now and then mostly ordinary ones."""
    rng, made = np.random.default_rng(seed), []
    for kind in graph.input_types:
        numbers = rng.choice(special(kind.dtype), kind.shape)
        if seed % 3 == 0 and kind.dtype.is_float:
            plain = rng.uniform(-3, 3, kind.shape)
            numbers = np.where(rng.random(kind.shape) < 0.8, plain, numbers)
        made.append(np.asarray(numbers).astype(kind.dtype.numpy))
    return made


# --- what a graph computes ------------------------------------------------------------------------


def computed(graph: Graph, inputs: Sequence[np.ndarray], stored: bool) -> Arrays:
    """Outputs of a graph with floats as float64, or each value `stored` in its dtype, as a kernel
    of its own leaves it. Of two zeros max takes 0.0 and min -0.0, whichever comes first."""
    if any(node.spec.family is Family.CONTROL for node in graph.nodes):
        return evaluate(graph, inputs)
    found: dict[Value, np.ndarray] = {}
    for i, array in zip(graph.inputs, inputs, strict=True):
        found[Value(i)] = array.astype(graph[i].types[0].dtype.reference)
    with np.errstate(all="ignore"):
        for i, node in enumerate(graph.nodes):
            if node.op == "input":
                continue
            operands = tuple(found[v] for v in node.inputs)
            for k, result in enumerate(_applied(node, operands, graph.call(i))):
                kind = node.types[k].dtype
                kept = result.astype(kind.numpy).astype(kind.reference) if stored else result
                found[Value(i, k)] = np.asarray(kept)
    return tuple(found[v] for v in graph.outputs)


def _applied(node: Node, operands: Arrays, call: OpCall) -> Arrays:
    if node.op not in _EXTREMA or not call.out.dtype.is_float:
        return tuple(map(np.asarray, node.spec.reference(operands, call)))
    if node.op == "clamp":
        return (_least(_most(operands[0], operands[1]), operands[2]),)
    return ((_most if node.op == "max" else _least)(*operands),)


def _most(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray(np.where((x == 0) & (y == 0), x + y, np.maximum(x, y)))


def _least(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return -_most(-x, -y)


def differs(wanted: np.ndarray, found: np.ndarray, room: float, zeros: bool) -> np.ndarray:
    """Where two results differ by more than `room` of either, in sign of a zero too if `zeros`."""
    if wanted.dtype.kind != "f":
        return np.asarray(wanted != found)
    with np.errstate(all="ignore"):
        near = np.abs(wanted - found) <= room * np.maximum(np.abs(wanted), np.abs(found))
        same = (wanted == found) | (near & np.isfinite(wanted) & np.isfinite(found))
        if zeros:
            same &= (wanted != 0) | (found != 0) | (np.signbit(wanted) == np.signbit(found))
    return np.asarray(~(same | (np.isnan(wanted) & np.isnan(found))))


def _has_floats(graph: Graph) -> bool:
    return any(t.dtype.is_float for node in graph.nodes for t in node.types)


def difference(
    before: Graph, after: Graph, inputs: Sequence[np.ndarray], rules: Collection[str]
) -> str:
    """What two graphs compute differently once `rules` have made one of the other, or ""."""
    close = not ROUNDING.isdisjoint(rules)
    zeros = not any(node.spec.family in _FOLDS for node in before.nodes)
    snaps = any(node.op in _SNAPS for node in before.nodes)
    if not (close and snaps):
        room = 1e-6 if close else 0.0
        told = _told(before, after, inputs, False, room, zeros)
        if told:
            return told
    # Where values snap, a rounding more or less makes any difference.
    if (snaps and _has_floats(before)) or not _BETTER.isdisjoint(rules):
        return ""
    return _told(before, after, inputs, True, 0.0, zeros)


def _told(
    before: Graph, after: Graph, inputs: Sequence[np.ndarray], stored: bool, room: float,
    zeros: bool,
) -> str:  # fmt: skip
    pairs = zip(computed(before, inputs, stored), computed(after, inputs, stored), strict=True)
    for k, (wanted, found) in enumerate(pairs):
        kind = before.output_types[k].dtype
        width = max((t.dtype.eps for n in before.nodes for t in n.types), default=0.0)
        wrong = differs(wanted, found, max(room, 8 * width if stored else 0.0), zeros)
        if stored and kind.is_float:  # what is denormal has fewer digits
            info = np.finfo(np.float32) if kind is DType.BF16 else np.finfo(kind.numpy)
            wrong &= ~(np.abs(wanted - found) <= 8 * float(info.tiny))
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
            given = [a[at] if a.shape == wrong.shape else "..." for a in inputs]
            how = "stored" if stored else "in f64"
            return (f"output {k}[{at}] is {found[at]}, not {wanted[at]} ({how}; "
                    f"{np.count_nonzero(wrong)} of {wrong.size}), inputs {given}")  # fmt: skip
    return ""


# --- rules by their examples ----------------------------------------------------------------------


def widened(graph: Graph) -> Graph | None:
    """A graph of elementwise ops on one shape, on `_MOST` elements; None for any other."""
    types = {t.shape for i in graph.inputs for t in graph[i].types}
    if len(types) != 1 or len(graph.inputs) > 3:
        return None
    (shape,) = types
    made, builder = dict[Value, Value](), GraphBuilder()
    for i, node in enumerate(graph.nodes):
        repeats = node.op == "broadcast" and not graph.type_of(node.inputs[0]).shape
        if node.op == "input":
            new = builder.input(f"x{i}", (_MOST,), node.types[0].dtype)
        elif node.op == "constant" and node.types[0].size == 1:
            literal = dict(node.attrs)["value"]
            whole = node.types[0].shape == shape
            new = builder.constant(
                literal.array(), node.types[0].dtype, (_MOST,) if whole else None
            )
        elif repeats and node.types[0].shape == shape:
            new = builder.add("broadcast", made[node.inputs[0]], shape=(_MOST,), dims=())
        elif node.spec.family is Family.ELEMENTWISE and node.types[0].shape == shape:
            new = builder.add(node.op, *(made[v] for v in node.inputs), **dict(node.attrs))
        else:
            return None
        made[Value(i)] = new
    return builder.build([made[v] for v in graph.outputs])


def in_dtypes(example: Example, dtypes: Iterable[DType]) -> Iterator[tuple[DType, DType, Graph]]:
    """The graphs of an example in which each of `dtypes` stands for f32, or for i32."""
    seen = set[str]()
    for said, meant in product((DType.F32, DType.I32, DType.I64), dtypes):
        try:
            graph = canonical(verify(example(said, meant)))
        except (AutofuseError, ValueError, OverflowError, TypeError, KeyError):
            continue
        if text(graph) not in seen:
            seen.add(text(graph))
            yield said, meant, graph


def mutants(graph: Graph) -> Iterator[Graph]:
    """A graph with one op in the place of another of its family, or one number of another."""
    for i, node in enumerate(graph.nodes):
        if node.op == "constant" and node.types[0].size == 1:
            kind = node.types[0]
            for number in special(kind.dtype):
                literal = Literal.of(np.full(kind.shape, number), kind.dtype)
                yield from _changed(graph, i, node.op, make_attrs({"value": literal}))
        elif node.spec.family not in (Family.SOURCE, Family.CONTROL):
            for other in all_specs():
                if other.family is node.spec.family and other.name != node.op:
                    yield from _changed(graph, i, other.name, node.attrs)


def _changed(graph: Graph, at: int, op: str, attrs: Attrs) -> Iterator[Graph]:
    """The graph with that op at a node, if that has the same types."""
    nodes = list(graph.nodes)
    nodes[at] = replace(nodes[at], op=op, attrs=attrs)
    try:
        yield canonical(verify(replace(graph, nodes=tuple(nodes))))
    except (AutofuseError, ValueError, KeyError, TypeError, IndexError):
        return


def check_rule(
    name: str, example: Example, dtypes: Iterable[DType] = tuple(DType),
    draws: int = 6, seed: int = 0, mutants_share: float = 0.0,
) -> tuple[int, list[Found]]:  # fmt: skip
    """A rule alone on an example, and on a share of its mutants: the number of graphs that it
    changed, and those that it changed wrongly."""
    rng = np.random.default_rng(seed)
    tried, found, seen = 0, list[Found](), set[str]()
    for _, _, written in in_dtypes(example, dtypes):
        others = mutants(written) if mutants_share else ()
        for graph in (written, *(g for g in others if rng.random() < mutants_share)):
            if text(graph) in seen:
                continue
            seen.add(text(graph))
            what = _checked(name, graph, draws, seed)
            tried += what is not None
            if what:
                found.append(Found((name,), what, graph))
    return tried, found


def _checked(name: str, graph: Graph, draws: int, seed: int) -> str | None:
    """What a rule alone makes wrong of a graph; None where it changes nothing."""
    after = simplify(graph, lambda rule: rule.name == name)
    if not after.steps:
        return None
    wide = widened(graph)
    if wide is not None:
        other = simplify(wide, lambda rule: rule.name == name).graph
        what = difference(wide, other, flat_inputs(wide.input_types, seed), (name,))
        if what:
            return what
    for draw in range(draws):
        what = difference(graph, after.graph, drawn_inputs(graph, seed + draw), (name,))
        if what:
            return what
    return ""


# --- drawn trees ----------------------------------------------------------------------------------


def _is_wanted(op: OpSpec) -> bool:
    return any(rule.wants(op) for rule in RULES.values())


def drawn_tree(seed: int, nodes: int = 9) -> Graph:
    """Elementwise ops on two inputs of one dtype, and what they are cast to, of `_MOST` elements;
    constants are numbers that rules ask for."""
    rng = np.random.default_rng(seed)
    dtypes = list(DType)
    dtype = dtypes[seed % len(dtypes)]
    builder = GraphBuilder()
    values = [builder.input(f"x{k}", (_MOST,), dtype) for k in range(2)]
    ops = [s for s in all_specs() if s.family is Family.ELEMENTWISE]
    asked = list(filter(_is_wanted, ops))
    for _ in range(40 * nodes):
        if len(values) == nodes + 2:
            break
        among = asked if rng.random() < 0.7 else ops
        try:
            op = among[int(rng.integers(len(among)))].name
            values.append(_drawn_call(builder, op, values, rng))
        except (GraphError, ValueError):
            continue
    return canonical(builder.build(values[-2:]))


def _drawn_call(
    builder: GraphBuilder, op: str, values: list[Value], rng: np.random.Generator
) -> Value:
    def pick() -> Value:
        near = values[-4:] if rng.random() < 0.7 else values
        return near[int(rng.integers(len(near)))]

    def picked(tries: int, dtype: DType) -> Value | None:
        found = (pick() for _ in range(tries))
        return next((v for v in found if builder.type_of(v).dtype is dtype), None)

    first = pick()
    kind = builder.type_of(first).dtype
    if op in ("cast", "bitcast"):
        target = list(DType)[int(rng.integers(len(DType)))]
        return builder.add(op, first, dtype=str(target))

    def beside() -> Value:
        if rng.random() < 0.4:
            number = rng.choice(special(kind))
            return builder.constant(np.asarray(number), kind, (_MOST,))
        return picked(6, kind) or first

    if op == "select":
        test = picked(8, DType.BOOL)
        if test is None:
            bits = kind is DType.BOOL
            test = builder.add("not", first) if bits else builder.add("lt", first, beside())
        return builder.add(op, test, first, beside())
    for count in (3,) if op == "clamp" else (1, 2):
        operands = [first, *(beside() for _ in range(count - 1))]
        if rng.random() < 0.3:
            operands.reverse()
        try:
            return builder.add(op, *operands)
        except GraphError:
            continue
    raise GraphError(f"{op} fits nothing here")


def check_tree(seed: int) -> tuple[Counter[str], Found | None]:
    """All rules on one drawn tree: those that applied, and what became wrong."""
    before = drawn_tree(seed)
    after = simplify(before)
    steps = Counter(step.rule for step in after.steps)
    if not steps:
        return steps, None
    what = difference(before, after.graph, flat_inputs(before.input_types, seed), tuple(steps))
    guilty = tuple(steps)
    for name in steps if what and len(steps) > 1 else ():
        alone = simplify(before, partial(_is_named, name)).graph
        if difference(before, alone, flat_inputs(before.input_types, seed), (name,)):
            guilty = (name,)
    return steps, Found(guilty, what, before) if what else None


def _is_named(name: str, rule: Simplification) -> bool:
    return rule.name == name
