"""Pictures and layers in JAX: dm_pix, flax, equinox, haiku, jraph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.unseen.making import drawn, of_jax
from benchmarks.unseen.types import Made, Program, module


def _photograph(*shape: int) -> np.ndarray:
    return np.asarray(0.5 + 0.5 * np.tanh(drawn(*shape)), np.float32)


def _blur() -> Made:
    pix = module("dm_pix")
    return of_jax(lambda x: pix.gaussian_blur(x, 2.0, 9), _photograph(4, 128, 128, 3))


def _likeness() -> Made:
    """Structural similarity of four pairs of pictures."""
    pix = module("dm_pix")
    return of_jax(pix.ssim, _photograph(4, 96, 96, 3), _photograph(4, 96, 96, 3) * 0.9)


def _colours() -> Made:
    """Hue, saturation and contrast."""
    pix = module("dm_pix")

    def run(x: Any) -> Any:
        return pix.adjust_contrast(pix.adjust_saturation(pix.adjust_hue(x, 0.1), 1.3), 0.8)

    return of_jax(run, _photograph(8, 128, 128, 3))


def _turned() -> Made:
    """A picture under an affine transformation, by interpolation."""
    pix = module("dm_pix")
    turn = np.array([[0.9, -0.2, 0.1], [0.2, 0.9, 0.0], [0.0, 0.0, 1.0]], np.float32)
    return of_jax(lambda x, m: pix.affine_transform(x, m), _photograph(128, 128, 3), turn)


def _flax(network: Any, *arguments: Any) -> Made:
    """`apply` of a module of flax.linen, with its parameters as arguments."""
    jax = module("jax")
    parameters = jax.jit(network.init)(jax.random.PRNGKey(0), *arguments)
    return of_jax(network.apply, parameters, *arguments)


def _attention() -> Made:
    return _flax(module("flax.linen").MultiHeadDotProductAttention(8), drawn(4, 128, 256))


def _recurrent() -> Made:
    linen = module("flax.linen")
    return _flax(linen.RNN(linen.OptimizedLSTMCell(128)), drawn(16, 50, 64))


def _upsampled() -> Made:
    """A transposed convolution, a normalisation by groups and an activation."""
    linen = module("flax.linen")
    layers = [linen.ConvTranspose(32, (4, 4), (2, 2)), linen.GroupNorm(8), linen.gelu,
              linen.Conv(3, (3, 3))]  # fmt: skip
    return _flax(linen.Sequential(layers), drawn(4, 32, 32, 64))


def _equinox(network: Any, run: Callable[..., Any]) -> tuple[Any, Callable[..., Any]]:
    equinox = module("equinox")
    weights, fixed = equinox.partition(network, equinox.is_inexact_array)
    return weights, lambda weights, *rest: run(equinox.combine(weights, fixed), *rest)


def _gru() -> Made:
    """A gated recurrent unit over 100 steps, 32 sequences at once."""
    jax, nn = module("jax"), module("equinox").nn

    def run(cell: Any, xs: Any) -> Any:
        def one(xs: Any) -> Any:
            def step(h: Any, x: Any) -> Any:
                return cell(x, h), None

            return jax.lax.scan(step, jax.numpy.zeros(64), xs)[0]

        return jax.vmap(one)(xs)

    weights, fn = _equinox(nn.GRUCell(32, 64, key=jax.random.PRNGKey(0)), run)
    return of_jax(fn, weights, drawn(32, 100, 32))


def _volume() -> Made:
    """Two convolutions of volumes."""
    jax, nn = module("jax"), module("equinox").nn
    keys = jax.random.split(jax.random.PRNGKey(0))
    network = nn.Sequential([nn.Conv3d(4, 16, 3, padding=1, key=keys[0]), nn.Lambda(jax.nn.relu),
                             nn.Conv3d(16, 4, 3, padding=1, key=keys[1])])  # fmt: skip
    weights, fn = _equinox(network, lambda net, x: jax.vmap(net)(x))
    return of_jax(fn, weights, drawn(2, 4, 16, 32, 32))


def _training_step() -> Made:
    """The loss of a multilayer perceptron and its gradients."""
    jax, nn = module("jax"), module("equinox").nn

    def run(net: Any, x: Any, y: Any) -> Any:
        return jax.numpy.mean((jax.vmap(net)(x) - y) ** 2)

    weights, fn = _equinox(nn.MLP(32, 8, 128, 3, key=jax.random.PRNGKey(0)), run)
    return of_jax(jax.value_and_grad(fn), weights, drawn(256, 32), drawn(256, 8))


def _haiku(make: Callable[[Any], Any], *arguments: Any) -> Made:
    jax, haiku = module("jax"), module("haiku")
    network = haiku.without_apply_rng(haiku.transform(lambda *xs: make(haiku)(*xs)))
    parameters = network.init(jax.random.PRNGKey(0), *arguments)
    return of_jax(network.apply, parameters, *arguments)


def _mobile() -> Made:
    """MobileNet on a small picture, with the statistics of its batch."""
    jax, haiku = module("jax"), module("haiku")
    network = haiku.without_apply_rng(
        haiku.transform_with_state(lambda x: haiku.nets.MobileNetV1(num_classes=10)(x, True))
    )
    picture = drawn(2, 64, 64, 3)
    parameters, state = jax.jit(network.init)(jax.random.PRNGKey(0), picture)
    return of_jax(lambda p, s, x: network.apply(p, s, x)[0], parameters, state, picture)


def _quantiser() -> Made:
    """The nearest of 512 vectors for each of 1,024."""

    def make(haiku: Any) -> Any:
        return lambda x: haiku.nets.VectorQuantizer(32, 512, 0.25)(x, True)["quantize"]

    return _haiku(make, drawn(1024, 32))


def _graph_network() -> Made:
    """An interaction network on 256 nodes and 1,024 edges."""
    jax, jraph = module("jax"), module("jraph")
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 256, (2, 1024)).astype(np.int32)
    update = jraph.concatenated_args(lambda x: jax.nn.relu(x @ drawn(x.shape[-1], 32) / 8))
    network = jraph.InteractionNetwork(update, update)

    def run(nodes: Any, edges: Any, senders: Any, receivers: Any) -> Any:
        counts = (np.array([256], np.int32), np.array([1024], np.int32))
        found = network(jraph.GraphsTuple(nodes, edges, receivers, senders, None, *counts))
        return found.nodes, found.edges

    return of_jax(run, drawn(256, 32), drawn(1024, 32), ends[0], ends[1])


def _program(name: str, kind: str, package: str, make: Any) -> Program:
    return Program(name, kind, package, (name.partition(":")[0],), make)


PROGRAMS = (
    _program("dm_pix:gaussian_blur", "picture", "dm-pix", _blur),
    _program("dm_pix:ssim", "picture", "dm-pix", _likeness),
    _program("dm_pix:colours", "picture", "dm-pix", _colours),
    _program("dm_pix:affine", "picture", "dm-pix", _turned),
    _program("flax:attention", "layer", "flax", _attention),
    _program("flax:lstm", "layer", "flax", _recurrent),
    _program("flax:upsampling", "layer", "flax", _upsampled),
    _program("equinox:gru", "layer", "equinox", _gru),
    _program("equinox:conv3d", "layer", "equinox", _volume),
    _program("equinox:mlp_gradient", "training", "equinox", _training_step),
    _program("haiku:mobilenet", "network", "dm-haiku", _mobile),
    _program("haiku:quantiser", "layer", "dm-haiku", _quantiser),
    _program("jraph:interaction", "network", "jraph", _graph_network),
)
