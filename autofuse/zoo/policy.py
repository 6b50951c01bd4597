"""Cartpole with a policy: the network's inference inside the step of the simulation."""

from __future__ import annotations

import autofuse.frontends.array_api as xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.types import Graph
from autofuse.zoo.cartpole import FORCE, RESET, stacked_step

Array = TracedArray
OBSERVATIONS = 4


def cartpole_policy(n_envs: int, steps: int, hidden: int) -> Graph:
    """As cartpole_naive, but each push is chosen by a network of one hidden tanh layer from the
    state; the states to start again from are drawn inside, of step t from stream t.

    Inputs: key u32[2], state f32[4, n_envs], w1 f32[hidden, 4], b1 f32[hidden],
    w2 f32[1, hidden], b2 f32[1]. Outputs: final state, reward f32[n_envs].
    """

    def fn(
        key: Array, state: Array, w1: Array, b1: Array, w2: Array, b2: Array
    ) -> dict[str, Array]:
        def body(t: Array, carried: tuple[Array, ...]) -> tuple[Array, ...]:
            fresh = xp.uniform(key, (OBSERVATIONS, n_envs), t.astype("u32"), low=-RESET, high=RESET)
            layer = xp.tanh(w1 @ carried[0] + b1[:, None])
            score = (w2 @ layer + b2[:, None])[0]
            force = xp.where(score < 0.0, -FORCE, FORCE)
            return stacked_step(carried[0], carried[1], force, fresh)

        final, reward = xp.fori_loop(steps, body, (state, xp.zeros(n_envs)))
        return {"state": final, "reward": reward}

    weights = spec((hidden, OBSERVATIONS), low=-8, high=8), spec(hidden, low=-0.5, high=0.5)
    return trace(
        fn,
        spec(2, "u32"),
        spec((OBSERVATIONS, n_envs), low=-RESET, high=RESET),
        *weights,
        spec((1, hidden), low=-1, high=1),
        spec(1, low=-0.1, high=0.1),
    )
