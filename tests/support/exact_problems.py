"""Random planning problems, and the exact answers by plain enumeration, to check the planner by."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autofuse.cover import CoverProblem, Measured, Piece


@dataclass(frozen=True)
class Sample:
    """A problem with the true cost of each key; None for a key that cannot be used."""

    problem: CoverProblem
    costs: Mapping[str, float | None]

    def measure(self, piece: Piece) -> Measured:
        return Measured(self.costs[piece.key], 0.5)


def runnable(problem: CoverProblem, plan: Iterable[int]) -> bool:
    """Whether the pieces can run in this very order and write what is required."""
    have = set(problem.given)
    for p in plan:
        if not problem.pieces[p].reads <= have:
            return False
        have |= problem.pieces[p].writes
    return problem.required <= have


def least_cost(problem: CoverProblem, costs: Mapping[str, float | None]) -> float | None:
    """The least total cost: shortest path over the sets of values written so far."""
    names = {v: i for i, v in enumerate(sorted({v for p in problem.pieces for v in p.writes}))}

    def bits(values: Iterable[str]) -> int:
        return sum(1 << names[v] for v in set(values) if v in names and v not in problem.given)

    moves = []
    for piece in problem.pieces:
        cost = costs[piece.key]
        if cost is not None and piece.reads <= problem.given | names.keys():
            moves.append((bits(piece.reads), bits(piece.writes), cost))
    if not problem.required <= problem.given | names.keys():
        return None
    goal = bits(problem.required)
    best = {0: 0.0}
    heap = [(0.0, 0)]
    while heap:
        cost, state = heapq.heappop(heap)
        if state & goal == goal:
            return cost
        if cost > best[state]:
            continue
        for reads, writes, step in moves:
            after = state | writes
            if reads & ~state == 0 and after != state and cost + step < best.get(after, 1e300):
                best[after] = cost + step
                heapq.heappush(heap, (cost + step, after))
    return None


def all_plans(
    problem: CoverProblem, costs: Mapping[str, float | None]
) -> list[tuple[float, frozenset[int]]]:
    """Every set of pieces that is a plan and holds no smaller plan, by cost; for <= 16 pieces."""
    usable = [i for i, p in enumerate(problem.pieces) if costs[p.key] is not None]
    plans: list[frozenset[int]] = []
    for size in range(len(usable) + 1):
        for chosen in itertools.combinations(usable, size):
            if any(plan <= set(chosen) for plan in plans) or not _can_run(problem, chosen):
                continue
            plans.append(frozenset(chosen))
    cost = {plan: sum(costs[problem.pieces[p].key] or 0.0 for p in plan) for plan in plans}
    return sorted(((cost[plan], plan) for plan in plans), key=lambda pair: pair[0])


def _can_run(problem: CoverProblem, chosen: Sequence[int]) -> bool:
    have, left = set(problem.given), list(chosen)
    while ready := [p for p in left if problem.pieces[p].reads <= have]:
        for p in ready:
            have |= problem.pieces[p].writes
            left.remove(p)
    return problem.required <= have


@dataclass(frozen=True)
class Dag:
    """Operations in topological order; `inputs[i]` are the operations that i reads."""

    inputs: tuple[tuple[int, ...], ...]
    bytes: tuple[int, ...]
    required: frozenset[int]

    def users(self, i: int) -> list[int]:
        return [j for j, ins in enumerate(self.inputs) if i in ins]


def random_dag(rng: random.Random, nodes: int) -> Dag:
    inputs: list[tuple[int, ...]] = [()]
    for i in range(1, nodes):
        count = rng.choice((0, 1, 1, 1, 2, 2)) if i > 1 else 1
        near = {rng.choice(range(max(0, i - 4), i)) for _ in range(count)}
        inputs.append(tuple(sorted(near)))
    sizes = tuple(rng.choice((1, 8, 8, 8, 64)) for _ in range(nodes))
    used = {j for ins in inputs for j in ins}
    outputs = {i for i in range(nodes) if i not in used or rng.random() < 0.1}
    return Dag(tuple(inputs), sizes, frozenset(outputs))


def legal_sets(dag: Dag, largest: int) -> list[frozenset[int]]:
    """Connected sets of at most `largest` operations that no path leaves and enters again."""
    nodes = range(len(dag.inputs))
    around = {i: set(dag.inputs[i]) | set(dag.users(i)) for i in nodes}
    level = {frozenset([i]) for i in nodes}
    found = set(level)
    for _ in range(largest - 1):
        level = {s | {j} for s in level for i in s for j in around[i] if j not in s} - found
        found |= level
    return sorted((s for s in found if _is_convex(dag, s)), key=sorted)


def _is_convex(dag: Dag, inside: frozenset[int]) -> bool:
    after: set[int] = set()
    for i, ins in enumerate(dag.inputs):
        if i in inside:
            if after.intersection(ins):
                return False
        elif any(j in inside or j in after for j in ins):
            after.add(i)
    return True


def random_sample(
    seed: int, nodes: int | None = None, candidates: int = 60, failures: float = 0.03
) -> Sample:
    """A problem of up to 12 operations: single ones, fused sets with all live values or only the
    last one written (the rest is recomputed elsewhere), and pairs of unrelated ones."""
    rng = random.Random(seed)
    dag = random_dag(rng, nodes or rng.randint(2, 12))
    shapes: dict[tuple[frozenset[str], frozenset[str]], frozenset[int]] = {}

    def add(inside: frozenset[int], written: Iterable[int]) -> None:
        reads = {f"v{j}" for i in inside for j in dag.inputs[i] if j not in inside}
        reads |= {f"in{i}" for i in inside if len(dag.inputs[i]) < 2}
        shapes.setdefault((frozenset(reads), frozenset(f"v{i}" for i in written)), inside)

    for i in range(len(dag.inputs)):
        add(frozenset([i]), [i])
    sets = [s for s in legal_sets(dag, 5) if len(s) > 1]
    rng.shuffle(sets)
    for inside in sets[: candidates // 2]:
        live = [i for i in inside if i in dag.required or set(dag.users(i)) - inside]
        add(inside, live)
        last = [i for i in inside if not inside.intersection(dag.users(i))]
        if len(last) == 1:
            add(inside, last)
    for _ in range(len(dag.inputs) // 2):
        pair = frozenset(rng.sample(range(len(dag.inputs)), 2))
        if _is_convex(dag, pair) and not any(pair & set(dag.inputs[i]) for i in pair):
            add(pair, pair)
    return _priced(rng, dag, shapes, failures)


def _priced(
    rng: random.Random,
    dag: Dag,
    shapes: Mapping[tuple[frozenset[str], frozenset[str]], frozenset[int]],
    failures: float,
) -> Sample:
    """Launch plus traffic plus a little for each operation; bounds are a share of the truth."""
    pieces: list[Piece] = []
    costs: dict[str, float | None] = {}
    for i, ((reads, writes), inside) in enumerate(shapes.items()):
        moved = sum(dag.bytes[int(v[1:])] for v in writes | reads if v[0] == "v")
        moved += 8 * sum(v[0] == "i" for v in reads)
        bound = 3.0 + 0.25 * moved + 0.05 * len(inside)
        key = f"k{i}"
        pieces.append(Piece(key, reads, writes, bound))
        fails = len(inside) > 1 and rng.random() < failures
        costs[key] = None if fails else bound * (1.0 + abs(rng.gauss(0.0, 0.15)))
    given = frozenset(v for p in pieces for v in p.reads if v[0] == "i")
    required = frozenset(f"v{i}" for i in dag.required)
    return Sample(CoverProblem(tuple(pieces), required, given), costs)
