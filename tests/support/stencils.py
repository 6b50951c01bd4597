"""Programs that shift: chains and loops of stencils, written in the ways that people write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import autofuse
from autofuse import spec, xp
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph

Step = Callable[[Any], Any]


def _neighbours(x: Any) -> list[Any]:
    """The 2d neighbours of every inner element."""
    found = []
    for axis in range(x.ndim):
        for part in (slice(0, -2), slice(2, None)):
            found.append(x[tuple(part if a == axis else slice(1, -1) for a in range(x.ndim))])
    return found


def _blurred(x: Any) -> Any:
    """tanh of the mean over a star of points, without the border; one tanh an element."""
    total = x[(slice(1, -1),) * x.ndim]
    for part in _neighbours(x):
        total = total + part
    return xp.tanh(total * (1.0 / (2 * x.ndim + 1)))


def shrinking(x: Any) -> Any:
    """A stencil whose result lacks the border: offsets add up, so equal ones meet."""
    return _blurred(x)


def padded(x: Any) -> Any:
    """A stencil with a border of zeros: every step clamps, so no two ways are the same."""
    return _blurred(xp.pad(x, [(1, 1)] * x.ndim))


def rolled(x: Any) -> Any:
    """A periodic stencil of two slices joined for each neighbour."""
    total = x
    for axis in range(x.ndim):
        first = (slice(None),) * axis
        turned = [x[(*first, slice(1, None))], x[(*first, slice(0, 1))]]
        back = [x[(*first, slice(-1, None))], x[(*first, slice(0, -1))]]
        total = total + xp.concat(turned, axis=axis) + xp.concat(back, axis=axis)
    return xp.tanh(total * (1.0 / (2 * x.ndim + 1)))


STEPS: dict[str, Step] = {"shrinking": shrinking, "padded": padded, "rolled": rolled}


def chain(step: Step, shape: tuple[int, ...], depth: int) -> Graph:
    """`depth` stencils one after another."""

    def run(x: Any) -> Any:
        for _ in range(depth):
            x = step(x)
        return {"y": x}

    return canonical(autofuse.trace(run, spec(shape)))


def looped(step: Step, shape: tuple[int, ...], trips: int) -> Graph:
    """A counted loop of stencils."""
    return canonical(
        autofuse.trace(lambda x: {"y": xp.fori_loop(trips, lambda i, s: step(s), x)}, spec(shape))
    )
