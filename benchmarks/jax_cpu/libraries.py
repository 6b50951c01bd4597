"""Programs through the libraries themselves: diffrax, blackjax, equinox, flax, optax."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.jax_cpu.types import LoopCase, LoopProgram, cast, drawn, module

Dtype = np.dtype[Any]


def _diffrax(adaptive: bool, dtype: Dtype) -> LoopCase:
    """Lorenz's equations by Tsit5, of fixed steps or of steps chosen by the error."""
    jax, diffrax = module("jax"), module("diffrax")

    def field(_: Any, y: Any, rates: Any) -> Any:
        return jax.numpy.stack(
            [
                rates[0] * (y[1] - y[0]), y[0] * (rates[1] - y[2]) - y[1],
                y[0] * y[1] - rates[2] * y[2],
            ]
        )  # fmt: skip

    fixed = diffrax.ConstantStepSize()
    chosen = diffrax.PIDController(rtol=1e-6, atol=1e-8) if adaptive else fixed

    def run(rates: Any, start: Any) -> Any:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 1.0, 0.01, start, args=rates,
            stepsize_controller=chosen, max_steps=256,
        ).ys  # fmt: skip

    rates = np.array([10, 28, 8 / 3], dtype)
    return LoopCase(run, (rates, np.array([1, 1, 1], dtype)))


def _blackjax(kind: str, dtype: Dtype) -> LoopCase:
    """A chain of 100 steps on a normal of four correlated numbers."""
    jax, blackjax = module("jax"), module("blackjax")
    options = {"num_integration_steps": 8} if kind == "hmc" else {}

    def density(x: Any) -> Any:
        return -0.5 * (x * x).sum() - 0.2 * (x[1:] * x[:-1]).sum()

    def run(start: Any, key: Any) -> Any:
        scale = jax.numpy.ones(4, start.dtype)
        kernel = getattr(blackjax, kind)(
            density, step_size=0.2, inverse_mass_matrix=scale, **options
        )

        def step(state: Any, key: Any) -> Any:
            new = kernel.step(key, state)[0]
            return new, new.position

        return jax.lax.scan(step, kernel.init(start), jax.random.split(key, 100))[1]

    return LoopCase(run, (drawn(dtype, 4), np.array([0, 3], np.uint32)))


def _equinox_network(dtype: Dtype) -> LoopCase:
    """An oscillator whose force is a network of equinox, 200 steps."""
    jax, equinox = module("jax"), module("equinox")
    network = equinox.nn.MLP(2, 2, 16, 2, activation=jax.nn.tanh, key=jax.random.PRNGKey(0))
    weights, fixed = equinox.partition(network, equinox.is_inexact_array)

    def run(weights: Any, start: Any) -> Any:
        net = equinox.combine(weights, fixed)

        def step(y: Any, _: Any) -> Any:
            new = y + 0.02 * net(y)
            return new, new

        return jax.lax.scan(step, start, None, length=200)[1]

    return LoopCase(run, (cast(weights, dtype), np.array([1, 0], dtype)))


def _equinox_cell(dtype: Dtype) -> LoopCase:
    """A gated cell of equinox of 16 units over 200 inputs."""
    jax, equinox = module("jax"), module("equinox")
    cell = equinox.nn.GRUCell(4, 16, key=jax.random.PRNGKey(1))
    weights, fixed = equinox.partition(cell, equinox.is_inexact_array)

    def run(weights: Any, inputs: Any) -> Any:
        made = equinox.combine(weights, fixed)

        def step(state: Any, x: Any) -> Any:
            new = made(x, state)
            return new, new[0]

        return jax.lax.scan(step, jax.numpy.zeros(16, inputs.dtype), inputs)

    return LoopCase(run, (cast(weights, dtype), drawn(dtype, 200, 4)))


def _flax_cell(dtype: Dtype) -> LoopCase:
    """A recurrent layer of flax: 8 sequences of 100 inputs, an LSTM of 16 units."""
    jax, linen = module("jax"), module("flax.linen")
    inputs = drawn(dtype, 8, 100, 4)
    layer = linen.RNN(linen.OptimizedLSTMCell(16, param_dtype=dtype))
    weights = jax.tree_util.tree_map(np.asarray, layer.init(jax.random.PRNGKey(2), inputs))
    return LoopCase(lambda w, x: layer.apply(w, x), (cast(weights, dtype), inputs))


def _optax_training(dtype: Dtype) -> LoopCase:
    """A network of 16 units trained for 200 steps by Adam, on 32 points."""
    jax, optax = module("jax"), module("optax")
    jnp = jax.numpy
    weights = {"w": drawn(dtype, 2, 16), "b": np.zeros(16, dtype), "v": 0.3 * drawn(dtype, 16)}
    inputs = drawn(dtype, 32, 2)
    optimiser = optax.adam(1e-2)

    def loss(weights: Any, x: Any) -> Any:
        out = jnp.tanh(x @ weights["w"] + weights["b"]) @ weights["v"]
        return ((out - jnp.sin(x[:, 0]) * x[:, 1]) ** 2).mean()

    def run(weights: Any, x: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            weights, memory = state
            value, slope = jax.value_and_grad(loss)(weights, x)
            change, memory = optimiser.update(slope, memory)
            return (optax.apply_updates(weights, change), memory), value

        (found, _), values = jax.lax.scan(
            step, (weights, optimiser.init(weights)), None, length=200
        )
        return found, values

    return LoopCase(run, (weights, inputs))


def _lorenz_fixed(dtype: Dtype) -> LoopCase:
    return _diffrax(False, dtype)


def _lorenz_adaptive(dtype: Dtype) -> LoopCase:
    return _diffrax(True, dtype)


def _hmc(dtype: Dtype) -> LoopCase:
    return _blackjax("hmc", dtype)


def _nuts(dtype: Dtype) -> LoopCase:
    return _blackjax("nuts", dtype)


PROGRAMS = (
    LoopProgram("diffrax_fixed", _lorenz_fixed, "diffrax#615", wide=True, needs=("diffrax",)),
    LoopProgram("diffrax_adaptive", _lorenz_adaptive, "diffrax#615", wide=True,
                needs=("diffrax",)),
    LoopProgram("blackjax_hmc", _hmc, "blackjax#746", wide=True, gradients=False,
                needs=("blackjax",)),
    LoopProgram("blackjax_nuts", _nuts, "blackjax#746", wide=True, gradients=False,
                needs=("blackjax",)),
    LoopProgram("equinox_mlp", _equinox_network, needs=("equinox",)),
    LoopProgram("equinox_gru", _equinox_cell, needs=("equinox",)),
    LoopProgram("flax_lstm", _flax_cell, needs=("flax",)),
    LoopProgram("optax_adam", _optax_training, gradients=False, needs=("optax",)),
)  # fmt: skip
