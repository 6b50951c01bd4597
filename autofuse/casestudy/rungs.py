"""The ablation steps of the Cartpole case study, all on one key and one initial state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from autofuse.casestudy.columns import Peers
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.peers import programs_case, programs_numpy
from autofuse.peers.types import Arrays, PeerProgram
from autofuse.zoo import cartpole, policy, training
from autofuse.zoo.cartpole import FORCE, RESET, UNROLL

NAIVE, NORNG, NOCONCAT, UNROLLED = (
    "cartpole_naive", "cartpole_norng", "cartpole_noconcat", "cartpole_unroll10",
)  # fmt: skip
LADDER = (NAIVE, NORNG, NOCONCAT, UNROLLED)
POLICY, TRAINING, DRAWING = "cartpole_policy", "mlp_train_step", "drawing"
KEY = np.asarray([2024, 7], np.uint32)
SEED = 0
HIDDEN = 16
# Rows, inputs, hidden units and outputs of the perceptron that is trained.
TRAINED, TRAINED_SMALL = (512, 256, 1024, 64), (32, 16, 64, 8)


@dataclass(frozen=True)
class Rung:
    """A workload of the study. `steps` per call; `wanted` are float64 results by output; `given`
    says that the numbers it uses are drawn by another program, `own` that others draw their own,
    so that their results are compared as distributions."""

    name: str
    graph: Graph
    inputs: Arrays
    steps: int
    wanted: Arrays
    peers: Peers
    given: bool = False
    own: bool = False
    note: str = ""


def initial_state(n_envs: int) -> np.ndarray:
    """f32[4, n_envs] in the range that environments start in."""
    drawn = np.random.default_rng(SEED).uniform(-RESET, RESET, (4, n_envs))
    return np.asarray(drawn, np.float32)


def ladder(n_envs: int, steps: int) -> dict[str, Rung]:
    """The four programs of the paper, and the one that draws the numbers that three are given."""
    state = initial_state(n_envs)
    drawn = drawing(n_envs, steps)
    numbers = tuple(np.asarray(a, np.float32) for a in drawn.wanted)
    wanted = _exact(cartpole.cartpole_naive(n_envs, steps), (KEY, state))
    apart = (*wanted[0], wanted[1])
    found = {
        NAIVE: Rung(
            NAIVE, canonical(cartpole.cartpole_naive(n_envs, steps)), (KEY, state), steps, wanted,
            zoo_peers(NAIVE, (n_envs, steps), steps), own=True,
        ),
        NORNG: Rung(
            NORNG, canonical(cartpole.cartpole_norng(n_envs, steps)), (state, *numbers), steps,
            wanted, zoo_peers(NORNG, (n_envs, steps), steps), given=True,
        ),
    }  # fmt: skip
    for name, make in (
        (NOCONCAT, cartpole.cartpole_noconcat),
        (UNROLLED, cartpole.cartpole_unroll10),
    ):
        trips = steps // UNROLL if name == UNROLLED else steps
        found[name] = Rung(
            name, canonical(make(n_envs, steps)), (*state, *numbers), steps, apart,
            zoo_peers(name, (n_envs, steps), trips), given=True,
        )  # fmt: skip
    return found | {DRAWING: drawn}


def drawing(n_envs: int, steps: int) -> Rung:
    """Actions and resets of every step; other libraries draw theirs by their own generators."""
    graph = canonical(cartpole.drawing(n_envs, steps))
    shapes = (steps, n_envs), (steps, 4, n_envs)
    return Rung(
        DRAWING, graph, (KEY,), steps, _exact(graph, (KEY,)), drawing_peers(*shapes), own=True
    )


def drawing_peers(actions: tuple[int, ...], resets: tuple[int, ...]) -> Peers:
    """Each library's own way to draw all numbers at once."""

    def by_numpy(key: Any) -> Any:
        rng = np.random.default_rng([int(word) for word in key])
        coins = rng.random(actions, np.float32)
        force = np.where(coins < 0.5, np.float32(-FORCE), np.float32(FORCE))
        return force, rng.random(resets, np.float32) * (2 * RESET) - RESET

    def by_jax(key: Any) -> Any:
        import jax

        one, other = jax.random.split(key)
        force = jax.numpy.where(jax.random.uniform(one, actions) < 0.5, -FORCE, FORCE)
        return force, jax.random.uniform(other, resets, minval=-RESET, maxval=RESET)

    def by_torch(compiled: Callable[..., Any]) -> PeerProgram:
        import torch

        def drawn(key: Any) -> Any:
            force = torch.where(torch.rand(actions) < 0.5, -FORCE, FORCE)
            return force, torch.rand(resets) * (2 * RESET) - RESET

        found: PeerProgram = compiled(drawn)
        return found

    return Peers(by_numpy, by_jax, by_torch)


def steered(n_envs: int, steps: int) -> Rung:
    """The simulation with a small network's inference in its step."""
    graph = canonical(policy.cartpole_policy(n_envs, steps, HIDDEN))
    inputs = (KEY, initial_state(n_envs), *random_inputs(graph, SEED)[2:])
    peers = zoo_peers(POLICY, (n_envs, steps, HIDDEN), steps)
    return Rung(POLICY, graph, inputs, steps, _exact(graph, inputs), peers, own=True)


def trained(sizes: tuple[int, ...]) -> Rung:
    """A training step: by jax.grad through the jaxpr front end where jax is installed."""
    written = canonical(training.mlp_train_step(*sizes))
    inputs, note = random_inputs(written, SEED), "gradients written by hand: jax is not installed"
    graph = written
    if find_spec("jax") is not None:
        from autofuse.frontends.jax.jaxpr import from_jax

        graph = canonical(from_jax(programs_case.jax_train_step, *inputs))
        note = "gradients by jax.grad"
    peers = zoo_peers(TRAINING, sizes, 1)
    return Rung(TRAINING, graph, inputs, 1, _exact(written, inputs), peers, note=note)


def zoo_peers(name: str, sizes: tuple[int, ...], trips: int) -> Peers:
    """The programs of a zoo workload; those of absent libraries are never imported."""

    def by_jax(*arrays: Any) -> Any:
        from autofuse.peers import programs_jax

        return programs_jax.program(name, sizes)(*arrays)

    def by_torch(compiled: Callable[..., Any]) -> PeerProgram:
        from autofuse.peers import programs_torch

        return programs_torch.program(name, sizes, compiled)

    by_numpy = programs_numpy.program(name, sizes)
    return Peers(by_numpy, by_jax, by_torch, trips, loop=name != TRAINING)


def _exact(graph: Graph, inputs: Arrays) -> Arrays:
    return tuple(evaluate(graph, list(inputs)))


def weights() -> dict[str, float]:
    """What part of the searching each ablation step is worth, as shares of their sum, in order."""
    return {NAIVE: 3.5, UNROLLED: 3.5, DRAWING: 1.5, NORNG: 1.2, NOCONCAT: 1.2, POLICY: 4.0,
            TRAINING: 4.0}  # fmt: skip
