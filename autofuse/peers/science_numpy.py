"""Simulations, solvers and choices of the zoo as a NumPy user writes them. CuPy has the same
functions, so `xp` is either."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from autofuse.peers.fields import collide, flow, lives_on, react, relaxed
from autofuse.peers.types import PeerProgram
from autofuse.zoo.choices import CHOSEN
from autofuse.zoo.grids import EAST, NORTH, WEIGHTS
from autofuse.zoo.particles import DT, SOFTENING
from autofuse.zoo.solvers import CONVERGED

Array = Any


def jacobi(steps: int, xp: Any, u: Array, f: Array) -> Sequence[Array]:
    for _ in range(steps):
        fresh = xp.zeros_like(u)
        fresh[1:-1, 1:-1] = relaxed(u, f)
        u = fresh
    return (u,)


def gray_scott(steps: int, xp: Any, u: Array, v: Array) -> Sequence[Array]:
    for _ in range(steps):
        u, v = react(xp, u, v)
    return u, v


def shallow_water(steps: int, xp: Any, h: Array, u: Array, v: Array) -> Sequence[Array]:
    for _ in range(steps):
        h, u, v = flow(xp, h, u, v)
    return h, u, v


def lattice_boltzmann(steps: int, xp: Any, f: Array) -> Sequence[Array]:
    lattice = [xp.asarray(n, np.float32)[:, None, None] for n in (EAST, NORTH, WEIGHTS)]
    for _ in range(steps):
        f = collide(xp, f, *lattice)
    return (f,)


def life(xp: Any, cells: Array, places: Array) -> Sequence[Array]:
    for born in places:
        cells = lives_on(xp, cells).astype(np.uint8)
        cells[born[:, 0], born[:, 1]] = 1
    return (cells,)


def gravity(xp: Any, position: Array, velocity: Array, mass: Array) -> Sequence[Array]:
    apart = position[None] - position[:, None]
    square = (apart * apart).sum(-1) + np.float32(SOFTENING)
    pull = mass / (square * xp.sqrt(square))
    velocity = velocity + DT * (apart * pull[:, :, None]).sum(1)
    return position + DT * velocity, velocity


def deposit(cells: int, xp: Any, x: Array, y: Array, charge: Array) -> Sequence[Array]:
    left, low = xp.floor(x), xp.floor(y)
    fx, fy = x - left, y - low
    i, j = left.astype(np.int32), low.astype(np.int32)
    total = xp.zeros(cells * cells)
    for row, of_row in ((j, 1 - fy), ((j + 1) % cells, fy)):
        for column, of_column in ((i, 1 - fx), ((i + 1) % cells, fx)):
            share = charge * of_row * of_column
            total += xp.bincount(row * cells + column, share, cells * cells)
    return (total.astype(np.float32).reshape(cells, cells),)


def thomas(xp: Any, lower: Array, diagonal: Array, upper: Array, right: Array) -> Sequence[Array]:
    factors, values = xp.empty_like(upper), xp.empty_like(right)
    factors[0], values[0] = upper[0] / diagonal[0], right[0] / diagonal[0]
    for t in range(1, len(right)):
        pivot = 1 / (diagonal[t] - lower[t] * factors[t - 1])
        factors[t] = upper[t] * pivot
        values[t] = (right[t] - lower[t] * values[t - 1]) * pivot
    for t in range(len(right) - 2, -1, -1):
        values[t] -= factors[t] * values[t + 1]
    return (values,)


def sparse_product(
    rows: int, xp: Any, values: Array, columns_of: Array, ends: Array, x: Array
) -> Sequence[Array]:
    row = xp.cumsum(xp.bincount(ends, minlength=len(values)))
    return (xp.bincount(row, values * x[columns_of], rows).astype(np.float32),)


def kepler(bound: int, xp: Any, mean: Array, eccentricity: Array) -> Sequence[Array]:
    found = mean + eccentricity * xp.sin(mean)
    for _ in range(bound):
        error = found - eccentricity * xp.sin(found) - mean
        far = xp.abs(error) > CONVERGED
        if not far.any():
            break
        better = found - error / (1 - eccentricity * xp.cos(found))
        found = xp.where(far, better, found)
    return (found,)


def batched_sort(xp: Any, keys: Array, values: Array) -> Sequence[Array]:
    order = xp.argsort(keys, axis=-1, kind="stable")
    return xp.take_along_axis(keys, order, -1), xp.take_along_axis(values, order, -1)


def _softmax(xp: Any, x: Array) -> Array:
    powers = xp.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _best(xp: Any, x: Array, k: int) -> Array:
    """Where the k largest are, the largest first."""
    some = xp.argpartition(x, -k, axis=-1)[..., -k:]
    order = xp.argsort(-xp.take_along_axis(x, some, -1), axis=-1)
    return xp.take_along_axis(some, order, -1)


def expert_routing(capacity: int, xp: Any, x: Array, w_gate: Array, w: Array) -> Sequence[Array]:
    gates, experts = x @ w_gate, len(w)
    chosen = _best(xp, gates, CHOSEN)
    shares = _softmax(xp, xp.take_along_axis(gates, chosen, -1))
    y = xp.zeros_like(x)
    for expert in range(experts):
        taken, which = xp.nonzero(chosen == expert)
        taken, which = taken[:capacity], which[:capacity]
        y[taken] += (x[taken] @ w[expert]) * shares[taken, which][:, None]
    return (y,)


def beam_step(
    xp: Any, logits: Array, scores: Array, sequences: Array, position: Array
) -> Sequence[Array]:
    batch, beams, vocabulary = logits.shape
    top = logits.max(-1, keepdims=True)
    logs = logits - top - xp.log(xp.exp(logits - top).sum(-1, keepdims=True))
    total = (scores[:, :, None] + logs).reshape(batch, -1)
    where = _best(xp, total, beams)
    kept = xp.take_along_axis(sequences, (where // vocabulary)[:, :, None], 1)
    kept[:, :, int(position)] = where % vocabulary
    return xp.take_along_axis(total, where, -1), kept


_PROGRAMS: dict[str, Callable[..., Sequence[Array]]] = {
    "life": life,
    "gravity": gravity,
    "thomas": thomas,
    "batched_sort": batched_sort,
    "beam_step": beam_step,
}
# What takes one of the sizes as well, and which.
_SIZED: dict[str, tuple[Callable[..., Sequence[Array]], int]] = {
    "jacobi": (jacobi, 1),
    "gray_scott": (gray_scott, 1),
    "shallow_water": (shallow_water, 1),
    "lattice_boltzmann": (lattice_boltzmann, 1),
    "deposit": (deposit, 1),
    "sparse_product": (sparse_product, 0),
    "kepler": (kepler, 1),
    "expert_routing": (expert_routing, 3),
}


def program(name: str, sizes: tuple[Any, ...], xp: Any) -> PeerProgram | None:
    """The workload `name` of these sizes; None if it is none of these."""
    if name in _SIZED:
        made, at = _SIZED[name]
        return partial(made, sizes[at], xp)
    return partial(_PROGRAMS[name], xp) if name in _PROGRAMS else None
