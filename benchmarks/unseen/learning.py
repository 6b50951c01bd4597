"""Optimisers, evolution strategies, distributions and reinforcement learning: optax, jaxopt,
evosax, distrax, rlax."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.unseen.making import drawn, of_jax
from benchmarks.unseen.types import Made, Program, module


def _updates(name: str, **options: object) -> Made:
    """One update of a small network's parameters by an optimiser of optax."""
    jax, optax = module("jax"), module("optax")
    found = optax.contrib if hasattr(optax.contrib, name) else optax
    optimiser = getattr(found, name)(1e-3, **options)
    sizes = (256, 512, 512, 10)
    weights = {f"w{i}": drawn(a, b) for i, (a, b) in enumerate(pairwise(sizes))}
    state = optimiser.init(weights)

    def run(gradients: Any, state: Any, weights: Any) -> Any:
        updates, new = optimiser.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), new

    return of_jax(run, jax.tree.map(lambda w: 0.1 * w, weights), state, weights)


def _ctc() -> Made:
    """The loss of connectionist temporal classification, 16 sequences of 100 frames."""
    optax = module("optax")
    frames, labels = np.zeros((16, 100), np.float32), np.zeros((16, 20), np.float32)
    names = np.random.default_rng(0).integers(1, 40, (16, 20)).astype(np.int32)
    return of_jax(lambda x: optax.ctc_loss(x, frames, names, labels), drawn(16, 100, 40))


def _logistic() -> Made:
    """Logistic regression by 15 iterations of L-BFGS, 512 rows of 32."""
    jax, jaxopt = module("jax"), module("jaxopt")
    labels = (np.random.default_rng(0).random(512) < 0.5).astype(np.float32)

    def loss(w: Any, x: Any) -> Any:
        return jax.numpy.logaddexp(0.0, -(2 * labels - 1) * (x @ w)).mean() + 1e-3 * (w @ w)

    solver = jaxopt.LBFGS(loss, maxiter=15, tol=1e-9, implicit_diff=False)
    return of_jax(lambda w, x: solver.run(w, x=x).params, 0.1 * drawn(32), drawn(512, 32))


def _lasso() -> Made:
    """The lasso by 50 proximal steps, 256 rows of 64."""
    jax, jaxopt = module("jax"), module("jaxopt")

    def loss(w: Any, x: Any, y: Any) -> Any:
        return 0.5 * jax.numpy.mean((x @ w - y) ** 2)

    solver = jaxopt.ProximalGradient(
        loss, jaxopt.prox.prox_lasso, maxiter=50, stepsize=0.1, tol=0.0, implicit_diff=False
    )

    def run(w: Any, x: Any, y: Any) -> Any:
        return solver.run(w, hyperparams_prox=0.01, x=x, y=y).params

    return of_jax(run, drawn(64), drawn(256, 64), drawn(256))


def _simplex() -> Made:
    """Rows projected onto the simplex."""
    jax, jaxopt = module("jax"), module("jaxopt")
    return of_jax(jax.vmap(jaxopt.projection.projection_simplex), drawn(512, 100))


def _transport() -> Made:
    """Rows and columns projected onto the polytope of transport plans."""
    jaxopt = module("jaxopt")
    sums = (np.full(64, 1 / 64, np.float32), np.full(48, 1 / 48, np.float32))

    def run(costs: Any) -> Any:
        return jaxopt.projection.kl_projection_transport(costs, sums, use_semi_dual=False)

    return of_jax(run, drawn(64, 48))


def _evolution(name: str, population: int = 128, numbers: int = 64) -> Made:
    """A generation of a strategy of evosax: a population asked for, and its fitness told."""
    jax, algorithms = module("jax"), module("evosax.algorithms")
    kind = getattr(algorithms, name)
    key, first = jax.random.PRNGKey(0), drawn(numbers)
    strategy = kind(population_size=population, solution=first)
    parameters = strategy.default_params
    if "Population" in str(kind.__mro__):
        people = drawn(population, numbers)
        state = strategy.init(key, people, (people**2).sum(-1), parameters)
    else:
        state = strategy.init(key, first, parameters)

    def run(key: Any, state: Any) -> Any:
        ask, tell = jax.random.split(key)
        people, state = strategy.ask(ask, state, parameters)
        fitness = jax.numpy.sum(people**2 - 10 * jax.numpy.cos(6.28 * people), -1)
        return strategy.tell(tell, people, fitness, state, parameters)[0]

    return of_jax(run, key, state)


def _mixture() -> Made:
    """Log-probabilities under a mixture of 8 normal distributions of 16 numbers."""
    distrax = module("distrax")

    def run(logits: Any, means: Any, scales: Any, x: Any) -> Any:
        parts = distrax.MultivariateNormalDiag(means, 0.1 + scales**2)
        mixture = distrax.MixtureSameFamily(distrax.Categorical(logits=logits), parts)
        return mixture.log_prob(x)

    return of_jax(run, drawn(8), drawn(8, 16), drawn(8, 16, seed=1), drawn(4096, 16))


