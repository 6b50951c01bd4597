"""The columns of the comparison on a GPU: our plans, a kernel by hand, JAX, PyTorch and CuPy.

All get the same arrays, by DLPack and without a copy, and queue their work on one CuPy stream, so
that events see it. "eager" is a call as a program makes it. "graph" is a captured CUDA graph of
the call, except for JAX, which launches what it likes as CUDA graphs itself: its stream is made to
wait for ours and ours for its results, so that events see the device's time there too.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from autofuse.backends.base import Runnable
from autofuse.backends.cuda.driver import CupyDriver
from autofuse.backends.cuda.launch import MODES
from autofuse.backends.registry import CUDA_BACKEND, Backend
from autofuse.devices import DEVICES, DeviceKind
from autofuse.measure.cuda import CudaDevice
from autofuse.ops.types import TensorType
from autofuse.peers.systems import OURS, first_call, require, source_of, zoo_program
from autofuse.peers.types import Arrays, BenchError, BenchWorkload, PeerProgram
from autofuse.tuning import compile as compile_plan
from autofuse.tuning import tune
from benchmarks.handwritten import CARTPOLE, VARIANTS, cartpole_program
from benchmarks.table import HAND

CUDA_PEERS = ("jax", "torch", "torch_max_autotune", "cupy", "cupy_fuse")
CUDA_COLUMNS = (*OURS, HAND, *CUDA_PEERS)
Issue = Callable[[], Any]
WARM_UPS = 3


class NotApplicableError(BenchError):
    """An implementation that has nothing to say about a workload."""


@dataclass(frozen=True)
class CudaReady:
    """An implementation ready to be timed. `issue` makes, for a mode, what queues one run on the
    current stream and returns its results, which `fetch` turns into host arrays."""

    issue: Callable[[str], Issue]
    fetch: Callable[[Any], Arrays]
    compile_s: float
    tune_s: float | None = None
    kernels: int | None = None
    note: str = ""


class CudaImplementation(Protocol):
    """One column. Raises NotApplicableError for a workload that it leaves out, BenchError or what
    the library raises when it cannot be had. `arrays` are CuPy's."""

    name: str

    def prepare(self, workload: BenchWorkload, arrays: Sequence[Any]) -> CudaReady: ...


def prepare_process() -> None:
    """Set what libraries read when they are imported: no compilation kept on disk, and no library
    takes memory that it does not use."""
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"


class Ours:
    """A plan of ours by name; "best" is tuned for `seconds` first, or (0) the best known."""

    def __init__(
        self, name: str, plan: str, seconds: float, db: str | None, driver: CupyDriver,
        kind: str = "cuda",
    ) -> None:  # fmt: skip
        self.name, self.plan, self.seconds, self.db, self.driver = name, plan, seconds, db, driver
        self.kind = kind

    def prepare(self, workload: BenchWorkload, arrays: Sequence[Any]) -> CudaReady:
        tuned, wanted = None, None if self.plan == "best" else self.plan
        if self.plan == "best" and self.seconds > 0:
            tuned = tune(
                workload.graph, name=source_of(workload), device=self.kind, db=self.db,
                budget_s=self.seconds, cache="cold",
            ).total_s  # fmt: skip
        plans = {
            mode: compile_plan(workload.graph, device=self.kind, db=self.db, plan=wanted, mode=mode)
            for mode in MODES
        }
        outputs = fresh(self.driver, workload.graph.output_types)

        def issue(mode: str) -> Issue:
            plan = plans[mode]

            def run() -> Any:
                plan.run(arrays, outputs)
                return outputs

            return run

        first = plans[MODES[0]]
        note = f"plan {first.origin}" if self.plan == "best" else ""
        kernels = len(first.candidate.plan.groups)
        fetch = partial(downloaded, self.driver)
        return CudaReady(issue, fetch, first.compile_s, tuned, kernels, note)


