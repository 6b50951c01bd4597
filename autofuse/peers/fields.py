"""One step of each simulation on a grid, for any array library with `roll`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autofuse.zoo.grids import (
    CORIOLIS,
    DIFFUSE_U,
    DIFFUSE_V,
    DT,
    DT_DX,
    EAST,
    FEED,
    GRAVITY,
    KILL,
    NORTH,
    OMEGA,
)


def relaxed(u: Any, f: Any) -> Any:
    """The inner part of u after a Jacobi iteration."""
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    return 0.25 * (around + f[1:-1, 1:-1])


def _laplacian(xp: Any, x: Any) -> Any:
    return xp.roll(x, 1, 0) + xp.roll(x, -1, 0) + xp.roll(x, 1, 1) + xp.roll(x, -1, 1) - 4.0 * x


def react(xp: Any, u: Any, v: Any) -> tuple[Any, Any]:
    """Gray and Scott's substances after a step."""
    reaction = u * v * v
    return (
        u + (DIFFUSE_U * _laplacian(xp, u) - reaction + FEED * (1.0 - u)),
        v + (DIFFUSE_V * _laplacian(xp, v) + reaction - (FEED + KILL) * v),
    )


def flow(xp: Any, h: Any, u: Any, v: Any) -> tuple[Any, Any, Any]:
    """Depth and velocities of shallow water after a step."""
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


def collide(xp: Any, f: Any, east: Any, north: Any, weights: Any) -> Any:
    """Distributions of D2Q9 after a step; the last three are arrays [9, 1, 1]."""
    density = f.sum(0)
    ux, uy = (f * east).sum(0) / density, (f * north).sum(0) / density
    along = east * ux + north * uy
    balance = (weights * density) * (
        1.0 + 3.0 * along + 4.5 * along * along - 1.5 * (ux * ux + uy * uy)
    )
    f = f - OMEGA * (f - balance)
    moved: Sequence[Any] = [
        xp.roll(part, (dy, dx), (0, 1)) for part, dy, dx in zip(f, NORTH, EAST, strict=True)
    ]
    return xp.stack(moved)


def lives_on(xp: Any, cells: Any) -> Any:
    """Which cells are alive in the next generation; cells are 0 or 1."""
    rows = cells + xp.roll(cells, 1, 0) + xp.roll(cells, -1, 0)
    here = rows + xp.roll(rows, 1, 1) + xp.roll(rows, -1, 1)
    return (here == 3) | ((here == 4) & (cells == 1))
