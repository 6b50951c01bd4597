"""TVM on the CPU: the zoo's PyTorch programs through its PyTorch front end (Relax), built as they
are or after MetaSchedule has tuned them.

Relax fuses by FuseOps; without tuning its CPU kernels are loops nobody has scheduled. A roll-out is
a Python loop around a compiled step here too.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from autofuse.peers.translate import translate
from autofuse.peers.types import Arrays, BenchWorkload, PeerProgram, Ready


class Tvm:
    """TVM with `trials` MetaSchedule trials per compiled function (0: no tuning).

    Raises BenchError where TVM, or the PyTorch whose programs it takes, is not installed."""

    def __init__(self, threads: int, trials: int = 0) -> None:
        self.name = "tvm_tuned" if trials else "tvm"
        self.threads, self.trials = threads, trials

    def prepare(self, workload: BenchWorkload) -> Ready:
        import torch

        from autofuse.peers import programs_torch

        tvm: Any = import_module("tvm")
        made: list[_Compiled] = []

        def compiled(function: Callable[..., Any]) -> _Compiled:
            made.append(_Compiled(function, self.threads, self.trials))
            return made[-1]

        program: PeerProgram
        if workload.zoo:
            program = programs_torch.program(workload.zoo, workload.sizes, compiled)
        else:
            program = compiled(translate(workload.graph, torch))
        inputs: list[Any] = [torch.tensor(a) for a in workload.inputs]
        if program in made:  # one function: no arrays change hands
            inputs = [tvm.runtime.from_dlpack(a) for a in inputs]
        with torch.inference_mode():
            program(*inputs)
        return Ready(
            call=lambda: program(*inputs),
            fetch=_as_numpy,
            compile_s=sum(one.compile_s for one in made),
            tune_s=sum(one.tune_s for one in made) if self.trials else None,
            note=f"{self.trials} MetaSchedule trials" if self.trials else "",
        )


class _Compiled:
    """A function of torch tensors, compiled for the shapes of its first call. Gives back tensors of
    the kind it is given, PyTorch's or TVM's."""

    def __init__(self, function: Callable[..., Any], threads: int, trials: int) -> None:
        self.function, self.threads, self.trials = function, threads, trials
        self.main: Callable[..., Sequence[Any]] | None = None
        self.compile_s = self.tune_s = 0.0

    def __call__(self, *args: Any) -> Sequence[Any]:
        import torch
        from torch.utils import _pytree as pytree

        tvm: Any = import_module("tvm")
        leaves = pytree.tree_leaves(args)
        if self.main is None:
            self.main = self._build(pytree.tree_map(torch.from_dlpack, args))
        if not isinstance(leaves[0], torch.Tensor):
            return self.main(*leaves)
        results = self.main(*map(tvm.runtime.from_dlpack, leaves))
        return [torch.from_dlpack(result) for result in results]

    def _build(self, args: tuple[Any, ...]) -> Callable[..., Sequence[Any]]:
        import torch

        tvm: Any = import_module("tvm")
        front: Any = import_module("tvm.relax.frontend.torch")
        begun = time.perf_counter()
        exported = torch.export.export(_module(self.function), args)
        module = front.from_exported_program(exported)
        cpu = tvm.target.codegen.llvm_get_system_cpu()
        target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": self.threads})
        if self.trials:
            module = self._tuned(module, target)
        executable = tvm.compile(module, target=target)
        main: Callable[..., Sequence[Any]] = tvm.relax.VirtualMachine(executable, tvm.cpu())["main"]
        self.compile_s = time.perf_counter() - begun - self.tune_s
        return main

    def _tuned(self, module: Any, target: Any) -> Any:
        pipeline: Any = import_module("tvm.relax.pipeline")
        logging.disable(logging.INFO)  # it prints a table after every step
        folder = tempfile.mkdtemp(prefix="autofuse-tvm-")
        begun = time.perf_counter()
        try:
            tuning = pipeline.static_shape_tuning_pipeline(
                total_trials=self.trials, target=target, work_dir=folder,
                max_trials_per_task=self.trials,
            )  # fmt: skip
            return tuning(module)
        finally:
            logging.disable(logging.NOTSET)
            shutil.rmtree(folder, ignore_errors=True)
            self.tune_s = time.perf_counter() - begun


def _module(function: Callable[..., Any]) -> Any:
    """A module that is nothing but this function: the exporter takes no other."""
    import torch

    made = torch.nn.Module()
    made.forward = function
    return made


def _as_numpy(results: Sequence[Any]) -> Arrays:
    return tuple(r.numpy() for r in results)
