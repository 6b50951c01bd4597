"""Who computes one contraction: we, OpenBLAS, oneDNN and PyTorch, each bound to arrays beforehand.

What a convolution's library cannot fuse follows in one kernel of ours. PyTorch compiles it whole.
"""

from __future__ import annotations

import ctypes
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, singledispatch
from importlib import import_module
from typing import Any

import numpy as np

from autofuse.backends.aligned import aligned_empty
from autofuse.backends.cpu.blas import blas_pointers
from autofuse.backends.cpu.onednn import OneDnn, OneDnnError, Role, onednn
from autofuse.backends.library import load
from autofuse.devices import device_named, timed_device
from autofuse.graph.types import Graph
from autofuse.peers.systems import first_call, require
from autofuse.peers.types import Arrays, BenchError, BenchWorkload, Implementation, Ready
from autofuse.plan.types import Candidate
from autofuse.simplify import normal_form
from autofuse.tuning import compile as compile_plan
from autofuse.tuning import tune
from autofuse.tuning.plans import FUSED, plan_named
from benchmarks.contraction_cases import Attention, Case, Convolution, Product
from benchmarks.contraction_graphs import rest_graph, with_constants
from benchmarks.onednn import Primitive, convolution, matmul

OURS, OURS_PACKED = "ours", "ours_packed"
_GEMM = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)


@dataclass
class Peer:
    """One column: an implementation of one case."""

    name: str
    make: Callable[[Arrays], Ready]

    def prepare(self, workload: BenchWorkload) -> Ready:
        return self.make(workload.inputs)


@dataclass(frozen=True)
class Libraries:
    """What there is to compare with; None is not installed."""

    onednn: OneDnn | None
    torch: Any


def libraries(threads: int) -> tuple[Libraries, dict[str, str]]:
    """The libraries that are installed, with so many threads, and why others are missing."""
    found: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name, find in (("onednn", onednn), ("torch", partial(_torch, threads))):
        try:
            found[name] = find()
        except (BenchError, OneDnnError) as error:
            missing[name] = str(error)
    return Libraries(found.get("onednn"), found.get("torch")), missing


def _torch(threads: int) -> Any:
    require("torch")
    torch = import_module("torch")
    torch.set_num_threads(threads)
    return torch


# Ours


@dataclass
class Ours:
    """The best plan after `seconds` of tuning, or (0) the best that is known; of the inputs those
    at positions `weights` are constants, bound beforehand."""

    seconds: float
    db: str | None
    name: str = OURS
    weights: tuple[int, ...] = ()

    def prepare(self, workload: BenchWorkload) -> Ready:
        graph, tuned, plan = with_constants(workload.graph, self.weights), None, None
        if self.seconds > 0:
            begun = time.perf_counter()
            plan = tune(graph, name=workload.name, device="cpu", db=self.db,
                        budget_s=self.seconds).best  # fmt: skip
            tuned = time.perf_counter() - begun
        constants = {graph.input_names[k]: workload.inputs[k] for k in self.weights}
        compiled = compile_plan(graph, device="cpu", db=self.db, plan=plan, constants=constants)
        call, outputs = bound(graph, compiled.candidate, workload.inputs)
        return Ready(
            call, lambda _: outputs, compiled.compile_s, tuned,
            len(compiled.candidate.plan.groups), f"plan {compiled.candidate.origin}",
        )  # fmt: skip


def bound(
    graph: Graph, candidate: Candidate, inputs: Sequence[np.ndarray]
) -> tuple[Callable[[], int], Arrays]:
    """A call of a plan on fixed contiguous arrays, as peers have it, and the arrays that it
    writes. Constants are among the inputs, and are bound now."""
    backend = timed_device("cpu").backend
    artifact = backend.build(backend.program(normal_form(graph), candidate)).artifact
    outputs = tuple(aligned_empty(type_) for type_ in artifact.outputs)
    library, binding = load(artifact), artifact.binding
    library.prepare(binding.chosen(inputs))
    return library.bind(binding.free(inputs), outputs), outputs


# Peers


