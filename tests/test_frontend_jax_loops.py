"""Graphs from jax: scans and loops, and random numbers equal to jax.random bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from autofuse.frontends.jax.jaxpr import from_jax
from autofuse.frontends.json.file import dumps, loads
from tests.support.jax_check import check

X = jnp.linspace(-1.4, 1.9, 12, dtype=jnp.float32).reshape(4, 3)
P = jnp.linspace(0.1, 0.9, 12, dtype=jnp.float32).reshape(4, 3)
KEY = jax.random.PRNGKey(7)


def _step(c: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return c * 0.9 + x, c.sum() + x[0]


LOOPS: dict[str, tuple[Any, ...]] = {
    "carry_and_rows": (lambda x: lax.scan(_step, x[0], x), X),
    "reverse": (lambda x: lax.scan(_step, x[0], x, reverse=True), X),
    "only_rows": (lambda x: lax.scan(lambda c, r: (c, r * 2), 0, x)[1], X),
    "only_carry": (lambda x: lax.scan(_step, x[0], x)[0], X),
    "length": (lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, length=5)[0], X),
    "invariant": (lambda x, y: lax.scan(lambda c, r: (c + y @ r, None), y[:, 0], x)[0], X, P),
    "nested": (
        lambda x: lax.scan(
            lambda c, r: (lax.fori_loop(0, 3, lambda i, v: v * r + i, c), c), x[0], x
        ),
        X,
    ),
    "tree": (
        lambda x: lax.scan(lambda c, r: ((c[1], c[0] + r), {"a": c[0]}), (x[0], x[1]), x),
        X,
    ),
    "unrolled": (lambda x: lax.scan(_step, x[0], x, unroll=2), X),
    "map": (lambda x, y: lax.map(lambda r: (jnp.sin(r), (r @ y).sum()), x), X, P.T),
    "map_reverse": (lambda x: lax.scan(lambda _, r: (None, r - x[0]), None, x, reverse=True)[1], X),
    "map_nested": (
        lambda x: lax.map(lambda r: lax.fori_loop(0, 3, lambda i, v: v * r + i, r), x), X,
    ),
    "map_branches": (
        lambda x: lax.map(lambda r: lax.cond(r[0] > 0, jnp.sin, jnp.cos, r), x), X,
    ),
    "fori": (lambda x: lax.fori_loop(1, 4, lambda i, c: c + x[i] * i, x[0]), X),
    "fori_update": (lambda x: lax.fori_loop(0, 4, lambda i, c: c.at[i].set(c[i - 1]), x), X),
    "while": (
        lambda x: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] / 2), (1, x)),
        X,
    ),
    "while_bound": (
        lambda x: lax.while_loop(
            lambda s: s[0] < s[1], lambda s: (s[0] + 1, s[1], s[2] * 2), (0, 3, x)
        ),
        X,
    ),
    "while_of_data": (
        lambda x: lax.while_loop(lambda s: s.sum() < 9, lambda s: s * 1.5 + 1, x), X,
    ),
    "while_reads": (
        lambda x, y: lax.while_loop(
            lambda s: s[1].sum() * y[0, 0] < 9, lambda s: (s[0], s[1] + s[0] + y[0, 0] ** 2),
            (x, x),
        ),
        X, P,
    ),
    "while_vmapped": (
        jax.vmap(
            lambda r: lax.while_loop(
                lambda s: (s[0] @ s[0] < 30) & (s[1] < 9), lambda s: (s[0] * 1.3 + 0.1, s[1] + 1),
                (r, 0),
            )
        ),
        X,
    ),
    "while_in_scan": (
        lambda x: lax.scan(
            lambda c, r: (lax.while_loop(lambda s: s.sum() < 4, lambda s: s + r * r, c), c), x[0], x
        ),
        X,
    ),
    "while_of_keys": (
        lambda k: lax.while_loop(
            lambda s: s[1] < 0.8,
            lambda s: (jax.random.split(s[0])[0], jax.random.uniform(s[0])),
            (jax.random.wrap_key_data(k), 0.0),
        )[1],
        KEY,
    ),
    "fori_to_a_bound": (
        lambda n, x: lax.fori_loop(0, n, lambda i, c: c + x[0] * i, x[1]), jnp.asarray(3), X,
    ),
    "never": (lambda x: lax.fori_loop(3, 3, lambda i, c: c + 1, x), X),
    "counter_only": (lambda x: lax.fori_loop(0, 3, lambda i, c: c, x), X),
    "grad": (jax.grad(lambda x: lax.scan(_step, x[0], x)[1].sum()), X),
    "vmap": (jax.vmap(lambda r: lax.scan(lambda c, v: (c * v + 1, c), 1.0, r)), X),
    "random": (
        lambda k: lax.scan(lambda k, _: (jax.random.split(k)[0], jax.random.bits(k, (3,))), k,
                           length=4),
        KEY,
    ),
    "typed_keys": (
        lambda k: lax.scan(lambda c, q: (c, jax.random.bits(q, (2,))), 0,
                           jax.random.split(jax.random.wrap_key_data(k), 3))[1],
        KEY,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_loop(name: str) -> None:
    check(*LOOPS[name])


def test_loop_is_one_node_and_counters_are_no_state() -> None:
    graph = check(*LOOPS["fori"])
    (loop,) = [node for node in graph.nodes if node.op == "loop"]
    attrs = dict(loop.attrs)
    assert (attrs["trip"], attrs["carries"]) == (3, 1)
    ops = {node.op for node in attrs["body"].nodes}
    moves = {"broadcast", "reshape", "gather", "dynamic_slice"}
    assert ops <= {"input", "constant", "add", "cast", "mul", *moves}


RANDOM: dict[str, Callable[..., Any]] = {
    "bits": lambda k: jax.random.bits(k, (7,)),
    "bits_scalar": lambda k: jax.random.bits(k),
    "bits_u16": lambda k: jax.random.bits(k, (5, 3), jnp.uint16),
    "bits_u8": lambda k: jax.random.bits(k, (5, 3), jnp.uint8),
    "split": lambda k: jax.random.split(k, 5),
    "split_shape": lambda k: jax.random.split(k, (2, 3)),
    "fold_in": lambda k: jax.random.fold_in(k, 7),
    "fold_in_batch": lambda k: jax.vmap(lambda i: jax.random.fold_in(k, i))(jnp.arange(3)),
    "seed": lambda k: jax.random.PRNGKey(k[0]),
    "seed_known": lambda k: jax.random.bits(jax.random.PRNGKey(-3), (4,)) + k[0],
    "randint": lambda k: jax.random.randint(k, (9,), -5, 100),
    "uniform": lambda k: jax.random.uniform(k, (3, 5)),
    "batch": lambda k: jax.vmap(lambda q: jax.random.bits(q, (3,)))(jax.random.split(k, 4)),
    "two_keys": lambda k: [jax.random.bits(q, (3,)) for q in jax.random.split(k)],
    "legacy": lambda k: jax.random.key_data(jax.random.split(jax.random.wrap_key_data(k), 2)),
}


@pytest.mark.wide(10)
@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("partitionable", [True, False])
def test_random_numbers_are_bit_equal(name: str, partitionable: bool) -> None:
    with jax.threefry_partitionable(partitionable):
        check(RANDOM[name], KEY, exact=True)


@pytest.mark.parametrize("partitionable", [True, False])
def test_wide_random_numbers_are_bit_equal(partitionable: bool) -> None:
    def numbers(k: Any) -> Any:
        one, two = jax.random.split(k)
        return jax.random.bits(one, (5,), "uint64"), jax.random.randint(two, (2, 3), 0, 10**12)

    with jax.enable_x64(True), jax.threefry_partitionable(partitionable):
        check(numbers, KEY, exact=True)
        check(lambda k: jax.random.normal(k, (50,)), KEY)


def test_normal_is_close() -> None:
    check(lambda k: jax.random.normal(k, (500,)), KEY)


def test_small_iterations_that_know_nothing_of_each_other_are_done_at_once() -> None:
    def loops(body: Callable[[jax.Array], Any], x: jax.Array) -> list[str]:
        graph = from_jax(lambda x: lax.map(body, x), x)
        return [node.op for node in graph.nodes if node.op in ("loop", "while")]

    assert loops(jnp.sin, X) == []
    assert loops(jnp.sin, jnp.ones((300, 300), jnp.float32)) == ["loop"]  # saves memory
    assert loops(lambda r: lax.cond(r[0] > 0, jnp.sin, jnp.cos, r), X) == ["loop"]
    assert loops(lambda r: lax.fori_loop(0, 9, lambda _, v: v * 0.5 + 1, r), X) == ["loop"]


def test_rollout_with_random_numbers_and_its_file() -> None:
    """An auto-resetting environment stepped under scan and vmap, keys split inside."""
    import gymnax

    env, parameters = gymnax.make("CartPole-v1")

    def rollout(key: jax.Array) -> Any:
        def step(carry: Any, _: None) -> Any:
            key, state = carry
            key, act, move = jax.random.split(key, 3)
            action = env.action_space(parameters).sample(act)
            obs, state, reward, done, _cut, _info = env.step(move, state, action, parameters)
            return (key, state), (obs, reward, done)

        key, start = jax.random.split(key)
        _, state = env.reset(start, parameters)
        return lax.scan(step, (key, state), None, length=12)

    graph = check(jax.vmap(rollout), jax.random.split(KEY, 3))
    assert sum(node.op == "loop" for node in graph.nodes) == 1
    assert loads(dumps(graph)) == graph


def test_a_choice_by_platform_is_the_one_for_cpus() -> None:
    def run(x: jax.Array) -> jax.Array:
        return lax.platform_dependent(
            x, tpu=lambda x: x * 0, cpu=lambda x: x + 1, default=lambda x: x * 2
        )

    def other(x: jax.Array) -> jax.Array:
        return lax.platform_dependent(x, tpu=lambda x: x * 0, default=lambda x: x * 2)

    check(run, X)
    check(other, X)
    assert not [n for n in from_jax(run, X).nodes if n.op == "while"]