class Handwritten:
    """The fastest variant of what a person would write, for the one workload it is for."""

    name = HAND

    def __init__(self, device: CudaDevice, backend: Backend = CUDA_BACKEND) -> None:
        self.device, self.backend = device, backend

    def prepare(self, workload: BenchWorkload, arrays: Sequence[Any]) -> CudaReady:
        if workload.zoo != CARTPOLE:
            raise NotApplicableError(f"there is no kernel by hand for {workload.name}")
        driver, target = self.device.driver, self.device.target
        outputs = fresh(driver, workload.graph.output_types)
        found: list[tuple[float, str, float, dict[str, Runnable]]] = []
        for variant in VARIANTS:
            made = cartpole_program(workload.graph, workload.sizes[1], variant, target)
            built = self.backend.build(made)
            plans = {mode: self.backend.load(built.artifact, mode) for mode in MODES}
            us = self._at_best_us(partial(plans["graph"].run, arrays, outputs))
            found.append((us, str(variant), built.compile_s, plans))
        _, chosen, compile_s, best = min(found, key=lambda each: each[0])
        return CudaReady(
            lambda mode: partial(best[mode].run, arrays, outputs),
            partial(downloaded, driver), compile_s, kernels=1, note=f"by hand: {chosen}",
        )  # fmt: skip

    def _at_best_us(self, run: Issue) -> float:
        def issue() -> None:
            run()

        issue()
        stall = partial(self.device.stall, 50.0)
        return min(self.device.timed_us(stall, issue) for _ in range(5))


class Jax:
    """jax.jit on XLA:GPU."""

    name = "jax"

    def __init__(self, stream: Any) -> None:
        require("jax")
        jax: Any = import_module("jax")
        try:
            jax.devices("gpu")
        except RuntimeError as error:
            raise BenchError(f"this JAX has no GPU backend: {_line(error)}") from error
        # Its default on a GPU is TF32; all the others multiply in f32.
        jax.config.update("jax_default_matmul_precision", "highest")
        self.jax, self.stream = jax, stream

    def prepare(self, workload: BenchWorkload, arrays: Sequence[Any]) -> CudaReady:
        from autofuse.peers import programs_jax

        jax = self.jax
        program = zoo_program(programs_jax.program, workload) or workload.jax
        if program is None:
            raise BenchError(f"workload {workload.name} has no JAX program")
        jitted = jax.jit(program)
        take = jax.dlpack.from_dlpack
        inputs = [take(array) for array in arrays]

        def eager() -> Any:
            return jax.block_until_ready(jitted(*inputs))

        def behind() -> Any:
            # Taking an array makes JAX's stream wait for ours; giving one away, ours for JAX's.
            results = tuple(jitted(take(arrays[0]), *inputs[1:]))
            for result in results:
                result.__dlpack__(stream=self.stream.ptr)
            return results

        return CudaReady(
            lambda mode: eager if mode == "eager" else behind,
            lambda results: tuple(np.asarray(r) for r in results),
            first_call(eager),
            note="XLA decides what is launched as a CUDA graph",
        )


class Torch:
    """torch.compile with TorchInductor, in one of its modes."""

    def __init__(self, name: str, mode: str, stream: Any) -> None:
        self.name, self.mode, self.stream = name, mode, stream
        self.torch = torch_on(stream)

    def prepare(self, workload: BenchWorkload, arrays: Sequence[Any]) -> CudaReady:
        from autofuse.peers import programs_torch
        from autofuse.peers.translate import translate

        torch = self.torch
        # It says that caches are off, which is what was asked for.
        warnings.filterwarnings("ignore", module="torch._dynamo.pgo")
        torch._dynamo.reset()  # one workload's recompilations do not count against the next
        torch_on(self.stream)
        compiled = partial(programs_torch.compiled, mode=self.mode)
        program = zoo_program(partial(programs_torch.program, compiled=compiled), workload)
        if program is None:
            program = compiled(translate(workload.graph, torch))
        inputs = [torch.from_dlpack(array) for array in arrays]

        def call() -> Any:
            with torch.inference_mode():
                return program(*inputs)

        def waited() -> None:
            call()
            torch.cuda.synchronize()

        return CudaReady(
            lambda mode: call if mode == "eager" else captured(torch, call),
            lambda results: tuple(r.cpu().numpy() for r in results),
            first_call(waited),
        )


def torch_on(stream: Any) -> Any:
    """PyTorch, whose current stream is `stream` from now on. Raises BenchError without its CUDA."""
    require("torch")
    torch: Any = import_module("torch")
    if not torch.cuda.is_available():
        raise BenchError("this PyTorch has no CUDA")
    torch.cuda.set_stream(torch.cuda.ExternalStream(stream.ptr))
    return torch


