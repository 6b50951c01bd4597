"""The columns of the comparison: our plans, NumPy, jax.jit, torch.compile and TVM.

Inputs are converted once, outside what is timed. A first call less a typical later one counts as
compilation. Peers keep no compilation on disk, so that their seconds are honest.
"""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from autofuse.peers.translate import translate
from autofuse.peers.tvm import Tvm
from autofuse.peers.types import (
    Arrays,
    BenchError,
    BenchWorkload,
    Implementation,
    PeerProgram,
    Ready,
)
from autofuse.tuning import compile as compile_plan
from autofuse.tuning import tune

OURS = ("autofuse", "autofuse_xla_2022", "autofuse_unfused")
PEERS = ("numpy", "jax", "torch", "tvm", "tvm_tuned")


def limit_threads(threads: int) -> None:
    """Give this process `threads` cores, before any library has counted them.

    Every library's pool has a thread per core it may use; the variables tell the same to those
    that ask."""
    cores = sorted(os.sched_getaffinity(0))
    if not 1 <= threads <= len(cores):
        raise BenchError(f"this machine has {len(cores)} cores, so {threads} threads cannot be had")
    os.sched_setaffinity(0, cores[:threads])
    for variable in (
        "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC", "TVM_NUM_THREADS",
    ):  # fmt: skip
        os.environ[variable] = str(threads)
    os.environ["TVM_BIND_THREADS"] = "0"  # bound threads slow down the others
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")


def first_call(call: Callable[[], Any]) -> float:
    """Seconds of the first call beyond those of the second."""
    begun = time.perf_counter()
    call()
    between = time.perf_counter()
    call()
    return max(0.0, (between - begun) - (time.perf_counter() - between))


class Ours:
    """A plan of ours by name; "best" is tuned for `seconds` first, or (0) the best known."""

    def __init__(self, name: str, plan: str, seconds: float, db: str | None) -> None:
        self.name, self.plan, self.seconds, self.db = name, plan, seconds, db

    def prepare(self, workload: BenchWorkload) -> Ready:
        tuned, plan = None, self.plan
        if plan == "best" and self.seconds <= 0:
            compiled = compile_plan(workload.graph, device="cpu", db=self.db)
        elif plan == "best":
            begun = time.perf_counter()
            found = tune(
                workload.graph,
                name=source_of(workload),
                device="cpu",
                db=self.db,
                budget_s=self.seconds,
                cache="cold",  # as all are timed
            )
            tuned, best = time.perf_counter() - begun, found.best
            compiled = compile_plan(workload.graph, device="cpu", db=self.db, plan=best)
        else:
            compiled = compile_plan(workload.graph, device="cpu", db=self.db, plan=plan)
        return Ready(
            call=lambda: compiled(*workload.inputs),
            fetch=tuple,
            compile_s=compiled.compile_s,
            tune_s=tuned,
            kernels=len(compiled.candidate.plan.groups),
            note=f"plan {compiled.candidate.origin}" if plan == "best" else "",
        )


def source_of(workload: BenchWorkload) -> str:
    return f"zoo:{workload.zoo}" if workload.zoo else workload.name


class NumPy:
    """One library call per operation."""

    name = "numpy"

    def prepare(self, workload: BenchWorkload) -> Ready:
        from autofuse.peers import programs_numpy

        program = zoo_program(programs_numpy.program, workload) or translate(workload.graph, np)
        with np.errstate(all="ignore"):
            program(*workload.inputs)
        return Ready(lambda: program(*workload.inputs), _as_numpy, 0.0)


class Jax:
    """jax.jit on XLA:CPU, waiting for the results."""

    name = "jax"

    def __init__(self) -> None:
        require("jax")

    def prepare(self, workload: BenchWorkload) -> Ready:
        jax: Any = import_module("jax")

        from autofuse.peers import programs_jax

        program = zoo_program(programs_jax.program, workload) or workload.jax
        if program is None:
            raise BenchError(f"workload {workload.name} has no JAX program")
        jitted = jax.jit(program)
        inputs = [jax.device_put(a) for a in workload.inputs]

        def call() -> Any:
            return jax.block_until_ready(jitted(*inputs))

        return Ready(call, _as_numpy, first_call(call))


class Torch:
    """torch.compile with TorchInductor on the CPU."""

    name = "torch"

    def __init__(self, threads: int) -> None:
        require("torch")
        if not any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++"))):
            raise BenchError(
                "TorchInductor needs a C++ compiler: on Debian run: apt-get install g++"
            )
        import torch

        torch.set_num_threads(threads)

    def prepare(self, workload: BenchWorkload) -> Ready:
        import torch

        from autofuse.peers import programs_torch

        # It says that caches are off, which is what was asked for.
        warnings.filterwarnings("ignore", module="torch._dynamo.pgo")
        torch._dynamo.reset()  # one workload's recompilations do not count against the next
        program = zoo_program(programs_torch.program, workload)
        if program is None:
            program = programs_torch.compiled(translate(workload.graph, torch))
        inputs = [torch.tensor(a) for a in workload.inputs]

        def call() -> Any:
            with torch.inference_mode():
                return program(*inputs)

        def fetch(results: Sequence[Any]) -> Arrays:
            return tuple(r.numpy() for r in results)

        return Ready(call, fetch, first_call(call))


def zoo_program(
    find: Callable[[str, tuple[Any, ...]], PeerProgram], workload: BenchWorkload
) -> PeerProgram | None:
    return find(workload.zoo, workload.sizes) if workload.zoo else None


def _as_numpy(results: Sequence[Any]) -> Arrays:
    return tuple(np.asarray(r) for r in results)


def require(package: str) -> None:
    if find_spec(package) is None:
        raise BenchError(f"{package} is not installed (pip install 'autofuse[peers]')")


def tvm(threads: int, trials: int) -> Tvm:
    """TVM, whose programs are PyTorch's; tuned if there are `trials`."""
    require("tvm")
    require("torch")
    return Tvm(threads, trials)


def implementations(
    threads: int, seconds: float, db: str | None, trials: int
) -> tuple[list[Implementation], dict[str, str]]:
    """All columns that can be had here, and why the others cannot. `trials`: MetaSchedule trials of
    TVM per workload, 0 for no such column."""
    plans = zip(OURS, ("best", "xla-2022", "unfused"), strict=True)
    makers: dict[str, Callable[[], Implementation]] = {
        name: lambda name=name, plan=plan: Ours(name, plan, seconds, db)  # type: ignore[misc]  # bound defaults
        for name, plan in plans
    }
    makers |= {"numpy": NumPy, "jax": Jax, "torch": lambda: Torch(threads)}
    makers["tvm"] = lambda: tvm(threads, 0)
    if trials:
        makers["tvm_tuned"] = lambda: tvm(threads, trials)
    found: list[Implementation] = []
    missing: dict[str, str] = {}
    for name, make in makers.items():
        try:
            found.append(make())
        except BenchError as error:
            missing[name] = str(error)
    return found, missing
