"""The elementwise workloads of the zoo with `cupy.fuse` (any decorator of that kind will do)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from autofuse.peers.programs_numpy import (
    Library,
    adam_one,
    black_scholes,
    each_step,
    each_tensor,
    gated,
    separate_step,
)
from autofuse.peers.types import PeerProgram

Fuse = Callable[[Callable[..., Any]], Callable[..., Any]]


def fused_program(name: str, library: Library, fuse: Fuse) -> PeerProgram | None:
    """The zoo workload `name` as one fused kernel, per tensor or per step where it has several;
    None for a workload that is not elementwise."""
    makers: dict[str, Callable[[Library, Fuse], PeerProgram]] = {
        "swiglu": _swiglu,
        "black_scholes": _black_scholes,
        "adam_16": _adam,
        "cartpole_noconcat": _cartpole,
        "cartpole_unroll10": _cartpole,
    }
    return makers[name](library, fuse) if name in makers else None


# A function to be fused has plain positional parameters: their number is what fuse counts.


def _swiglu(library: Library, fuse: Fuse) -> PeerProgram:
    def one(a: Any, b: Any) -> Any:
        return gated(library, a, b)

    kernel = fuse(one)

    def program(x: Any) -> Sequence[Any]:
        return (kernel(*library.xp.split(x, 2, axis=-1)),)

    return program


def _black_scholes(library: Library, fuse: Fuse) -> PeerProgram:
    def prices(spot: Any, strike: Any, years: Any, rate: Any, volatility: Any) -> Any:
        return black_scholes(library, spot, strike, years, rate, volatility)

    made: PeerProgram = fuse(prices)
    return made


def _adam(library: Library, fuse: Fuse) -> PeerProgram:
    def one(c1: Any, c2: Any, p: Any, g: Any, m: Any, v: Any) -> Any:
        return adam_one(library, c1, c2, p, g, m, v)

    return partial(each_tensor, fuse(one))


def _cartpole(library: Library, fuse: Fuse) -> PeerProgram:
    def step(
        x: Any, x_dot: Any, theta: Any, theta_dot: Any, reward: Any, force: Any,
        fresh0: Any, fresh1: Any, fresh2: Any, fresh3: Any,
    ) -> Any:  # fmt: skip
        state = (x, x_dot, theta, theta_dot)
        return separate_step(library, *state, reward, force, fresh0, fresh1, fresh2, fresh3)

    return partial(each_step, fuse(step), library)