def captured(torch: Any, call: Issue) -> Issue:
    """Replays of a graph of `call`, which has run before as often as its compilers may ask."""
    for _ in range(WARM_UPS):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call()

    def replay() -> Any:
        graph.replay()
        return results

    return replay


class CuPy:
    """One CuPy call per operation, or (`fused`) cupy.fuse where everything is elementwise."""

    def __init__(self, name: str, fused: bool, device: CudaDevice) -> None:
        require("cupy")
        self.cupy: Any = import_module("cupy")
        self.name, self.fused, self.device = name, fused, device

    def prepare(self, workload: BenchWorkload, arrays: Sequence[Any]) -> CudaReady:
        program = self._program(workload)

        def call() -> Any:
            return program(*arrays)

        def waited() -> None:
            call()
            self.device.stream.synchronize()

        return CudaReady(
            lambda mode: call if mode == "eager" else self._captured(call),
            partial(downloaded, self.device.driver),
            first_call(waited),
        )

    def _program(self, workload: BenchWorkload) -> PeerProgram:
        from autofuse.peers import programs_numpy
        from benchmarks.fused_cupy import fused_program

        erf = import_module("cupyx.scipy.special").erf
        library = programs_numpy.Library(self.cupy, erf)
        if not workload.zoo:
            raise NotApplicableError(f"workload {workload.name} has no CuPy program")
        if not self.fused:
            return programs_numpy.program(workload.zoo, workload.sizes, library)
        found = fused_program(workload.zoo, library, self.cupy.fuse)
        if found is None:
            raise NotApplicableError(f"{workload.name} is not elementwise: cupy.fuse cannot be all")
        return found

    def _captured(self, call: Issue) -> Issue:
        # A pool of its own: nobody else may be given memory that the graph still writes to, and
        # after warming up on the stream of the capture nothing is allocated any more.
        cupy, driver = self.cupy, self.device.driver
        pool, kept = cupy.cuda.MemoryPool(), []
        side = driver.new_stream()
        self.device.stream.synchronize()
        with cupy.cuda.using_allocator(pool.malloc):
            with side:
                for _ in range(WARM_UPS):
                    call()
            side.synchronize()
            graph = driver.capture(side, (lambda: kept.append(call()),))
        (results,) = kept

        def replay(_memory: Any = pool) -> Any:
            graph.launch(self.device.stream)
            return results

        return replay


def fresh(driver: CupyDriver, types: Sequence[TensorType]) -> tuple[Any, ...]:
    """Device arrays to write results to."""
    return tuple(driver.empty(type_) for type_ in types)


def downloaded(driver: CupyDriver, results: Sequence[Any]) -> Arrays:
    """Host copies of CuPy arrays, made when the current stream has come so far."""
    return tuple(driver.download(result) for result in results)


def _line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")


def cuda_implementations(
    device: CudaDevice, seconds: float, db: str | None, kind: DeviceKind = DEVICES["cuda"]
) -> tuple[list[CudaImplementation], dict[str, str]]:
    """All columns that can be had here, and why the others cannot."""
    driver, stream = device.driver, device.stream
    plans = zip(OURS, ("best", "xla-2022", "unfused"), strict=True)
    makers: dict[str, Callable[[], CudaImplementation]] = {
        name: partial(Ours, name, plan, seconds, db, driver, kind.name) for name, plan in plans
    }
    makers |= {
        HAND: partial(Handwritten, device, kind.backend),
        "jax": partial(Jax, stream),
        "torch": partial(Torch, "torch", "default", stream),
        # Its own CUDA graphs are left out: in graph mode all are captured alike.
        "torch_max_autotune": partial(
            Torch, "torch_max_autotune", "max-autotune-no-cudagraphs", stream
        ),
        "cupy": partial(CuPy, "cupy", False, device),
        "cupy_fuse": partial(CuPy, "cupy_fuse", True, device),
    }
    found: list[CudaImplementation] = []
    missing: dict[str, str] = {}
    for name, make in makers.items():
        try:
            found.append(make())
        except BenchError as error:
            missing[name] = str(error)
    return found, missing
