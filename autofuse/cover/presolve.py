"""A problem made small: useless pieces dropped, then split into parts that do not interact."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from autofuse.cover.components import components
from autofuse.cover.order import Values, run_order
from autofuse.cover.protocol import CoverProblem
from autofuse.errors import AutofuseError
from autofuse.order import closure


@dataclass(frozen=True, slots=True)
class Part:
    """An independent sub-problem over local piece and value numbers.

    `keys`: a key number per piece. `forced`: per value, whether every plan must write it.
    """

    keys: tuple[int, ...]
    reads: tuple[Values, ...]
    writes: tuple[Values, ...]
    forced: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Presolved:
    """`parts` with, for each, its copies: the problem's piece indices in the part's order.

    `keys`: key texts by key number. `bounds`: microseconds by key number. `reads` and `writes` are
    those of all the problem's pieces, over problem-wide value numbers.
    """

    parts: tuple[Part, ...]
    copies: tuple[tuple[tuple[int, ...], ...], ...]
    keys: tuple[str, ...]
    bounds: NDArray[np.float64]
    samples: tuple[int, ...]
    reads: tuple[Values, ...] = field(repr=False)
    writes: tuple[Values, ...] = field(repr=False)


@lru_cache(maxsize=4)
def presolve(problem: CoverProblem) -> Presolved:
    """Raises AutofuseError where no set of pieces writes every required value."""
    names = sorted({v for p in problem.pieces for v in p.reads | p.writes} | problem.required)
    number = {name: i for i, name in enumerate(names)}
    # A piece that reads a value needs another writer of it, so it is no writer itself.
    reads = [
        tuple(sorted(number[v] for v in p.reads if v not in problem.given)) for p in problem.pieces
    ]
    writes = [
        tuple(sorted(number[v] for v in p.writes if v not in problem.given and v not in p.reads))
        for p in problem.pieces
    ]
    required = sorted(number[v] for v in problem.required if v not in problem.given)
    startable, available = _startable(reads, writes)
    for v in required:
        if v not in available:
            raise AutofuseError(f"no set of candidates writes the required value '{names[v]}'")
    used, needed = _needed(reads, writes, startable, required)
    writes = [tuple(v for v in w if v in needed) for w in writes]
    chosen = set(used)
    forced = _forced(reads, writes, [p for p in startable if p in chosen], required)
    parts, copies = _split(problem, reads, writes, used, forced)
    keys, bounds, samples = _keys(problem)
    return Presolved(
        tuple(parts), tuple(copies), keys, bounds, samples, tuple(reads), tuple(writes)
    )


def _keys(problem: CoverProblem) -> tuple[tuple[str, ...], NDArray[np.float64], tuple[int, ...]]:
    """Key texts, bounds and a piece for each key; of unequal bounds the smallest is safe."""
    bounds: dict[str, float] = {}
    samples: dict[str, int] = {}
    for i, piece in enumerate(problem.pieces):
        bounds[piece.key] = min(bounds.get(piece.key, piece.bound_us), piece.bound_us)
        samples.setdefault(piece.key, i)
    return tuple(bounds), np.array(list(bounds.values()), float), tuple(samples.values())


def _startable(reads: Sequence[Values], writes: Sequence[Values]) -> tuple[list[int], set[int]]:
    """Pieces that run in some order at all, in such an order, and the values they write."""
    run = run_order(reads, writes, range(len(reads)))
    return list(run.order), set(run.available)


def _writers(writes: Sequence[Values], pieces: Iterable[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for p in pieces:
        for v in writes[p]:
            found.setdefault(v, []).append(p)
    return found


def _needed(
    reads: Sequence[Values], writes: Sequence[Values], pieces: list[int], required: list[int]
) -> tuple[list[int], set[int]]:
    """Pieces that some required value can come to depend on, and the values they may be asked for.

    A writer is followed only by the values of its reads, so what nobody reads is no reason to keep
    a piece.
    """
    writers = _writers(writes, pieces)
    needed = closure(required, lambda v: (r for p in writers.get(v, ()) for r in reads[p]))
    return sorted({p for v in needed for p in writers.get(v, ())}), needed


def _forced(
    reads: Sequence[Values], writes: Sequence[Values], pieces: list[int], required: list[int]
) -> set[int]:
    """The values written in every plan.

    Behind a value lie itself and what lies behind it for each of its writers, that is behind any of
    the writer's reads: the largest sets for which that holds, kept as bits of whole numbers.
    """
    writers = _writers(writes, pieces)
    readers: dict[int, list[int]] = {}
    for p in pieces:
        for v in reads[p]:
            readers.setdefault(v, []).append(p)
    everything = -1
    behind = dict.fromkeys(writers, everything)
    rank = _after_what_feeds_them(reads, writes, pieces)
    work = list(enumerate(rank))
    place = {v: i for i, v in work}
    waiting = set(rank)
    while work:
        v = heapq.heappop(work)[1]
        waiting.discard(v)
        common = everything
        for p in writers[v]:
            union = 0
            for r in reads[p]:
                union |= behind[r]
            common &= union
        common |= 1 << v
        if common == behind[v]:
            continue
        behind[v] = common
        after = dict.fromkeys(w for p in readers.get(v, ()) for w in writes[p])
        fresh = [w for w in after if w not in waiting]
        for w in fresh:
            heapq.heappush(work, (place[w], w))
        waiting.update(fresh)
    forced = 0
    for v in required:
        forced |= behind[v]
    return {v for v in writers if forced >> v & 1}


def _after_what_feeds_them(
    reads: Sequence[Values], writes: Sequence[Values], pieces: list[int]
) -> list[int]:
    """Values, each after all it can come from as far as there is no circle."""
    counts: dict[int, int] = {}
    for p in pieces:
        for v in writes[p]:
            counts[v] = counts.get(v, 0) + len(reads[p])
    readers: dict[int, list[int]] = {}
    for p in pieces:
        for v in reads[p]:
            readers.setdefault(v, []).append(p)
    order: dict[int, None] = {}
    ready = deque(v for v, count in counts.items() if count == 0)
    for spare in list(counts):
        # In a circle the value that can be written first goes first.
        ready.append(spare)
        while ready:
            v = ready.popleft()
            if v in order:
                continue
            order[v] = None
            for p in readers.get(v, ()):
                for w in writes[p]:
                    counts[w] -= 1
                    if counts[w] == 0:
                        ready.append(w)
    return list(order)


def _split(
    problem: CoverProblem,
    reads: Sequence[Values],
    writes: Sequence[Values],
    used: list[int],
    forced: set[int],
) -> tuple[list[Part], list[tuple[tuple[int, ...], ...]]]:
    """Parts with equal structure and keys become one part with several copies."""
    key_number: dict[str, int] = {}
    for piece in problem.pieces:
        key_number.setdefault(piece.key, len(key_number))
    labels = _labels(reads, writes, used, forced)
    members: dict[int, list[int]] = {}
    for p, label in zip(used, labels, strict=True):
        members.setdefault(label, []).append(p)
    found: dict[Part, list[tuple[int, ...]]] = {}
    for pieces in members.values():
        keys = tuple(key_number[problem.pieces[p].key] for p in pieces)
        found.setdefault(_part(pieces, keys, reads, writes, forced), []).append(tuple(pieces))
    return list(found), [tuple(copies) for copies in found.values()]


def _part(
    pieces: list[int],
    keys: tuple[int, ...],
    reads: Sequence[Values],
    writes: Sequence[Values],
    forced: set[int],
) -> Part:
    local: dict[int, int] = {}
    for p in pieces:
        for v in writes[p]:
            local.setdefault(v, len(local))
    # A value read and not written here is forced, and written by a part that comes before.
    return Part(
        keys,
        tuple(tuple(sorted(local[v] for v in reads[p] if v in local)) for p in pieces),
        tuple(tuple(sorted(local[v] for v in writes[p])) for p in pieces),
        tuple(v in forced for v in local),
    )


def _labels(
    reads: Sequence[Values], writes: Sequence[Values], used: list[int], forced: set[int]
) -> list[int]:
    """A part number for each used piece.

    Pieces that write a common value belong together, and so do a reader and the writers of a value
    that may or may not be written. A forced value is there in any case, so it binds its reader to
    nothing but an order; where that order runs in a circle between parts, they are joined.
    """
    n = len(used)
    shift = n
    owner: dict[int, int] = {}
    links: list[tuple[int, int]] = []
    for i, p in enumerate(used):
        for v in writes[p]:
            links.append((i, shift + owner.setdefault(v, len(owner))))
    after: list[tuple[int, int]] = []
    for i, p in enumerate(used):
        for v in reads[p]:
            (after if v in forced else links).append((i, shift + owner[v]))
    size = n + len(owner)
    loose = components(size, links, "weak")
    ends = [(int(loose[a]), int(loose[b])) for a, b in after]
    joined = components(int(loose.max(initial=-1)) + 1, ends, "strong")
    return [int(joined[loose[i]]) for i in range(n)]
