"""Kernels on tensor cores under the settings that come first: what a search begins with, and what a
first hour on a device has to be right about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import autofuse.frontends.array_api as xp
from autofuse import spec, trace
from autofuse.backends.cuda.devices import Target
from autofuse.backends.cuda.program import Unit
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.plan.parameters import MAPS, PINGPONG, Setting
from autofuse.plan.types import LaunchConfig
from benchmarks.sass_attention import AttentionSize, attention_graph
from benchmarks.sass_convolution import LAYERS, Layer, convolution_graph
from benchmarks.sass_tensor import generated, square_product


class TensorKernel(NamedTuple):
    """A graph that is one kernel, and settings that are taken where they are offered."""

    name: str
    graph: Callable[[], Graph]
    wanted: Mapping[str, Setting]


def _product(
    rows: int, columns: int, terms: int, dtype: str = "bf16", turned: bool = False
) -> Graph:
    """gelu-like: a product of which something is made, so that results are computed."""

    def fn(a: Any, b: Any, bias: Any) -> Any:
        right = xp.permute_dims(b, (1, 0)) if turned else b
        return xp.maximum(a @ right + bias, 0.0)

    right = (columns, terms) if turned else (terms, columns)
    given = spec((rows, terms), dtype), spec(right, dtype), spec((columns,), dtype)
    return canonical(trace(fn, *given))


PRODUCTS = (
    (4096, 4096, 4096), (8192, 8192, 8192), (6000, 6000, 6000), (3072, 3072, 3072),
    (5000, 5000, 5000), (2048, 2048, 2048), (1024, 1024, 1024), (4096, 14336, 4096),
    (4096, 4096, 14336), (4096, 4096, 512), (64, 4096, 4096), (128, 4096, 4096),
    (512, 512, 512), (16, 8192, 8192),
)  # fmt: skip


def tensor_kernels(layers: tuple[Layer, ...] = LAYERS) -> Iterator[TensorKernel]:
    """All of them, by name: products, bytes, convolutions and attention, those of boxes and of
    groups that take turns besides."""
    for sizes in PRODUCTS:
        name = "x".join(map(str, sizes))
        yield TensorKernel(f"product {name}", partial(_product, *sizes), {})
    for dtype in ("f16", "f32"):
        yield TensorKernel(f"product {dtype}", partial(_product, 4096, 4096, 4096, dtype), {})
    yield TensorKernel("product turned", partial(_product, 4096, 4096, 4096, turned=True), {})
    for size in (4096, 8192):
        yield TensorKernel(f"square {size}", partial(square_product, size), {})
        yield TensorKernel(f"bytes {size}", partial(square_product, size, "i8"), {})
    for terms in (256, 768, 4096):
        graph = partial(square_product, 4096, "bf16", terms)
        yield TensorKernel(f"turns {terms}", graph, {PINGPONG.name: True})
        yield TensorKernel(f"no turns {terms}", graph, {PINGPONG.name: False})
    for maps in (True, False):
        wanted = {MAPS.name: maps}
        yield TensorKernel(f"boxes {maps}", partial(square_product, 4096), wanted)
        yield TensorKernel(f"boxes {maps}, epilogue", partial(_product, 4096, 4096, 4096), wanted)
    pieces = {MAPS.name: False}
    yield TensorKernel("pieces 5000", partial(_product, 5000, 5000, 5000), pieces)
    yield TensorKernel("pieces 8192", partial(square_product, 8192), pieces)
    for layer in layers:
        name = "x".join(map(str, layer))
        yield TensorKernel(f"convolution {name}", partial(convolution_graph, layer), {})
        yield TensorKernel(
            f"convolution {name}, turns", partial(convolution_graph, layer), {PINGPONG.name: True}
        )
    for depth in (64, 128):
        for causal in (False, True):
            graph = partial(attention_graph, AttentionSize(16, 4096, depth, causal))
            yield TensorKernel(f"attention {depth}{' causal' * causal}", graph, {})


def unit_for(kernel: TensorKernel, target: Target) -> tuple[Unit, LaunchConfig]:
    """Its unit on a device. Raises UnsupportedKernel where the device cannot hold it."""
    return generated(kernel.graph(), target, kernel.wanted)
