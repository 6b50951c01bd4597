"""Drawn cases: a small graph over awkward extents, a plan, launches, and a number of threads."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autofuse import Graph, spec, trace, xp
from autofuse.devices import device_named
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Value
from autofuse.ops.spec import Family, OpSpec, Sample, all_specs, infer
from autofuse.ops.types import GraphError, TensorType, make_attrs
from autofuse.plan.fusion.groups import group_of, is_source, ordered_plan
from autofuse.plan.parameters import THREADS
from autofuse.plan.types import Candidate, FusionGroup, LaunchConfig
from autofuse.simplify import normal_form
from search_spaces import FusionSpace, LaunchSpace

# Where blocks, vectors and threads' shares begin, end and have one too many.
EXTENTS = (*range(1, 41), 63, 64, 65, 127, 128, 129, *range(1000, 1041))
THREAD_COUNTS = (1, 2, 3, 8)
# How what an op reads and writes lies in memory.
ACCESSES = ("plain", "turned in", "cut in", "turned out", "cut out", "turned both")
MOST_ELEMENTS = 1 << 18
_PLANS = ("fused", "apart", "some")
# A graph, of what is drawn and how its arrays are to lie.
Drawn = Callable[[random.Random, str], Graph]


@dataclass(frozen=True)
class SweepCase:
    """A plan of a graph, and what names the case: its seed draws it again."""

    seed: int
    name: str
    graph: Graph
    candidate: Candidate
    threads: int


def drawn(seed: int, subject: str | None = None) -> SweepCase | None:
    """The case of a seed, of a `subject` (see `SUBJECTS`) or one in turn; None where the op takes
    no operands of the drawn extents."""
    rng = random.Random(seed)
    names = list(SUBJECTS) if subject is None else [subject]
    name = names[seed % len(names)]
    access, threads = rng.choice(ACCESSES), rng.choice(THREAD_COUNTS)
    try:
        graph = SUBJECTS[name](rng, access)
    except GraphError:
        return None
    if any(not t.size for t in graph.output_types):
        return None
    graph = normal_form(graph)
    if all(is_source(graph, n) for n in range(len(graph.nodes))):
        return None
    how = rng.choice(_PLANS)
    candidate = _candidate(graph, how, threads, rng)
    shapes = ", ".join(map(str, graph.input_types))
    return SweepCase(
        seed, f"{name} {access} {how} [{shapes}] {threads}t", graph, candidate, threads
    )


def _candidate(graph: Graph, how: str, threads: int, rng: random.Random) -> Candidate:
    space = device_named("cpu").space
    if how == "apart":
        nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
        plan = ordered_plan(graph, [group_of(graph, [n]) for n in nodes])
    elif how == "fused":
        plan = FusionSpace(graph).choose(lambda _, options: options[0])
    else:
        plan = FusionSpace(graph).choose(lambda _, options: rng.choice(options))
    return Candidate(plan, tuple(_launch(graph, g, space, threads, rng) for g in plan.groups))


def _launch(
    graph: Graph, group: FusionGroup, space: LaunchSpace, threads: int, rng: random.Random
) -> LaunchConfig:
    """Default settings or drawn ones, on so many threads."""
    if rng.random() < 0.4:
        made = space.default(graph, group)
    else:
        made = space.choose(graph, group, lambda _, options: rng.choice(options), "")
    settings = dict(made.settings)
    if THREADS.name in settings:
        settings[THREADS.name] = threads
    return LaunchConfig.of(**settings)


def _extent(rng: random.Random, most: float) -> int:
    found: int = rng.choice([n for n in EXTENTS if n <= most] or [1])
    return found


def _resized(sample: Sample, rng: random.Random) -> Sample:
    """A sample of an op with other extents, equal ones again equal."""
    shapes = [t.shape for t in sample.ins]
    known = sorted({n for shape in shapes for n in shape if n > 1}, reverse=True)
    room = MOST_ELEMENTS
    others: dict[int, int] = {}
    for n in known:
        uses = max(shape.count(n) for shape in shapes)
        fixed = max(
            math.prod(others.get(m, m) for m in shape if m not in (0, n))
            for shape in shapes
            if n in shape
        )
        others[n] = _extent(rng, (room / fixed) ** (1 / uses)) if rng.random() < 0.8 else n
    ins = tuple(TensorType(tuple(others.get(n, n) for n in t.shape), t.dtype) for t in sample.ins)
    attrs = dict(sample.attrs)
    if isinstance(attrs.get("shape"), tuple | list):
        attrs["shape"] = tuple(others.get(n, n) for n in attrs["shape"])
    return replace(sample, ins=ins, attrs=attrs)


def _of_op(op: OpSpec) -> Drawn:
    """Graphs of an op, by its samples, with moves before or after it."""

    def made(rng: random.Random, access: str) -> Graph:
        sample = _resized(rng.choice(list(op.samples())), rng)
        infer(op.name, sample.ins, make_attrs(sample.attrs))
        b = GraphBuilder()
        bounds = {"low": sample.low, "high": sample.high}
        if _multiplies(op):  # so that a thousand factors stay in range
            bounds = {"low": 0.97, "high": 1.03}
        operands = [
            _given(b, f"x{k}", t, access, bounds if t.dtype.is_float else {})
            for k, t in enumerate(sample.ins)
        ]
        results = b.add_multi(op.name, *operands, **sample.attrs)
        return b.build([_taken(b, value, access) for value in results])

    return made


def _multiplies(op: OpSpec) -> bool:
    """Whether a result of an op is a product of many numbers."""
    return any(word in op.name for word in ("prod", "_mul"))


def _given(
    b: GraphBuilder, name: str, type_: TensorType, access: str, bounds: dict[str, float]
) -> Value:
    shape, rank = type_.shape, type_.rank
    if access in ("turned in", "turned both") and rank > 1:
        x = b.input(name, shape[::-1], type_.dtype, **bounds)  # type: ignore[arg-type]  # bounds
        return b.add("transpose", x, perm=tuple(reversed(range(rank))))
    if access == "cut in" and rank:
        wide = tuple(n + 3 for n in shape)
        x = b.input(name, wide, type_.dtype, **bounds)  # type: ignore[arg-type]  # bounds
        stop = tuple(n + 1 for n in shape)
        return b.add("slice", x, start=(1,) * rank, stop=stop, stride=(1,) * rank)
    return b.input(name, shape, type_.dtype, **bounds)  # type: ignore[arg-type]  # bounds


def _taken(b: GraphBuilder, value: Value, access: str) -> Value:
    shape = b.type_of(value).shape
    rank = len(shape)
    if access in ("turned out", "turned both") and rank > 1:
        return b.add("transpose", value, perm=tuple(reversed(range(rank))))
    if access == "cut out" and rank and min(shape) > 1:
        return b.add("slice", value, start=(1,) * rank, stop=shape, stride=(2,) * rank)
    return value


def _of_program(function: Callable[..., Any], *axes: str, small: str = "") -> Drawn:
    """Graphs of a function of arrays whose axes have names; those of `small` are short."""

    def made(rng: random.Random, access: str) -> Graph:
        most = math.sqrt(MOST_ELEMENTS) * 2
        extents: dict[str, int] = {}
        for name in sorted(set("".join(axes))):
            longest = max(extents.values(), default=1)
            extents[name] = _extent(rng, 12 if name in small else MOST_ELEMENTS / longest)
            extents[name] = min(extents[name], int(most))
        shapes = [tuple(extents[name] for name in names) for names in axes]
        return trace(lambda *arrays: _turned(function(*arrays), access), *map(_spec_of, shapes))

    return made


def _spec_of(shape: Sequence[int]) -> Any:
    return spec(shape)


def _turned(value: Any, access: str) -> Any:
    if access in ("turned out", "turned both") and value.ndim > 1:
        return xp.permute_dims(value, tuple(reversed(range(value.ndim))))
    return value


def _normed(x: Any) -> Any:
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-3)


def _attended(q: Any, k: Any, v: Any) -> Any:
    return xp.matmul(xp.softmax(xp.matmul(q, xp.permute_dims(k, (1, 0))), axis=-1), v)


def _smoothed(x: Any) -> Any:
    return x * 2 + xp.concat([x[1:], x[:1]], axis=0) - xp.concat([x[:, 1:], x[:, :1]], axis=1)


def _in_turn(x: Any) -> Any:
    return xp.permute_dims(xp.maximum(x, 0.0), (2, 0, 1)) + 1.0


# What is swept: ops by their samples, and programs that passes of C kernels look for.
SUBJECTS: dict[str, Drawn] = {
    **{
        f"op {op.name}": _of_op(op)
        for op in all_specs()
        if op.family not in (Family.SOURCE, Family.CONTROL, Family.RANDOM)
    },
    "relu, turned": _of_program(lambda x: xp.maximum(xp.permute_dims(x, (1, 0)), 0.0), "mn"),
    "sum of turned": _of_program(
        lambda x, y, b: xp.permute_dims(x, (1, 0)) * 2.0 + y * b, "mn", "nm", "m"
    ),
    "axes in turn": _of_program(_in_turn, "abn", small="a"),
    "softmax": _of_program(lambda x: xp.softmax(x, axis=-1), "mn"),
    "softmax of columns": _of_program(lambda x: xp.softmax(x, axis=0), "mn"),
    "layer norm": _of_program(lambda x, w: _normed(x) * w, "mn", "n"),
    "sums of columns": _of_program(lambda x: xp.sum(x * x, axis=0) + 1.0, "mn"),
    "sums of turned rows": _of_program(
        lambda x: xp.sum(xp.exp(xp.permute_dims(x, (1, 0))), axis=-1), "mn"
    ),
    "running sums": _of_program(lambda x: xp.cumulative_sum(x, axis=-1) * 2.0, "mn"),
    "product": _of_program(
        lambda x, w, b: xp.maximum(xp.matmul(x, w) + b, 0.0), "mk", "kn", "n", small="k"
    ),
    "product of turned": _of_program(
        lambda x, w: xp.matmul(xp.permute_dims(x, (1, 0)), w) * 0.5, "km", "kn", small="k"
    ),
    "attention": _of_program(_attended, "md", "nd", "nd", small="d"),
    "neighbours": _of_program(_smoothed, "mn"),
    "joined": _of_program(lambda x, y: xp.exp(xp.concat([x, y * 2.0], axis=0)), "mn", "kn"),
    "joined columns": _of_program(lambda x, y: xp.concat([x, y], axis=1) * 2.0, "mn", "mk"),
    "every other": _of_program(
        lambda x: xp.sin(x[::2, 1::3]) if min(x.shape) > 3 else x * 2.0, "mn"
    ),
    "backwards": _of_program(lambda x: xp.flip(x, axis=-1) + x, "mn"),
    "outer": _of_program(lambda x, y: x[:, None] * y[None, :] + 1.0, "m", "n"),
}