def _spline() -> Made:
    """A rational quadratic spline of 8 bins, forward with its Jacobian."""
    distrax = module("distrax")

    def run(parameters: Any, x: Any) -> Any:
        spline = distrax.RationalQuadraticSpline(parameters, range_min=-3.0, range_max=3.0)
        return spline.forward_and_log_det(x)

    return of_jax(run, drawn(2048, 16, 25), drawn(2048, 16))


def _markov() -> Made:
    """Forward and backward passes over a hidden Markov model of 32 states, 200 observations."""
    distrax = module("distrax")

    def run(first: Any, moves: Any, means: Any, seen: Any) -> Any:
        model = distrax.HMM(
            distrax.Categorical(logits=first), distrax.Categorical(logits=moves),
            distrax.Normal(means, 1.0),
        )  # fmt: skip
        return model.forward_backward(seen)

    return of_jax(run, drawn(32), drawn(32, 32), drawn(32, seed=1), drawn(200))


def _vtrace() -> Made:
    """V-trace targets and advantages of 256 trajectories of 80 steps."""
    jax, rlax = module("jax"), module("rlax")

    def run(v: Any, r: Any, rho: Any) -> Any:
        def one(v: Any, r: Any, rho: Any) -> Any:
            discounts = jax.numpy.full_like(r, 0.99)
            return rlax.vtrace_td_error_and_advantage(v[:-1], v[1:], r, discounts, rho)

        return jax.vmap(one)(v, r, jax.numpy.exp(0.1 * rho))

    return of_jax(run, drawn(256, 81), drawn(256, 80), drawn(256, 80, seed=1))


def _categorical() -> Made:
    """The projected distributions of categorical Q-learning, 512 transitions, 51 atoms."""
    jax, rlax = module("jax"), module("rlax")
    atoms = np.linspace(-10, 10, 51, dtype=np.float32)

    def run(now: Any, action: Any, reward: Any, after: Any) -> Any:
        def one(now: Any, action: Any, reward: Any, after: Any) -> Any:
            return rlax.categorical_q_learning(atoms, now, action, reward, 0.99, atoms, after)

        return jax.vmap(one)(now, action, reward, after)

    actions = np.random.default_rng(0).integers(0, 6, 512).astype(np.int32)
    return of_jax(run, drawn(512, 6, 51), actions, drawn(512), drawn(512, 6, 51, seed=1))


def _muzero() -> Made:
    """Rewards as distributions over 601 atoms and back, and lambda-returns."""
    jax, rlax = module("jax"), module("rlax")
    pair = rlax.muzero_pair(-300.0, 300.0, 601, rlax.SIGNED_HYPERBOLIC_PAIR)

    def run(logits: Any, rewards: Any) -> Any:
        values = pair.apply_inv(jax.nn.softmax(logits))
        returns = jax.vmap(rlax.lambda_returns, (0, None, 0, None))(
            rewards, jax.numpy.full(20, 0.99), values, 0.95
        )
        return pair.apply(returns)

    return of_jax(run, drawn(64, 20, 601), drawn(64, 20))


def _program(name: str, kind: str, make: Callable[[], Made], drawn: bool = False) -> Program:
    package = name.partition(":")[0]
    return Program(name, kind, package, (package,), make, drawn)


PROGRAMS = (
    _program("optax:adamw", "optimiser", partial(_updates, "adamw")),
    _program("optax:muon", "optimiser", partial(_updates, "muon")),
    _program("optax:adafactor", "optimiser", partial(_updates, "adafactor")),
    _program("optax:lion", "optimiser", partial(_updates, "lion"), drawn=True),
    _program("optax:sm3", "optimiser", partial(_updates, "sm3"), drawn=True),
    _program("optax:ctc_loss", "loss", _ctc),
    _program("jaxopt:lbfgs", "solver", _logistic),
    _program("jaxopt:lasso", "solver", _lasso),
    _program("jaxopt:simplex", "solver", _simplex),
    _program("jaxopt:transport", "solver", _transport),
    *(_program(f"evosax:{name}", "evolution", partial(_evolution, name))
      for name in ("CMA_ES", "Open_ES", "PSO", "DifferentialEvolution")),
    _program("evosax:SNES", "evolution", partial(_evolution, "SNES"), drawn=True),
    _program("evosax:Sep_CMA_ES", "evolution", partial(_evolution, "Sep_CMA_ES"), drawn=True),
    _program("distrax:mixture", "distribution", _mixture),
    _program("distrax:spline", "distribution", _spline),
    _program("distrax:hmm", "distribution", _markov),
    _program("rlax:vtrace", "learning", _vtrace),
    _program("rlax:categorical", "learning", _categorical),
    _program("rlax:muzero", "learning", _muzero),
)  # fmt: skip
