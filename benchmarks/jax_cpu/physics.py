"""Simulations: arms, neurons, orbits, pendulums, differential equations."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.jax_cpu.types import LoopCase, LoopProgram, drawn, module

Dtype = np.dtype[Any]
# Runge and Kutta's classical scheme as a table.
_STAGES = np.array([[0, 0, 0, 0], [0.5, 0, 0, 0], [0, 0.5, 0, 0], [0, 0, 1, 0]])
_WEIGHTS = np.array([1, 2, 2, 1]) / 6


def _arm(dtype: Dtype) -> LoopCase:
    """The mass matrix of an arm of seven links, by composite bodies, at 50 postures in a row."""
    jax = module("jax")
    jnp, links = jax.numpy, 7
    offsets = 0.3 * drawn(dtype, links, 3)
    masses = (1 + np.abs(drawn(dtype, links))).astype(dtype)

    def turn(angle: Any) -> Any:
        c, s, one, zero = jnp.cos(angle), jnp.sin(angle), angle * 0 + 1, angle * 0
        return jnp.stack([c, -s, zero, s, c, zero, zero, zero, one]).reshape(3, 3)

    def cross(v: Any) -> Any:
        zero = v[0] * 0
        return jnp.stack([zero, -v[2], v[1], v[2], zero, -v[0], -v[1], v[0], zero]).reshape(3, 3)

    def moved(angle: Any, offset: Any) -> Any:
        rotation = turn(angle).T
        return jnp.block([
            [rotation, jnp.zeros((3, 3), rotation.dtype)], [-rotation @ cross(offset), rotation],
        ])  # fmt: skip

    def inertia(mass: Any, offset: Any) -> Any:
        c, eye = cross(offset), jnp.eye(3, dtype=offset.dtype)
        return jnp.block([[mass * (0.1 * eye + c @ c.T), mass * c], [mass * c.T, mass * eye]])

    def matrix(angles: Any) -> Any:
        steps = [moved(angles[i], offsets[i]) for i in range(links)]
        bodies = [inertia(masses[i], offsets[i]) for i in range(links)]
        for i in reversed(range(1, links)):
            bodies[i - 1] = bodies[i - 1] + steps[i].T @ bodies[i] @ steps[i]
        rows = jnp.zeros((links, links), angles.dtype)
        for i in range(links):
            force = bodies[i][:, 2]
            rows = rows.at[i, i].set(force[2])
            for j in reversed(range(i)):
                force = steps[j + 1].T @ force
                rows = rows.at[i, j].set(force[2]).at[j, i].set(force[2])
        return rows

    def run(angles: Any) -> Any:
        return jax.lax.scan(lambda q, _: (q + 0.01, matrix(q)), angles, None, length=50)[1]

    return LoopCase(run, (drawn(dtype, links),))


def _neuron(dtype: Dtype) -> LoopCase:
    """Hodgkin and Huxley's cable of 16 compartments, implicit in the voltages, 400 steps."""
    jax = module("jax")
    jnp, size, dt, axial = jax.numpy, 16, 0.025, 0.5

    def ratio(x: Any) -> Any:
        return jnp.where(jnp.abs(x) < 1e-4, 1 + x / 2, x / (1 - jnp.exp(-x)))

    def gates(v: Any, m: Any, h: Any, n: Any) -> Any:
        am, bm = ratio((v + 40) / 10), 4 * jnp.exp(-(v + 65) / 18)
        ah, bh = 0.07 * jnp.exp(-(v + 65) / 20), 1 / (1 + jnp.exp(-(v + 35) / 10))
        an, bn = 0.1 * ratio((v + 55) / 10), 0.125 * jnp.exp(-(v + 65) / 80)
        new = ((m, am, bm), (h, ah, bh), (n, an, bn))
        return tuple(a / (a + b) + (x - a / (a + b)) * jnp.exp(-dt * (a + b)) for x, a, b in new)

    def solved(diagonal: Any, right: Any) -> Any:
        def down(carry: Any, row: Any) -> Any:
            (c, d), (b, r) = carry, row
            below = b + axial * c
            now = (-axial / below, (r + axial * d) / below)
            return now, now

        zero = right[0] * 0
        _, (upper, rest) = jax.lax.scan(down, (zero, zero), (diagonal, right))

        def up(x: Any, row: Any) -> Any:
            new = row[1] - row[0] * x
            return new, new

        return jax.lax.scan(up, zero, (upper, rest), reverse=True)[1]

    def run(scale: Any, start: Any, current: Any) -> Any:
        def step(state: Any, given: Any) -> Any:
            v, m, h, n = state
            m, h, n = gates(v, m, h, n)
            sodium, potassium = scale[0] * 120 * m**3 * h, scale[1] * 36 * n**4
            neighbours = jnp.full(size, 2 * axial, v.dtype).at[0].set(axial).at[-1].set(axial)
            diagonal = 1 / dt + sodium + potassium + 0.3 * scale[2] + neighbours
            right = v / dt + 50 * sodium - 77 * potassium - 0.3 * scale[2] * 54.4
            v = solved(diagonal, right.at[0].add(given))
            return (v, m, h, n), v[-1]

        return jax.lax.scan(step, start, current)[1]

    rest = tuple(np.full(size, x, dtype) for x in (-65, 0.05, 0.6, 0.32))
    return LoopCase(run, (np.ones(3, dtype), rest, np.full(400, 10, dtype)))


