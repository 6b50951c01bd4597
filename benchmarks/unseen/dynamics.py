"""Robots, differential equations, molecules and samplers: brax, diffrax, jax-md, blackjax."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.unseen.making import drawn, of_jax
from benchmarks.unseen.types import Made, Program, module

# Robots that are stepped at once.
ROBOTS = 128


def _robot(name: str, backend: str) -> Made:
    """A step of an environment of brax for many robots."""
    jax = module("jax")
    env = module("brax.envs").get_environment(name, backend=backend)
    states = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.PRNGKey(0), ROBOTS))
    actions = jax.numpy.tanh(drawn(ROBOTS, env.action_size))
    return of_jax(jax.vmap(env.step), states, actions)


def _trained_policy() -> Made:
    """The policy network of brax's PPO on observations of an ant."""
    jax, networks = module("jax"), module("brax.training.agents.ppo.networks")
    made = networks.make_ppo_networks(27, 8)
    parameters = made.policy_network.init(jax.random.PRNGKey(0))
    return of_jax(lambda p, x: made.policy_network.apply(None, p, x), parameters, drawn(1024, 27))


def _lorenz() -> Made:
    """256 orbits of Lorenz's equations, 200 fixed steps of Tsit5."""
    jax, diffrax = module("jax"), module("diffrax")

    def field(t: Any, y: Any, args: Any) -> Any:
        x, v, z = y[..., 0], y[..., 1], y[..., 2]
        return jax.numpy.stack([10.0 * (v - x), x * (28.0 - z) - v, x * v - 8.0 / 3.0 * z], -1)

    def run(y: Any) -> Any:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 1.0, 0.005, y,
            stepsize_controller=diffrax.ConstantStepSize(), max_steps=None,
            adjoint=diffrax.ForwardMode(),
        ).ys  # fmt: skip

    return of_jax(run, drawn(256, 3))


def _neural_ode() -> Made:
    """An adaptive solve of a neural differential equation, 64 states of 16."""
    jax, diffrax, equinox = module("jax"), module("diffrax"), module("equinox")
    key = jax.random.PRNGKey(0)
    network = equinox.nn.MLP(16, 16, 64, 2, activation=jax.nn.softplus, key=key)
    weights, fixed = equinox.partition(network, equinox.is_inexact_array)

    def run(weights: Any, y: Any) -> Any:
        net = equinox.combine(weights, fixed)
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: jax.vmap(net)(y)), diffrax.Heun(), 0.0, 1.0, 0.05, y,
            stepsize_controller=diffrax.PIDController(1e-3, 1e-3), max_steps=256,
            adjoint=diffrax.ForwardMode(),
        ).ys  # fmt: skip

    return of_jax(run, weights, drawn(64, 16))


def _molecules() -> Made:
    """Forces of 256 particles under Lennard and Jones's potential, and a step of Verlet's."""
    jax, md = module("jax"), module("jax_md")
    move, shift = md.space.periodic(12.0)
    energy = md.energy.lennard_jones_pair(move)
    force = jax.grad(lambda r: -energy(r))
    places = 6.0 + 3.0 * drawn(256, 3)

    def run(r: Any, v: Any) -> Any:
        half = v + 0.0005 * force(r)
        new = shift(r, 0.001 * half)
        return new, half + 0.0005 * force(new)

    return of_jax(run, places, drawn(256, 3))


def _log_density(x: Any) -> Any:
    """Of Rosenbrock's valley, over the last axis."""
    return -((x[..., 1:] - x[..., :-1] ** 2) ** 2).sum(-1) - 0.05 * ((1 - x) ** 2).sum(-1)


def _sampler(name: str, **options: object) -> Made:
    """64 chains of a sampler of blackjax, 20 steps each, 16 numbers a state."""
    jax, blackjax = module("jax"), module("blackjax")
    kernel = getattr(blackjax, name)(_log_density, **options)
    states = jax.vmap(kernel.init)(drawn(64, 16))
    keys = jax.random.split(jax.random.PRNGKey(1), 64)

    def chain(key: Any, state: Any) -> Any:
        def step(state: Any, key: Any) -> Any:
            return kernel.step(key, state)[0], None

        return jax.lax.scan(step, state, jax.random.split(key, 20))[0]

    return of_jax(jax.vmap(chain), keys, states)


def _hmc() -> Made:
    options = {"step_size": 0.05, "inverse_mass_matrix": module("jax").numpy.ones(16),
               "num_integration_steps": 8}  # fmt: skip
    return _sampler("hmc", **options)


def _mala() -> Made:
    return _sampler("mala", step_size=0.01)


_BRAX = ("brax", "mujoco", "mujoco.mjx", "brax.envs")
PROGRAMS = (
    *(
        Program(f"brax:{robot}:{backend}", "robot", "brax", _BRAX, partial(_robot, robot, backend))
        for robot, backend in (
            ("ant", "spring"), ("halfcheetah", "positional"),
            ("inverted_double_pendulum", "generalized"), ("reacher", "spring"),
        )
    ),
    Program(
        "brax:hopper:spring", "robot", "brax", _BRAX, partial(_robot, "hopper", "spring"), True
    ),
    Program("brax:ppo_policy", "network", "brax", _BRAX, _trained_policy),
    Program("diffrax:lorenz", "equation", "diffrax", ("diffrax",), _lorenz),
    Program("diffrax:neural_ode", "equation", "diffrax", ("diffrax",), _neural_ode),
    Program("jax_md:verlet", "molecules", "jax-md", ("jax_md",), _molecules),
    Program("blackjax:hmc", "sampler", "blackjax", ("blackjax",), _hmc),
    Program("blackjax:mala", "sampler", "blackjax", ("blackjax",), _mala),
)  # fmt: skip