@singledispatch
def peers_of(case: object, libraries: Libraries) -> list[Peer]:
    """Every peer that has what it needs; raises BenchError for a case of no known kind."""
    raise BenchError(f"no peer is known of {case}")


@peers_of.register
def _product_peers(case: Product, libraries: Libraries) -> list[Peer]:
    dnnl = libraries.onednn
    found = [Peer("openblas", partial(_openblas, case))]
    if dnnl is not None:
        found += [
            Peer(name, partial(_onednn_product, case, dnnl, packed))
            for name, packed in (("onednn", False), ("onednn_packed", True))
        ]
    return found


def _openblas(case: Product, inputs: Arrays) -> Ready:
    """SciPy's sgemm; of batches NumPy's matmul, which calls OpenBLAS for each product from C."""
    out = np.empty((case.batch, case.m, case.n)[case.batch == 1 :], np.float32)
    if case.batch > 1:
        a, b = _seen(case, inputs)
        return Ready(lambda: np.matmul(a, b, out=out), lambda _: (out,), 0.0)
    arguments = _gemm_arguments(case, inputs, out)
    addresses = [
        one.ctypes.data if isinstance(one, np.ndarray) else ctypes.addressof(one)
        for one in arguments
    ]
    gemm = _GEMM(blas_pointers()[0])

    def call(_keep: object = arguments) -> None:
        gemm(*addresses)

    return Ready(call, lambda _: (out,), 0.0)


def _gemm_arguments(case: Product, inputs: Arrays, out: np.ndarray) -> tuple[Any, ...]:
    """Of Fortran's gemm, to which a row-major product is the transposed one of swapped operands."""
    a, b = inputs
    trans = (ctypes.c_char(b"NT"[side : side + 1]) for side in (case.trans_b, case.trans_a))
    sizes = (ctypes.c_int(extent) for extent in (case.n, case.m, case.k))
    lda, ldb, ldc = (ctypes.c_int(array.shape[-1]) for array in (a, b, out))
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
    return (*trans, *sizes, one, b, ldb, a, lda, zero, out, ldc)


def _seen(case: Product, inputs: Arrays) -> Arrays:
    """Both operands with the axes of the product, as views."""
    sides = zip(inputs, (case.trans_a, case.trans_b), strict=True)
    return tuple(array.swapaxes(-1, -2) if turned else array for array, turned in sides)


def _onednn_product(case: Product, dnnl: OneDnn, packed: bool, inputs: Arrays) -> Ready:
    a, b = _seen(case, inputs)
    out = np.empty((*a.shape[:-1], case.n), np.float32)
    return _of_primitive(matmul(dnnl, a, b, out, packed=packed))


def _of_primitive(primitive: Primitive) -> Ready:
    note = f"implementation {primitive.implementation}"
    return Ready(primitive, lambda _: (primitive.result(),), 0.0, note=note)


@peers_of.register
def _convolution_peers(case: Convolution, libraries: Libraries) -> list[Peer]:
    """All have their weights in a layout of their own beforehand."""
    found = []
    dnnl = libraries.onednn
    if dnnl is not None:
        found += [
            Peer(f"onednn_{layout}_packed", partial(_onednn_convolution, case, dnnl, layout))
            for layout in ("nchw", "nhwc", "any")
        ]
    if libraries.torch is not None:
        found += [
            Peer(name, partial(_torch_convolution, case, libraries.torch, last))
            for name, last in (("torch_packed", False), ("torch_channels_last_packed", True))
        ]
    return found


