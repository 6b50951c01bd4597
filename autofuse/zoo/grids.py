"""Fields on a grid, step by step: stencils in loops."""

from __future__ import annotations

import numpy as np

import autofuse.frontends.array_api as xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.types import Graph

Array = TracedArray
Fields = tuple[Array, ...]
# Gray and Scott's reaction: diffusion of both substances, feed and kill rates, in grid units.
DIFFUSE_U, DIFFUSE_V, FEED, KILL = 0.16, 0.08, 0.035, 0.065
# Shallow water: m/s^2, 1/s, and the step over the distance of grid points, s and s/m.
GRAVITY, CORIOLIS, DT, DT_DX = 9.81, 1e-4, 60.0, 6e-3
# The nine velocities of D2Q9 (east, north), what rests first, their weights, the relaxation rate.
EAST = (0, 1, 0, -1, 0, 1, -1, -1, 1)
NORTH = (0, 0, 1, 0, -1, 1, 1, -1, -1)
WEIGHTS = (4 / 9,) + (1 / 9,) * 4 + (1 / 36,) * 4
OMEGA = 1.2


def jacobi(size: int, steps: int) -> Graph:
    """`steps` Jacobi iterations for Poisson's equation on u f32[size, size], zero at the border;
    f f32[size, size] is the right side times the squared distance of points."""

    def fn(u: Array, f: Array) -> dict[str, Array]:
        def step(_: Array, u: Array) -> Array:
            around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
            return xp.pad(0.25 * (around + f[1:-1, 1:-1]), 1)

        return {"u": xp.fori_loop(steps, step, u)}

    each = spec((size, size), low=-1, high=1)
    return trace(fn, each, each)


def _laplacian(x: Array) -> Array:
    around = xp.roll(x, 1, 0) + xp.roll(x, -1, 0) + xp.roll(x, 1, 1) + xp.roll(x, -1, 1)
    return around - 4.0 * x


def gray_scott(size: int, steps: int) -> Graph:
    """`steps` Euler steps of u' = Du lap(u) - u v^2 + F (1 - u), v' = Dv lap(v) + u v^2 - (F + k) v
    (Pearson 1993) on a periodic grid f32[size, size]."""

    def fn(u: Array, v: Array) -> dict[str, Array]:
        def step(_: Array, carried: Fields) -> Fields:
            u, v = carried
            reaction = u * v * v
            new_u = u + (DIFFUSE_U * _laplacian(u) - reaction + FEED * (1.0 - u))
            new_v = v + (DIFFUSE_V * _laplacian(v) + reaction - (FEED + KILL) * v)
            return new_u, new_v

        u, v = xp.fori_loop(steps, step, (u, v))
        return {"u": u, "v": v}

    return trace(fn, spec((size, size), low=0.5, high=1), spec((size, size), low=0, high=0.5))


def shallow_water(size: int, steps: int) -> Graph:
    """`steps` forward-backward steps of the rotating shallow water equations without advection of
    momentum, on a periodic C-grid: depth h at centres (m), velocities u and v (m/s) at the east and
    north faces, f32[size, size] each."""

    def fn(h: Array, u: Array, v: Array) -> dict[str, Array]:
        def step(_: Array, carried: Fields) -> Fields:
            h, u, v = carried
            east, north = xp.roll(h, -1, 1), xp.roll(h, -1, 0)
            both = v + xp.roll(v, -1, 1)
            across = 0.25 * (both + xp.roll(both, 1, 0))
            u = u + (DT * CORIOLIS) * across - (GRAVITY * DT_DX) * (east - h)
            both = u + xp.roll(u, -1, 0)
            across = 0.25 * (both + xp.roll(both, 1, 1))
            v = v - (DT * CORIOLIS) * across - (GRAVITY * DT_DX) * (north - h)
            flow_u, flow_v = u * (0.5 * (h + east)), v * (0.5 * (h + north))
            out = flow_u - xp.roll(flow_u, 1, 1) + flow_v - xp.roll(flow_v, 1, 0)
            return h - DT_DX * out, u, v

        h, u, v = xp.fori_loop(steps, step, (h, u, v))
        return {"h": h, "u": u, "v": v}

    slow = spec((size, size), low=-0.1, high=0.1)
    return trace(fn, spec((size, size), low=99, high=101), slow, slow)


def lattice_boltzmann(size: int, steps: int) -> Graph:
    """`steps` steps of the lattice Boltzmann method D2Q9 with one relaxation rate (BGK): nine
    distributions f32[9, size, size] on a periodic grid collide, then move."""
    east, north, weights = (
        np.array(numbers, np.float32)[:, None, None] for numbers in (EAST, NORTH, WEIGHTS)
    )

    def fn(f: Array) -> dict[str, Array]:
        def step(_: Array, f: Array) -> Array:
            density = xp.sum(f, axis=0)
            ux, uy = xp.sum(f * east, axis=0) / density, xp.sum(f * north, axis=0) / density
            along = east * ux + north * uy
            still = weights * density
            balance = still * (1.0 + 3.0 * along + 4.5 * along * along - 1.5 * (ux * ux + uy * uy))
            f = f - OMEGA * (f - balance)
            moves = zip(f, NORTH, EAST, strict=True)
            return xp.stack([xp.roll(part, (dy, dx), (0, 1)) for part, dy, dx in moves])

        return {"f": xp.fori_loop(steps, step, f)}

    return trace(fn, spec((len(EAST), size, size), low=0.05, high=0.15))


def life(size: int, steps: int, births: int) -> Graph:
    """`steps` generations of Conway's game of life on a torus of cells u8[size, size], 0 or 1;
    after each of them cells are born at places i32[steps, births, 2] (row, column)."""

    def fn(cells: Array, places: Array) -> dict[str, Array]:
        def step(t: Array, cells: Array) -> Array:
            rows = cells + xp.roll(cells, 1, 0) + xp.roll(cells, -1, 0)
            here = rows + xp.roll(rows, 1, 1) + xp.roll(rows, -1, 1)
            # With the cell itself: three live on or are born, four live on.
            alive = (here == 3) | ((here == 4) & (cells == 1))
            return xp.scatter(alive.astype("u8"), xp.take(places, t, axis=0), 1, axis=(0, 1))

        return {"cells": xp.fori_loop(steps, step, cells)}

    places = spec((steps, births, 2), "i32", low=0, high=size - 1)
    return trace(fn, spec((size, size), "u8", low=0, high=1), places)
