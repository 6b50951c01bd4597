"""From a function of JAX, a module of PyTorch or a file of ONNX to a program that can be tuned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError
from autofuse.frontends.jax.jaxpr import from_jax
from autofuse.frontends.onnx.dims import input_shapes
from autofuse.frontends.onnx.package import numpy_dtype
from autofuse.frontends.onnx.read import import_for, read_onnx
from autofuse.frontends.torch.export import from_torch
from autofuse.graph.settled import constant_inputs
from autofuse.graph.types import Graph
from benchmarks.unseen.types import Call, Made, module

SEED = 7
# Dials of Inductor besides its default, by the options that they are.
INDUCTOR: Mapping[str, Mapping[str, bool]] = {
    "freezing": {"freezing": True},
    "max-autotune": {"max_autotune": True},
    "max-autotune freezing": {"max_autotune": True, "freezing": True},
}
# Whole numbers drawn for a model lie below this: they are bytes, or places in a table.
_BELOW = 200


def drawn(*shape: int, seed: int = SEED) -> np.ndarray:
    """f32 numbers of a normal distribution."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def of_jax(run: Callable[..., Any], *arguments: Any) -> Made:
    """`run` on these pytrees of arrays. The peer is `jax.jit` of it."""
    jax = module("jax")
    graph = from_jax(run, *arguments)
    leaves = tuple(np.asarray(_words(jax, leaf)) for leaf in jax.tree.leaves(arguments))

    def by_jit() -> Call:
        jitted, there = jax.jit(run), jax.device_put(arguments)
        return lambda: [
            np.asarray(_words(jax, leaf)) for leaf in jax.tree.leaves(jitted(*there))
        ]  # fmt: skip

    return Made(graph, leaves, peers={"jax.jit": by_jit})


def _words(jax: Any, leaf: Any) -> Any:
    """A typed key as its words, complex numbers as both of their parts."""
    if not hasattr(leaf, "dtype"):
        return leaf
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(leaf)
    if jax.dtypes.issubdtype(leaf.dtype, np.complexfloating):
        return np.stack([np.real(leaf), np.imag(leaf)], axis=-1)
    return leaf


def of_torch(network: Any, *arguments: Any) -> Made:
    """A module with its weights as constants. The peers are eager and Inductor with its dials."""
    torch = module("torch")
    network = network.eval()
    graph = from_torch(network, *arguments, constant_parameters=True)
    held = _held(network)
    constants = {name: held[name] for name in constant_names(graph)}

    def peer(run: Any) -> Call:
        def call() -> Sequence[np.ndarray]:
            with torch.no_grad():
                found = run(*arguments)
            return [each.numpy() for each in _tensors(torch, found)]

        return call

    peers = {"eager": lambda: peer(network), "inductor": lambda: peer(torch.compile(network))}
    for dial, options in INDUCTOR.items():
        peers[f"inductor {dial}"] = partial(_inductor, torch, network, options, peer)
    given = tuple(each.numpy() for each in arguments)
    return Made(graph, given, constants, peers)


def _inductor(
    torch: Any, network: Any, options: Mapping[str, bool], peer: Callable[[Any], Call]
) -> Call:
    return peer(torch.compile(network, options=dict(options)))


def constant_names(graph: Graph) -> tuple[str, ...]:
    """Names of the inputs that are bound once, in order."""
    return tuple(graph.input_names[p] for p in constant_inputs(graph))


def _held(network: Any) -> dict[str, np.ndarray]:
    """Parameters and buffers by the names that a graph gives them."""
    named = (*network.state_dict().items(), *network.named_buffers())
    return {name.replace(".", "_"): tensor.detach().numpy() for name, tensor in named}


def _tensors(torch: Any, found: Any) -> list[Any]:
    leaves = module("torch.utils._pytree").tree_leaves(found)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def of_onnx(package: str, pattern: str, dims: Mapping[str, int], values: Mapping[str, int]) -> Made:
    """A file inside an installed package (the last that fits the pattern) for these sizes; `values`
    are of inputs that the plan knows. The peer is onnxruntime. Raises AutofuseError without a
    file."""
    spec = find_spec(package)  # not imported: that may take packages that the file does not need
    folders = [] if spec is None else spec.submodule_search_locations or ()
    files = sorted(file for folder in folders for file in Path(folder).glob(pattern))
    if not files:
        raise AutofuseError(f"package {package} has no file {pattern}")
    file = read_onnx(files[-1])
    arrays = {
        each.name: _array(
            numpy_dtype(each.type.tensor_type.elem_type), shape, values.get(each.name)
        )
        for each, shape in zip(file.inputs, input_shapes(file.inputs, dims).values(), strict=True)
    }
    decided = [name for name in values if name in arrays]
    imported = import_for(file, arrays, decided)

    def by_onnxruntime() -> Call:
        runtime = module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 2, 3
        session = runtime.InferenceSession(
            str(files[-1]), options, providers=["CPUExecutionProvider"]
        )
        return lambda: list(session.run(None, arrays))

    inputs = tuple(arrays[name] for name in imported.inputs)
    return Made(imported.graph, inputs, imported.weights, {"onnxruntime": by_onnxruntime})


def _array(dtype: np.dtype, shape: Sequence[int], value: int | None) -> np.ndarray:
    rng = np.random.default_rng(SEED)
    if value is not None:
        return np.full(shape, value, dtype)
    if dtype.kind in "iu":
        return rng.integers(0, _BELOW, shape).astype(dtype)
    return np.asarray(0.3 * rng.standard_normal(shape)).astype(dtype)
