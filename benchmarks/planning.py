"""How planning grows with the graph: enumerate, bound and solve, nothing measured."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from autofuse.cover import CoverProblem, Measured, Options
from autofuse.cover import plan as plan_exactly
from autofuse.enumerate.enumeration import Enumeration, enumerate_groups
from autofuse.enumerate.windows import windows
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.peers.types import BenchError
from autofuse.plan.fusion.groups import is_source
from autofuse.tuning.search.cover import cover_problem
from autofuse.zoo.networks import transformer

NODES = (100, 300, 1000, 3000, 5000)
KINDS = ("transformer", "mixed")
# Shape of the transformer blocks and of the arrays of mixed graphs.
_BLOCK = (128, 64, 4)
_ROWS, _COLUMNS = 256, 512
# Measurements between two solves: a bound costs nothing to take for a measurement.
_BATCH = 1 << 20
Solve = Callable[[CoverProblem], tuple[float, float]]
"""A least plan's cost and a bound on every plan's, microseconds."""


def solve_by_bounds(problem: CoverProblem, gap: float = 0.01) -> tuple[float, float]:
    """The least plan, to within `gap`, when every kernel costs its bound."""
    found = plan_exactly(
        problem, lambda piece: Measured(piece.bound_us), options=Options(gap=gap, batch=_BATCH)
    )
    if found.incumbent_us is None:
        raise BenchError("the candidates make no plan")
    return found.incumbent_us, found.bound_us


@dataclass(frozen=True, slots=True)
class Row:
    """One graph planned. `nodes` counts what kernels compute, `cost_us` and `bound_us` are sums
    over the windows, by lower bounds."""

    kind: str
    nodes: int
    atoms: int
    candidates: int
    classes: int
    windows: int
    enumerate_s: float
    solve_s: float
    seconds: float
    cost_us: float
    bound_us: float


def bench_planning(
    nodes: Iterable[int], kinds: Iterable[str], solve: Solve = solve_by_bounds, limit: int = 600,
    say: Callable[[str], None] = lambda text: None,
) -> list[Row]:  # fmt: skip
    """Plan one graph of each kind and size. Raises BenchError for an unknown kind."""
    rows: list[Row] = []
    for kind in kinds:
        for count in nodes:
            rows.append(plan_once(kind, graph_of(kind, count), solve, limit))
            row = rows[-1]
            say(f"{kind} {row.nodes} nodes: {row.candidates} candidates in {row.seconds:.2f} s")
    return rows


def plan_once(kind: str, graph: Graph, solve: Solve, limit: int) -> Row:
    """Enumerate, cut into windows where the graph exceeds `limit` nodes, and solve each tile."""
    start = time.perf_counter()
    found: Enumeration = enumerate_groups(graph)
    enumerated = time.perf_counter()
    tiles = [w for w in windows(graph, limit, 0, found.supernodes) if w.kind == "tile"]
    cost = bound = 0.0
    for window in tiles:
        whole = len(tiles) == 1
        answer = solve(cover_problem(found, None if whole else window).problem)
        cost, bound = cost + answer[0], bound + answer[1]
    end = time.perf_counter()
    return Row(
        kind,
        sum(not is_source(graph, n) for n in range(len(graph.nodes))),
        len(found.supernodes.items),
        len(found.groups),
        found.counts["classes"],
        len(tiles),
        round(enumerated - start, 3),
        round(end - enumerated, 3),
        round(end - start, 3),
        round(cost, 3),
        round(bound, 3),
    )


def graph_of(kind: str, nodes: int) -> Graph:
    """A canonical graph of about this many nodes. Raises BenchError for an unknown kind."""
    if kind == "transformer":
        one, two = (len(canonical(transformer(k, *_BLOCK)).nodes) for k in (1, 2))
        layers = 1 + max(0, round((nodes - one) / (two - one)))
        return canonical(transformer(layers, *_BLOCK))
    if kind == "mixed":
        return canonical(mixed(nodes))
    raise BenchError(f"unknown kind of graph '{kind}' (known: {', '.join(KINDS)})")


def mixed(nodes: int) -> Graph:
    """Elementwise chains, row statistics and joins over f32 arrays of one shape: no two
    neighbourhoods alike, so that nothing is shared."""
    builder = GraphBuilder()
    shape = (_ROWS, _COLUMNS)
    live: list[Value] = [builder.input(f"x{k}", shape, DType.F32) for k in range(4)]
    unread: dict[Value, None] = {}
    state, made = 12345, 0
    unary = ("tanh", "exp", "neg", "abs", "sin", "logistic")
    binary = ("add", "mul", "sub", "max", "min")
    while made < nodes:
        # Park and Miller's generator: the graph must not depend on a library's.
        state = state * 48271 % 2147483647
        at = live[-1 - state // 7 % 4]
        choice = state % 10
        if choice < 4:
            value, count = builder.add(unary[state // 11 % 6], at), 1
        elif choice < 8:
            other = live[-1 - state // 13 % min(8, len(live))]
            unread.pop(other, None)
            value, count = builder.add(binary[state // 11 % 5], at, other), 1
        else:
            total = builder.add("reduce_max", at, axes=(1,))
            spread = builder.add("broadcast", total, shape=shape, dims=(0,))
            value, count = builder.add("sub", at, spread), 3
        unread.pop(at, None)
        unread[value] = None
        live.append(value)
        made += count
    return builder.build(list(unread))


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """The rows as one JSON object {"rows": [...]}."""
    text = json.dumps({"rows": [asdict(row) for row in rows]}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