def _bodies(dtype: Dtype) -> LoopCase:
    """A star and four planets, 500 steps of a leapfrog."""
    jax = module("jax")
    jnp, count = jax.numpy, 5
    masses = np.array([1, 1e-3, 3e-4, 1e-4, 5e-5], dtype)
    radii = np.array([0, 1, 1.6, 2.4, 3.5])
    places = np.stack([radii, 0 * radii, 0.01 * radii], 1).astype(dtype)
    speed = np.where(radii > 0, 1 / np.sqrt(np.maximum(radii, 0.1)), 0)
    speeds = np.stack([0 * radii, speed, 0 * radii], 1).astype(dtype)

    def pull(masses: Any, x: Any) -> Any:
        apart = x[None, :, :] - x[:, None, :]
        squared = (apart**2).sum(-1) + jnp.eye(count, dtype=x.dtype)
        return (masses[None, :, None] * apart / (squared * jnp.sqrt(squared))[..., None]).sum(1)

    def run(masses: Any, x: Any, v: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            x, v = state
            x = x + 0.005 * v
            v = v + 0.01 * pull(masses, x)
            x = x + 0.005 * v
            return (x, v), x[1, 0]

        return jax.lax.scan(step, (x, v), None, length=500)

    return LoopCase(run, (masses, places, speeds))


def _kepler(dtype: Dtype) -> LoopCase:
    """Kepler's equation for 64 times by ten steps of Newton's, and the light curve it gives."""
    jax = module("jax")
    jnp = jax.numpy

    def run(orbit: Any, times: Any) -> Any:
        period, eccentricity, radius = orbit[0], orbit[1], orbit[2]

        def at(_: Any, time: Any) -> Any:
            mean = 2 * jnp.pi * time / period

            def newton(_: Any, e: Any) -> Any:
                wrong = e - eccentricity * jnp.sin(e) - mean
                return e - wrong / (1 - eccentricity * jnp.cos(e))

            e = jax.lax.fori_loop(0, 10, newton, mean)
            x = jnp.cos(e) - eccentricity
            y = jnp.sqrt(1 - eccentricity**2) * jnp.sin(e)
            return None, 1 - radius**2 * jax.nn.sigmoid(50 * (0.2 - jnp.abs(x))) + 0.01 * y

        return jax.lax.scan(at, None, times)[1]

    times = np.linspace(0, 5, 64).astype(dtype)
    return LoopCase(run, (np.array([3.2, 0.3, 0.1], dtype), times))


def _predators(dtype: Dtype) -> LoopCase:
    """Lotka and Volterra's equations by a table of stages, 1,000 steps."""
    jax = module("jax")
    stages, weights = _STAGES.astype(dtype), _WEIGHTS.astype(dtype)

    def run(rates: Any, start: Any) -> Any:
        table, shares = jax.numpy.asarray(stages), jax.numpy.asarray(weights)

        def field(y: Any) -> Any:
            return jax.numpy.stack(
                [y[0] * (rates[0] - rates[1] * y[1]), y[1] * (rates[2] * y[0] - rates[3])]
            )

        def step(y: Any, _: Any) -> Any:
            def stage(i: Any, slopes: Any) -> Any:
                return slopes.at[i].set(field(y + 0.01 * (table[i] @ slopes)))

            slopes = jax.lax.fori_loop(0, 4, stage, jax.numpy.zeros((4, 2), y.dtype))
            new = y + 0.01 * (shares @ slopes)
            return new, new

        return jax.lax.scan(step, start, None, length=1000)[1]

    return LoopCase(run, (np.array([1.1, 0.4, 0.1, 0.4], dtype), np.array([10, 5], dtype)))


def _adaptive(dtype: Dtype) -> LoopCase:
    """Van der Pol's oscillator by Bogacki and Shampine's pair, the step chosen by the error."""
    jax = module("jax")
    jnp = jax.numpy

    def field(y: Any) -> Any:
        return jnp.stack([y[1], 4.0 * (1 - y[0] ** 2) * y[1] - y[0]])

    def run(start: Any) -> Any:
        def go(state: Any) -> Any:
            t, y, h = state
            h = jnp.minimum(h, 10.0 - t)
            a = field(y)
            b = field(y + 0.5 * h * a)
            c = field(y + 0.75 * h * b)
            new = y + h * (2 * a + 3 * b + 4 * c) / 9
            d = field(new)
            wrong = h * jnp.abs(-5 * a / 72 + b / 12 + c / 9 - d / 8).max() / 1e-7
            good = wrong <= 1
            factor = jnp.clip(0.9 * wrong ** (-1 / 3), 0.2, 5.0)
            return jnp.where(good, t + h, t), jnp.where(good, new, y), h * factor

        first = (start[0] * 0, start, start[0] * 0 + 0.01)
        return jax.lax.while_loop(lambda s: s[0] < 10.0, go, first)[1]

    return LoopCase(run, (np.array([2, 0], dtype),))


def _policy(dtype: Dtype) -> LoopCase:
    """A pendulum steered by a network of 16 units, 300 steps: the cost."""
    jax = module("jax")
    jnp = jax.numpy
    weights = {"w": 0.5 * drawn(dtype, 3, 16), "b": np.zeros(16, dtype), "v": drawn(dtype, 16)}

    def run(weights: Any, start: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            angle, speed = state
            seen = jnp.stack([jnp.cos(angle), jnp.sin(angle), speed])
            force = 2 * jnp.tanh(jnp.tanh(seen @ weights["w"] + weights["b"]) @ weights["v"])
            speed = jnp.clip(speed + 0.05 * (15 * jnp.sin(angle) + 3 * force), -8.0, 8.0)
            angle = angle + 0.05 * speed
            return (angle, speed), jnp.cos(angle) - 0.1 * speed**2 - 0.001 * force**2

        return jax.lax.scan(step, (start[0], start[1]), None, length=100)[1].sum()

    return LoopCase(run, (weights, np.array([0.3, 0], dtype)))


def _carts(dtype: Dtype) -> LoopCase:
    """64 carts with poles under a linear rule, mapped over one cart's 200 steps."""
    jax = module("jax")
    jnp = jax.numpy

    def one(rule: Any, start: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            x, v, angle, turn = state
            force = 10 * jnp.tanh(rule @ jnp.stack(state))
            c, s = jnp.cos(angle), jnp.sin(angle)
            part = (force + 0.05 * turn**2 * s) / 1.1
            bend = (9.8 * s - c * part) / (0.5 * (4 / 3 - 0.1 * c**2 / 1.1))
            push = part - 0.05 * bend * c / 1.1
            new = (x + 0.02 * v, v + 0.02 * push, angle + 0.02 * turn, turn + 0.02 * bend)
            return new, jnp.abs(angle)

        return jax.lax.scan(step, tuple(start), None, length=200)[1].sum()

    rule = np.array([0.1, 0.2, 2, 0.5], dtype)
    return LoopCase(jax.vmap(one, (None, 0)), (rule, 0.05 * drawn(dtype, 64, 4)))


PROGRAMS = (
    LoopProgram("arm_mass_matrix", _arm, "jax#26021", wide=True),
    LoopProgram("neuron_cable", _neuron, "jax#26145, jaxley#571", wide=True),
    LoopProgram("planets", _bodies, "jnkepler#18", wide=True),
    LoopProgram("kepler", _kepler, "jnkepler#30", wide=True),
    LoopProgram("butcher_table", _predators, "xla#23110"),
    LoopProgram("adaptive_steps", _adaptive, "diffrax#615", wide=True, gradients=False),
    LoopProgram("pendulum_policy", _policy, "jax#31282"),
    LoopProgram("carts", _carts),
)
