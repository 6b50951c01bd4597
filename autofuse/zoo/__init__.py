"""The zoo: named workloads, each in a default and a small size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError
from autofuse.zoo import (
    attentions,
    cartpole,
    choices,
    convnets,
    grids,
    kernels,
    networks,
    particles,
    policy,
    products,
    solvers,
    training,
)

SIZES = ("default", "small")


@dataclass(frozen=True)
class ZooEntry:
    """A workload family: `make(*parameters[size])` is its graph."""

    name: str
    make: Callable[..., Graph]
    parameters: dict[str, tuple[object, ...]] = field(hash=False)
    description: str

    @property
    def sizes(self) -> tuple[str, ...]:
        return tuple(self.parameters)

    def builder(self, size: str = "default") -> Graph:
        """The graph of one size; raises AutofuseError for an unknown size."""
        if size not in self.parameters:
            known = ", ".join(self.parameters)
            raise AutofuseError(f"zoo workload {self.name} has no size '{size}' (sizes: {known})")
        return self.make(*self.parameters[size])


def _entry(
    make: Callable[..., Graph],
    default: tuple[object, ...],
    small: tuple[object, ...],
    description: str,
    name: str | None = None,
) -> ZooEntry:
    sizes = dict(zip(SIZES, (default, small), strict=True))
    return ZooEntry(name or make.__name__, make, sizes, description)


_ENTRIES = (
    _entry(kernels.softmax, (4096, 4096), (256, 512), "softmax along rows"),
    _entry(kernels.layer_norm_gelu, (4096, 4096), (256, 512), "layer norm, then gelu"),
    _entry(kernels.rms_norm_residual, (4096, 2048), (128, 512), "residual sum and its RMS norm"),
    _entry(kernels.swiglu, (2048, 4096), (128, 512), "silu of one half times the other half"),
    _entry(kernels.black_scholes, (4_194_304,), (32_768,), "prices of European calls and puts"),
    _entry(
        kernels.adam,
        (kernels.adam_shapes(1408),),
        (kernels.adam_shapes(128),),
        "one Adam step for 16 tensors of different sizes",
        name="adam_16",
    ),
    _entry(networks.mlp, (512, 1024, 4096), (64, 128, 512), "matmul, bias, gelu, matmul"),
    _entry(networks.attention, (16, 512, 64), (4, 64, 32), "causal attention from q, k and v"),
    _entry(networks.transformer_block, (512, 512, 8), (64, 64, 4), "a pre-norm block"),
    _entry(
        cartpole.cartpole_naive, (2048, 100), (256, 10), "random numbers inside, state in one array"
    ),
    _entry(cartpole.cartpole_norng, (2048, 100), (256, 10), "naive, random numbers given"),
    _entry(cartpole.cartpole_noconcat, (2048, 100), (256, 10), "norng, four state arrays"),
    _entry(cartpole.cartpole_unroll10, (2048, 100), (256, 10), "noconcat, ten steps an iteration"),
    _entry(
        policy.cartpole_policy, (2048, 100, 16), (256, 10, 16), "a small network chooses each push"
    ),
    _entry(
        training.mlp_train_step,
        (512, 256, 1024, 64),
        (32, 16, 64, 8),
        "forward, backward and Adam of a two-layer perceptron",
    ),
    _entry(
        convnets.convnet_block, (8, 56, 64), (1, 8, 8), "two convolutions with norms, added to x"
    ),
    _entry(convnets.depthwise_block, (8, 28, 64, 4), (1, 7, 4, 2), "1 x 1, depthwise 3 x 3, 1 x 1"),
    _entry(
        attentions.attention_grouped,
        (16, 4, 512, 64),
        (4, 2, 32, 16),
        "heads share keys and values",
    ),
    _entry(
        attentions.attention_window, (8, 2048, 64, 256), (2, 48, 16, 16), "each place sees a window"
    ),
    _entry(attentions.attention_bias, (8, 512, 64), (2, 32, 16), "scores with a bias"),
    _entry(attentions.decode_step, (16, 2048, 64), (4, 32, 8), "one token over a cache"),
    _entry(
        products.vocabulary_loss, (512, 768, 32_000), (16, 16, 128), "cross-entropy of a vocabulary"
    ),
    _entry(
        products.gated_mlp, (512, 1024, 2816), (16, 32, 48), "silu of one product times another"
    ),
    _entry(products.int8_product, (16, 4096, 4096), (4, 64, 48), "weights of one byte, scaled"),
    _entry(
        products.batched_products, (32, 128, 128, 128), (3, 8, 5, 4), "batches in six axis orders"
    ),
    _entry(grids.jacobi, (512, 100), (18, 4), "Poisson's equation by Jacobi iterations"),
    _entry(grids.gray_scott, (256, 50), (16, 3), "reaction and diffusion of two substances"),
    _entry(grids.shallow_water, (256, 50), (16, 3), "waves in rotating shallow water"),
    _entry(grids.lattice_boltzmann, (256, 10), (8, 2), "a fluid as nine directions a place"),
    _entry(grids.life, (1024, 50, 256), (16, 3, 5), "game of life, cells born at random places"),
    _entry(particles.gravity, (1024,), (24,), "all pairs of bodies attract each other"),
    _entry(particles.deposit, (262_144, 256), (300, 8), "charge of particles added to a grid"),
    _entry(solvers.thomas, (256, 2048), (9, 16), "many tridiagonal systems, row by row"),
    _entry(
        solvers.sparse_product,
        (65_536, 65_536, 1_048_576),
        (20, 16, 200),
        "a matrix in compressed rows times a vector",
    ),
    _entry(solvers.kepler, (262_144, 10), (64, 6), "Kepler's equation by Newton's method"),
    _entry(choices.batched_sort, (1024, 1024), (4, 32), "rows of keys in order, with values"),
    _entry(
        choices.expert_routing, (1024, 256, 16, 160), (24, 8, 4, 10), "each token to two experts"
    ),
    _entry(choices.beam_step, (16, 4, 32_000, 64), (2, 3, 40, 6), "a step of a beam search"),
)
ZOO: dict[str, ZooEntry] = {entry.name: entry for entry in _ENTRIES}


def zoo_graph(name: str, size: str = "default") -> Graph:
    """The graph of one zoo workload; raises AutofuseError for an unknown name or size."""
    if name not in ZOO:
        raise AutofuseError(f"unknown zoo workload '{name}' (known: {', '.join(ZOO)})")
    return ZOO[name].builder(size)
