"""Kernels written by hand as programs of the CUDA backend: built, checked and timed like a plan.

The reference for zoo:cartpole_naive comes in several variants (threads of a block, steps copied by
the compiler, class of math); the fastest that is right stands for what a person would keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from autofuse.backends.base import Source
from autofuse.backends.cuda.devices import Target
from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.nvrtc import FLAGS
from autofuse.backends.cuda.program import MATH_FLAGS, Argument, CudaProgram, KernelLaunch
from autofuse.graph.types import Graph
from autofuse.kernel.text.dialects import CUDA
from autofuse.peers.types import BenchError
from autofuse.plan.program.schedule import Ref
from autofuse.zoo.cartpole import UNROLL

CARTPOLE = "cartpole_naive"


@dataclass(frozen=True, slots=True)
class Variant:
    """`threads` of a block; `unroll` steps one after another (0: all); `math` as plans have it."""

    threads: int
    unroll: int
    math: str = "strict"

    def __str__(self) -> str:
        steps = f"{self.unroll} steps a turn" if self.unroll else "unrolled"
        return f"{self.threads} threads, {steps}, {self.math} math"


# A roll-out of a few thousand environments leaves most of a GPU idle: small blocks spread it out.
VARIANTS = tuple(
    Variant(threads, unroll, math)
    for threads in (32, 64, 128)
    for unroll in (1, UNROLL, 0)
    for math in MATH_FLAGS
)


def cartpole_program(graph: Graph, steps: int, variant: Variant, target: Target) -> CudaProgram:
    """The roll-out of `graph`, cartpole_naive with `steps` steps, by the kernel written by hand."""
    envs = graph.input_types[1].shape[1]
    macros = {"ENVS": f"{envs}u", "STEPS": f"{steps}u", "UNROLL": str(variant.unroll or steps)}
    path = files("benchmarks").joinpath("reference_kernels/cartpole.cu")
    text = "\n".join(
        [CUDA.prelude, *(f"#define {k} {v}" for k, v in macros.items()), path.read_text("utf-8")]
    )
    source = Source("hand_cartpole", text, (*FLAGS, *MATH_FLAGS[variant.math]))
    shape = Geometry(-(-envs // variant.threads), variant.threads)
    return kernel_program(graph, source, shape, target)


def kernel_program(graph: Graph, source: Source, shape: Geometry, target: Target) -> CudaProgram:
    """One kernel of one's own that takes the inputs of `graph`, then its outputs.

    Raises BenchError where the graph's arrays are not all of its own."""
    if len(set(graph.outputs)) != len(graph.outputs):
        raise BenchError("a kernel writes each output once")
    arguments = tuple(
        Argument(Ref(space, index), type_.dtype, type_.size, space == "out")
        for space, types in (("in", graph.input_types), ("out", graph.output_types))
        for index, type_ in enumerate(types)
    )
    return CudaProgram(
        target=target,
        sources=(source,),
        actions=(KernelLaunch(source.name, shape, arguments),),
        owners=(0,),
        groups=1,
        inputs=graph.input_types,
        outputs=graph.output_types,
        constants=(),
        workspace=0,
        scratch=0,
        trips=0,
    )
