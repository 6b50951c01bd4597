"""Simulations, solvers and choices of the zoo as a PyTorch user writes them. Importing this imports
torch.

Loops are Python loops around a compiled step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from autofuse.peers.fields import collide, flow, lives_on, react, relaxed
from autofuse.peers.types import PeerProgram
from autofuse.zoo.choices import CHOSEN
from autofuse.zoo.grids import EAST, NORTH, WEIGHTS
from autofuse.zoo.particles import DT, SOFTENING
from autofuse.zoo.solvers import CONVERGED

Array = Any
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def jacobi(steps: int, compiled: Compile) -> PeerProgram:
    step = compiled(lambda u, f: F.pad(relaxed(u, f), (1, 1, 1, 1)))

    def solve(u: Array, f: Array) -> Sequence[Array]:
        for _ in range(steps):
            u = step(u, f)
        return (u,)

    return solve


def _stepped(steps: int, step: Callable[..., Any]) -> PeerProgram:
    """`steps` times the step of all fields."""

    def run(*fields: Array) -> Sequence[Array]:
        now: Sequence[Array] = fields
        for _ in range(steps):
            now = step(*now)
        return now

    return run


def gray_scott(steps: int, compiled: Compile) -> PeerProgram:
    return _stepped(steps, compiled(lambda u, v: react(torch, u, v)))


def shallow_water(steps: int, compiled: Compile) -> PeerProgram:
    return _stepped(steps, compiled(lambda h, u, v: flow(torch, h, u, v)))


def lattice_boltzmann(steps: int, compiled: Compile) -> PeerProgram:
    def step(f: Array) -> Sequence[Array]:
        numbers = (torch.tensor(n, device=f.device) for n in (EAST, NORTH, WEIGHTS))
        lattice = [n.to(f.dtype)[:, None, None] for n in numbers]
        return (collide(torch, f, *lattice),)

    return _stepped(steps, compiled(step))


def life(compiled: Compile) -> PeerProgram:
    def generation(cells: Array, born: Array) -> Array:
        alive = lives_on(torch, cells).to(torch.uint8)
        alive[born[:, 0], born[:, 1]] = 1
        return alive

    step = compiled(generation)

    def run(cells: Array, places: Array) -> Sequence[Array]:
        for born in places.unbind(0):
            cells = step(cells, born)
        return (cells,)

    return run


def gravity(position: Array, velocity: Array, mass: Array) -> Sequence[Array]:
    apart = position[None] - position[:, None]
    square = (apart * apart).sum(-1) + SOFTENING
    pull = mass / (square * torch.sqrt(square))
    velocity = velocity + DT * (apart * pull[:, :, None]).sum(1)
    return position + DT * velocity, velocity


def deposit(cells: int, compiled: Compile) -> PeerProgram:
    def shared(x: Array, y: Array, charge: Array) -> Sequence[Array]:
        left, low = torch.floor(x), torch.floor(y)
        fx, fy = x - left, y - low
        i, j = left.long(), low.long()
        total = torch.zeros(cells * cells, device=x.device)
        for row, of_row in ((j, 1 - fy), ((j + 1) % cells, fy)):
            for column, of_column in ((i, 1 - fx), ((i + 1) % cells, fx)):
                total.index_add_(0, row * cells + column, charge * of_row * of_column)
        return (total.reshape(cells, cells),)

    return compiled(shared)


def thomas(compiled: Compile) -> PeerProgram:
    def eliminate(
        low: Array, middle: Array, high: Array, side: Array, factor: Array, value: Array
    ) -> tuple[Array, Array]:
        pivot = 1 / (middle - low * factor)
        return high * pivot, (side - low * value) * pivot

    down = compiled(eliminate)
    up = compiled(lambda value, factor, below: value - factor * below)

    def solve(lower: Array, diagonal: Array, upper: Array, right: Array) -> Sequence[Array]:
        rows = [(upper[0] / diagonal[0], right[0] / diagonal[0])]
        for t in range(1, len(right)):
            rows.append(down(lower[t], diagonal[t], upper[t], right[t], *rows[-1]))
        found = [rows[-1][1]]
        for factor, value in rows[-2::-1]:
            found.append(up(value, factor, found[-1]))
        return (torch.stack(found[::-1]),)

    return solve


def sparse_product(rows: int, compiled: Compile) -> PeerProgram:
    def product(values: Array, columns_of: Array, ends: Array, x: Array) -> Sequence[Array]:
        ended = torch.zeros(len(values), dtype=torch.int64, device=x.device)
        ended.index_add_(0, ends, torch.ones_like(ends, dtype=torch.int64))
        y = torch.zeros(rows, device=x.device)
        return (y.index_add_(0, ended.cumsum(0), values * x[columns_of]),)

    return compiled(product)


def kepler(bound: int, compiled: Compile) -> PeerProgram:
    def iterate(found: Array, mean: Array, eccentricity: Array) -> tuple[Array, Array]:
        error = found - eccentricity * torch.sin(found) - mean
        far = error.abs() > CONVERGED
        better = found - error / (1 - eccentricity * torch.cos(found))
        return torch.where(far, better, found), far.any()

    step = compiled(iterate)

    def solve(mean: Array, eccentricity: Array) -> Sequence[Array]:
        found = mean + eccentricity * torch.sin(mean)
        for _ in range(bound):
            found, more = step(found, mean, eccentricity)
            if not more:
                break
        return (found,)

    return solve


def batched_sort(keys: Array, values: Array) -> Sequence[Array]:
    ordered, order = torch.sort(keys, stable=True)
    return ordered, values.gather(-1, order)


def expert_routing(capacity: int, compiled: Compile) -> PeerProgram:
    def route(x: Array, w_gate: Array, w: Array) -> Sequence[Array]:
        (tokens, width), experts = x.shape, len(w)
        scores, chosen = torch.topk(x @ w_gate, CHOSEN)
        expert = chosen.reshape(-1)
        mine = F.one_hot(expert, experts)
        place = ((mine.cumsum(0) - 1) * mine).sum(1)
        kept = place < capacity
        slot = torch.where(kept, expert * capacity + place, experts * capacity)
        full = torch.zeros(experts * capacity + 1, width, device=x.device)
        full = full.index_copy(0, slot, x.repeat_interleave(CHOSEN, 0))[:-1]
        made = (full.reshape(experts, capacity, width) @ w).reshape(-1, width)
        weight = torch.where(kept, F.softmax(scores, -1).reshape(-1), 0.0)
        back = made[slot.clamp(max=len(made) - 1)] * weight[:, None]
        return (back.reshape(tokens, CHOSEN, width).sum(1),)

    return compiled(route)


def beam_step(logits: Array, scores: Array, sequences: Array, position: Array) -> Sequence[Array]:
    batch, beams, vocabulary = logits.shape
    length = sequences.shape[-1]
    total = (scores[:, :, None] + F.log_softmax(logits, -1)).reshape(batch, -1)
    best, where = torch.topk(total, beams)
    parents = (where // vocabulary)[:, :, None].expand(batch, beams, length)
    here = torch.arange(length, device=logits.device) == position
    token = (where % vocabulary).to(sequences.dtype)[:, :, None]
    return best, torch.where(here, token, sequences.gather(1, parents))


_PROGRAMS: dict[str, PeerProgram] = {
    "gravity": gravity,
    "batched_sort": batched_sort,
    "beam_step": beam_step,
}
# What is made for one of the sizes, and which.
_SIZED: dict[str, tuple[Callable[[int, Compile], PeerProgram], int]] = {
    "jacobi": (jacobi, 1),
    "gray_scott": (gray_scott, 1),
    "shallow_water": (shallow_water, 1),
    "lattice_boltzmann": (lattice_boltzmann, 1),
    "deposit": (deposit, 1),
    "sparse_product": (sparse_product, 0),
    "kepler": (kepler, 1),
    "expert_routing": (expert_routing, 3),
}

# What compiles a step of its own.
_LOOPS: dict[str, Callable[[Compile], PeerProgram]] = {"life": life, "thomas": thomas}


def program(name: str, sizes: tuple[Any, ...], compiled: Compile) -> PeerProgram | None:
    """The workload `name` of these sizes, compiled by `compiled`; None if it is none of these."""
    if name in _SIZED:
        made, at = _SIZED[name]
        return made(sizes[at], compiled)
    if name in _LOOPS:
        return _LOOPS[name](compiled)
    return compiled(_PROGRAMS[name]) if name in _PROGRAMS else None