def _onednn_convolution(case: Convolution, dnnl: OneDnn, layout: str, inputs: Arrays) -> Ready:
    """Weights lie as oneDNN likes, for "any" the image too; the rest needs plain results."""
    last = layout != "nchw"
    image, kernel, bias, scale, residual = inputs
    size = case.out_size
    lying = (size, size, case.out_channels) if last else (case.out_channels, size, size)
    made = np.empty(lying, np.float32)
    convolve = convolution(
        dnnl, _features_first(image) if last else _moved(image), kernel.transpose(3, 2, 0, 1),
        (made.transpose(2, 0, 1) if last else made)[None], bias=bias, stride=case.stride,
        padding=case.padding, groups=case.groups,
        chosen=(Role.WEIGHTS, Role.SRC)[: 1 + (layout == "any")],
    )  # fmt: skip
    graph = rest_graph(case, last)
    others = (scale, residual) if last else (_moved(scale), _moved(residual))
    rest, (out,) = bound(graph, plan_named(graph, FUSED, device_named("cpu")), (made, *others))

    def call() -> None:
        convolve()
        rest()

    def fetch(_: object) -> Arrays:
        return (out if last else out.transpose(1, 2, 0),)

    note = f"implementation {convolve.implementation}"
    return Ready(call, fetch, 0.0, kernels=2, note=note)


def _features_first(image: np.ndarray) -> np.ndarray:
    """A view of [..., y, x, c] as [..., c, y, x]."""
    return np.moveaxis(image, -1, -3)


def _moved(image: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(_features_first(image))


def _torch_convolution(case: Convolution, torch: Any, last: bool, inputs: Arrays) -> Ready:
    """torch.compile with frozen weights, which Inductor then packs for oneDNN."""
    image, kernel, bias, scale, residual = inputs
    x, scale_, residual_ = (
        torch.from_numpy(_features_first(a) if last else _moved(a))
        for a in (image, scale[None], residual[None])
    )
    layer = _torch_layer(case, torch, kernel, bias)
    layer = layer.to(memory_format=torch.channels_last if last else torch.contiguous_format)
    # It says that caches are off, which is what was asked for.
    warnings.filterwarnings("ignore", module="torch._dynamo.pgo")
    torch._dynamo.reset()  # one case's recompilations do not count against the next
    program = torch.compile(layer, options={"freezing": True}, dynamic=False)

    def call() -> Any:
        with torch.no_grad():
            return program(x, scale_, residual_)

    def fetch(result: Any) -> Arrays:
        return (result[0].permute(1, 2, 0).numpy(),)

    return Ready(call, fetch, first_call(call))


def _torch_layer(case: Convolution, torch: Any, kernel: np.ndarray, bias: np.ndarray) -> Any:
    """The whole case as a module that holds the weights."""
    functional = torch.nn.functional
    silu, gelu = functional.silu, partial(functional.gelu, approximate="tanh")

    class Layer(torch.nn.Module):  # type: ignore[misc]  # torch need not be there
        def __init__(self) -> None:
            super().__init__()
            self.convolve = torch.nn.Conv2d(
                case.channels, case.out_channels, case.kernel, case.stride, case.padding,
                groups=case.groups,
            )  # fmt: skip

        def forward(self, x: Any, scale: Any, residual: Any) -> Any:
            made = self.convolve(x) * scale + residual
            return silu(made) if case.activation == "silu" else gelu(made)

    layer = Layer()
    with torch.no_grad():
        layer.convolve.weight.copy_(torch.from_numpy(kernel.transpose(3, 2, 0, 1)))
        layer.convolve.bias.copy_(torch.from_numpy(bias))
    return layer.eval()


@peers_of.register
def _attention_peers(case: Attention, libraries: Libraries) -> list[Peer]:
    torch = libraries.torch
    return [] if torch is None else [Peer("torch_sdpa", partial(_sdpa, case, torch))]


def _sdpa(case: Attention, torch: Any, inputs: Arrays) -> Ready:
    q, k, v = (torch.from_numpy(array)[None] for array in inputs)
    attend = torch.nn.functional.scaled_dot_product_attention

    def call() -> Any:
        with torch.inference_mode():
            return attend(q, k, v, is_causal=case.causal)

    return Ready(call, lambda result: (result[0].numpy(),), 0.0)


def columns_of(case: Case, ours: Ours, libraries: Libraries) -> list[Implementation]:
    """We, with and without constant weights where a peer packs them too, and every peer."""
    packed = replace(ours, name=OURS_PACKED, weights=(1,))
    weighted = isinstance(case, Product | Convolution)
    return [ours, *[packed] * weighted, *peers_of(case, libraries)]
