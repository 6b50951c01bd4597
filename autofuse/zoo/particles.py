"""Particles: every pair of them, and what they leave on a grid."""

from __future__ import annotations

import autofuse.frontends.array_api as xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.types import Graph

Array = TracedArray
# The squared softening length and the step, in units with G = 1.
SOFTENING, DT = 0.01, 0.01


def gravity(bodies: int) -> Graph:
    """One kick and drift of `bodies` that attract each other, softened after Plummer: position and
    velocity f32[bodies, 3], mass f32[bodies], in units with G = 1."""

    def fn(position: Array, velocity: Array, mass: Array) -> dict[str, Array]:
        apart = position[None] - position[:, None]
        square = xp.sum(apart * apart, axis=-1) + SOFTENING
        pull = mass / (square * xp.sqrt(square))
        velocity = velocity + DT * xp.sum(apart * pull[:, :, None], axis=1)
        return {"position": position + DT * velocity, "velocity": velocity}

    place = spec((bodies, 3), low=-1, high=1)
    return trace(fn, place, place, spec(bodies, low=0.5 / bodies, high=1.5 / bodies))


def deposit(particles: int, cells: int) -> Graph:
    """The charge of particles at x and y in [0, cells), f32[particles], shared out between the four
    nearest points of a periodic grid f32[cells, cells] (cloud in cell, Hockney and Eastwood)."""

    def fn(x: Array, y: Array, charge: Array) -> dict[str, Array]:
        left, low = xp.floor(x), xp.floor(y)
        fx, fy = x - left, y - low
        i, j = left.astype("i32"), low.astype("i32")
        east, north = (i + 1) % cells, (j + 1) % cells
        places, shares = [], []
        for row, of_row in ((j, 1.0 - fy), (north, fy)):
            for column, of_column in ((i, 1.0 - fx), (east, fx)):
                places.append(row * cells + column)
                shares.append(charge * of_row * of_column)
        total = xp.segment_sum(xp.concat(shares), xp.concat(places), cells * cells)
        return {"density": total.reshape(cells, cells)}

    place = spec(particles, low=0, high=cells - 0.01)
    return trace(fn, place, place, spec(particles, low=0.5, high=1.5))
