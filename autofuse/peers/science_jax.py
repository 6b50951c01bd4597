"""Simulations, solvers and choices of the zoo as a JAX user writes them. Importing this module
imports jax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from autofuse.peers.fields import collide, flow, lives_on, react, relaxed
from autofuse.peers.types import PeerProgram
from autofuse.zoo.choices import CHOSEN
from autofuse.zoo.grids import EAST, NORTH, WEIGHTS
from autofuse.zoo.particles import DT, SOFTENING
from autofuse.zoo.solvers import CONVERGED

Array = Any


def jacobi(steps: int) -> PeerProgram:
    def solve(u: Array, f: Array) -> Sequence[Array]:
        def step(_: Array, u: Array) -> Array:
            return jnp.pad(relaxed(u, f), 1)

        return (lax.fori_loop(0, steps, step, u),)

    return solve


def _stepped(steps: int, step: Callable[..., Any]) -> PeerProgram:
    """`steps` times the step of all fields."""

    def run(*fields: Array) -> Sequence[Array]:
        found: Sequence[Array] = lax.fori_loop(0, steps, lambda _, now: step(jnp, *now), fields)
        return found

    return run


def gray_scott(steps: int) -> PeerProgram:
    return _stepped(steps, react)


def shallow_water(steps: int) -> PeerProgram:
    return _stepped(steps, flow)


def lattice_boltzmann(steps: int) -> PeerProgram:
    def step(xp: Any, f: Array) -> Sequence[Array]:
        lattice = [xp.asarray(n, xp.float32)[:, None, None] for n in (EAST, NORTH, WEIGHTS)]
        return (collide(xp, f, *lattice),)

    return _stepped(steps, step)


def life(cells: Array, places: Array) -> Sequence[Array]:
    def step(cells: Array, born: Array) -> tuple[Array, None]:
        alive = lives_on(jnp, cells).astype(jnp.uint8)
        return alive.at[born[:, 0], born[:, 1]].set(1), None

    return (lax.scan(step, cells, places)[0],)


def gravity(position: Array, velocity: Array, mass: Array) -> Sequence[Array]:
    apart = position[None] - position[:, None]
    square = jnp.sum(apart * apart, axis=-1) + SOFTENING
    pull = mass / (square * jnp.sqrt(square))
    velocity = velocity + DT * jnp.sum(apart * pull[:, :, None], axis=1)
    return position + DT * velocity, velocity


def deposit(cells: int) -> PeerProgram:
    def shared(x: Array, y: Array, charge: Array) -> Sequence[Array]:
        left, low = jnp.floor(x), jnp.floor(y)
        fx, fy = x - left, y - low
        i, j = left.astype(jnp.int32), low.astype(jnp.int32)
        total = jnp.zeros((cells, cells))
        for row, of_row in ((j, 1 - fy), ((j + 1) % cells, fy)):
            for column, of_column in ((i, 1 - fx), ((i + 1) % cells, fx)):
                total = total.at[row, column].add(charge * of_row * of_column)
        return (total,)

    return shared


def thomas(lower: Array, diagonal: Array, upper: Array, right: Array) -> Sequence[Array]:
    def eliminate(above: tuple[Array, Array], row: tuple[Array, ...]) -> Any:
        low, middle, high, side = row
        pivot = 1 / (middle - low * above[0])
        now = high * pivot, (side - low * above[1]) * pivot
        return now, now

    def substitute(below: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        now = row[1] - row[0] * below
        return now, now

    nothing = jnp.zeros_like(right[0])
    _, rows = lax.scan(eliminate, (nothing, nothing), (lower.at[0].set(0), diagonal, upper, right))
    factors, values = rows
    return (lax.scan(substitute, nothing, (factors.at[-1].set(0), values), reverse=True)[1],)


def sparse_product(rows: int) -> PeerProgram:
    def product(values: Array, columns_of: Array, ends: Array, x: Array) -> Sequence[Array]:
        row = jnp.cumsum(jnp.zeros(len(values), jnp.int32).at[ends].add(1))
        terms = values * x[columns_of]
        return (jax.ops.segment_sum(terms, row, rows, indices_are_sorted=True),)

    return product


def kepler(bound: int) -> PeerProgram:
    def one(mean: Array, eccentricity: Array) -> Array:
        def error(found: Array) -> Array:
            return found - eccentricity * jnp.sin(found) - mean

        def far(state: tuple[Array, Array]) -> Array:
            return (state[0] < bound) & (jnp.abs(error(state[1])) > CONVERGED)

        def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
            count, found = state
            slope = 1 - eccentricity * jnp.cos(found)
            return count + 1, found - error(found) / slope

        return lax.while_loop(far, step, (0, mean + eccentricity * jnp.sin(mean)))[1]

    return lambda mean, eccentricity: (jax.vmap(one)(mean, eccentricity),)


def batched_sort(keys: Array, values: Array) -> Sequence[Array]:
    found: Sequence[Array] = lax.sort((keys, values), num_keys=1)
    return found


def expert_routing(capacity: int) -> PeerProgram:
    def route(x: Array, w_gate: Array, w: Array) -> Sequence[Array]:
        (tokens, width), experts = x.shape, len(w)
        scores, chosen = lax.top_k(x @ w_gate, CHOSEN)
        expert = chosen.reshape(-1)
        mine = jax.nn.one_hot(expert, experts, dtype=jnp.int32)
        place = jnp.sum((jnp.cumsum(mine, axis=0) - 1) * mine, axis=1)
        kept = place < capacity
        slot = jnp.where(kept, expert * capacity + place, experts * capacity)
        sent = jnp.repeat(x, CHOSEN, axis=0)
        full = jnp.zeros((experts * capacity, width)).at[slot].set(sent, mode="drop")
        made = (full.reshape(experts, capacity, width) @ w).reshape(-1, width)
        weight = jnp.where(kept, jax.nn.softmax(scores).reshape(-1), 0)
        back = made.at[slot].get(mode="clip") * weight[:, None]
        return (back.reshape(tokens, CHOSEN, width).sum(1),)

    return route


def beam_step(logits: Array, scores: Array, sequences: Array, position: Array) -> Sequence[Array]:
    batch, beams, vocabulary = logits.shape
    total = (scores[:, :, None] + jax.nn.log_softmax(logits)).reshape(batch, -1)
    best, where = lax.top_k(total, beams)
    kept = jnp.take_along_axis(sequences, (where // vocabulary)[:, :, None], axis=1)
    return best, kept.at[:, :, position].set(where % vocabulary)


_PROGRAMS: dict[str, PeerProgram] = {
    "life": life,
    "gravity": gravity,
    "thomas": thomas,
    "batched_sort": batched_sort,
    "beam_step": beam_step,
}
# What is made for one of the sizes, and which.
_SIZED: dict[str, tuple[Callable[[int], PeerProgram], int]] = {
    "jacobi": (jacobi, 1),
    "gray_scott": (gray_scott, 1),
    "shallow_water": (shallow_water, 1),
    "lattice_boltzmann": (lattice_boltzmann, 1),
    "deposit": (deposit, 1),
    "sparse_product": (sparse_product, 0),
    "kepler": (kepler, 1),
    "expert_routing": (expert_routing, 3),
}


def program(name: str, sizes: tuple[Any, ...]) -> PeerProgram | None:
    """The workload `name` of these sizes; None if it is none of these."""
    if name in _SIZED:
        made, at = _SIZED[name]
        return made(sizes[at])
    return _PROGRAMS.get(name)
