"""Cartpole roll-outs: the same simulation written four ways, from naive to fusion-friendly.

Physics of CartPole-v1 in f32 with explicit Euler. Each step pushes the cart by -10 or +10 at
random; an environment that leaves |x| <= 2.4 or |theta| <= 12 degrees scores nothing for that
step and starts again from a random state in [-0.05, 0.05]. Step t draws the new states from
stream 2t and the actions from stream 2t + 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

import autofuse.frontends.array_api as xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.tracer import Spec, spec, trace
from autofuse.frontends.errors import TraceError
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph

Array = TracedArray
State = tuple[Array, Array, Array, Array]

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, DT = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
X_LIMIT, ANGLE_LIMIT, RESET = 2.4, 12 * math.pi / 180, 0.05
_MASS, _MOMENT = CART + POLE, POLE * HALF_LENGTH
UNROLL = 10


def dynamics(state: State, force: Array) -> State:
    """The state after one Euler step: x, x_dot, theta, theta_dot, each f32[n]."""
    x, x_dot, theta, theta_dot = state
    sin, cos = xp.sin(theta), xp.cos(theta)
    temp = (force + _MOMENT * theta_dot * theta_dot * sin) / _MASS
    theta_acc = (GRAVITY * sin - cos * temp) / (
        HALF_LENGTH * (4.0 / 3.0 - POLE * cos * cos / _MASS)
    )
    x_acc = temp - _MOMENT * theta_acc * cos / _MASS
    return (
        x + DT * x_dot,
        x_dot + DT * x_acc,
        theta + DT * theta_dot,
        theta_dot + DT * theta_acc,
    )


def is_done(x: Array, theta: Array) -> Array:
    """Whether the cart or the pole is out of bounds, bool[n]."""
    return (xp.abs(x) > X_LIMIT) | (xp.abs(theta) > ANGLE_LIMIT)


def draw(key: Array, step: Array, n_envs: int) -> tuple[Array, Array]:
    """Actions f32[n_envs] in {-10, +10} and reset states f32[4, n_envs] of one step."""
    stream = step.astype("u32") * 2
    resets = xp.uniform(key, (4, n_envs), stream, low=-RESET, high=RESET)
    coins = xp.uniform(key, (n_envs,), stream + 1)
    return xp.where(coins < 0.5, -FORCE, FORCE), resets


def stacked_step(state: Array, reward: Array, actions: Array, resets: Array) -> tuple[Array, ...]:
    """One step of a state f32[4, n], taken apart and put together again.

    As simulators have it, the new state is one array before anything is asked of it: so its
    concatenation has several users, which rules may refuse to fuse."""
    moved = xp.stack(dynamics((state[0], state[1], state[2], state[3]), actions))
    done = is_done(moved[0], moved[2])
    return xp.where(done, resets, moved), reward + xp.where(done, 0.0, 1.0)


def _separate_step(
    state: State, reward: Array, actions: Array, resets: Sequence[Array]
) -> tuple[State, Array]:
    """One step of four separate state arrays."""
    moved = dynamics(state, actions)
    done = is_done(moved[0], moved[2])
    x, x_dot, theta, theta_dot = (xp.where(done, r, m) for r, m in zip(resets, moved, strict=True))
    return (x, x_dot, theta, theta_dot), reward + xp.where(done, 0.0, 1.0)


def _state_spec(shape: tuple[int, ...]) -> Spec:
    return spec(shape, low=-RESET, high=RESET)


def _draw_specs(n_envs: int, steps: int) -> tuple[Spec, Spec]:
    actions = spec((steps, n_envs), low=-FORCE, high=FORCE)
    return actions, _state_spec((steps, 4, n_envs))


def cartpole_naive(n_envs: int, steps: int) -> Graph:
    """Random numbers drawn inside; the state is one array f32[4, n_envs].

    Inputs: key u32[2], state. Outputs: final state, reward f32[n_envs] (steps survived).
    """

    def fn(key: Array, state: Array) -> dict[str, Array]:
        def body(t: Array, carried: tuple[Array, ...]) -> tuple[Array, ...]:
            actions, resets = draw(key, t, n_envs)
            return stacked_step(carried[0], carried[1], actions, resets)

        final, reward = xp.fori_loop(steps, body, (state, xp.zeros(n_envs)))
        return {"state": final, "reward": reward}

    return trace(fn, spec(2, "u32"), _state_spec((4, n_envs)))


def cartpole_norng(n_envs: int, steps: int) -> Graph:
    """As naive, with the random numbers given.

    Inputs: state f32[4, n_envs], actions f32[steps, n_envs], resets f32[steps, 4, n_envs].
    """

    def fn(state: Array, actions: Array, resets: Array) -> dict[str, Array]:
        def body(t: Array, carried: tuple[Array, ...]) -> tuple[Array, ...]:
            now, fresh = xp.take(actions, t, axis=0), xp.take(resets, t, axis=0)
            return stacked_step(carried[0], carried[1], now, fresh)

        final, reward = xp.fori_loop(steps, body, (state, xp.zeros(n_envs)))
        return {"state": final, "reward": reward}

    return trace(fn, _state_spec((4, n_envs)), *_draw_specs(n_envs, steps))


def cartpole_noconcat(n_envs: int, steps: int) -> Graph:
    """As norng, with four separate state arrays f32[n_envs] in, carried and out."""
    return _separate(n_envs, steps, 1)


def cartpole_unroll10(n_envs: int, steps: int) -> Graph:
    """As noconcat, with ten steps per iteration of the loop; `steps` is a multiple of ten."""
    if steps % UNROLL:
        raise TraceError(f"cartpole_unroll10 runs a multiple of {UNROLL} steps, not {steps}")
    return _separate(n_envs, steps, UNROLL)


def _separate(n_envs: int, steps: int, unroll: int) -> Graph:
    def fn(
        x: Array, x_dot: Array, theta: Array, theta_dot: Array, actions: Array, resets: Array
    ) -> dict[str, Array]:
        def body(i: Array, carried: tuple[State, Array]) -> tuple[State, Array]:
            state, reward = carried
            for k in range(unroll):
                t = i if unroll == 1 else i * unroll + k
                fresh = xp.take(resets, t, axis=0)
                state, reward = _separate_step(
                    state, reward, xp.take(actions, t, axis=0), tuple(fresh)
                )
            return state, reward

        init = ((x, x_dot, theta, theta_dot), xp.zeros(n_envs))
        state, reward = xp.fori_loop(steps // unroll, body, init)
        names = ("x", "x_dot", "theta", "theta_dot")
        return {**dict(zip(names, state, strict=True)), "reward": reward}

    one = _state_spec((n_envs,))
    return trace(fn, one, one, one, one, *_draw_specs(n_envs, steps))


def drawing(n_envs: int, steps: int) -> Graph:
    """What cartpole_naive draws: from key u32[2], actions f32[steps, n_envs] and resets
    f32[steps, 4, n_envs], to be fed to the other three."""

    def fn(key: Array) -> dict[str, Array]:
        _, stacks = xp.scan(lambda t, s: (s, draw(key, t, n_envs)), (), steps)
        return dict(zip(("actions", "resets"), stacks, strict=True))

    return trace(fn, spec(2, "u32"))


def draws(key: Sequence[int], n_envs: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The outputs of `drawing` for `key`."""
    actions, resets = evaluate(drawing(n_envs, steps), [np.asarray(key, np.uint32)])
    return actions.astype(np.float32), resets.astype(np.float32)
