"""Systems that serve a network, each as its users have it at its best, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autofuse.interop.torch.report import GraphReport
from autofuse.limits import usable_cores
from benchmarks.models.types import Built, missing
from benchmarks.torch_results import floats, reported

Call = Callable[[], list[Tensor]]
UNTUNED, TUNED, EAGER = "untuned", "tuned", "eager"
OURS = (UNTUNED, TUNED)
_OPENVINO = {
    "INFERENCE_NUM_THREADS": usable_cores(), "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
    "INFERENCE_PRECISION_HINT": "f32",
}  # fmt: skip


@dataclass
class Served:
    """A network that systems are to serve: `folder` is for what they read, `budget_s` are seconds
    of tuning, `db` the database of that; `told` is what ours said of its graphs, by system."""

    built: Built
    folder: Path
    budget_s: float
    told: dict[str, list[GraphReport]] = field(default_factory=dict)

    @property
    def last(self) -> list[GraphReport]:
        """What the last of ours told."""
        found = [self.told[name] for name in OURS if name in self.told]
        return found[-1] if found else []

    @cached_property
    def onnx(self) -> Path:
        """The network as PyTorch exports it, written when it is first asked for."""
        path = self.folder / "network.onnx"
        torch.onnx.export(self.built.model, self.built.args, path, dynamo=True, verbose=False)
        return path


@dataclass(frozen=True, slots=True)
class System:
    """`load` gives a call of the network; `exported`: whether it reads a file that is not of its
    making; `needs` are the modules that must be there."""

    load: Callable[[Served], Call]
    exported: bool = False
    needs: tuple[str, ...] = ()

    @property
    def absent(self) -> tuple[str, ...]:
        """The modules that are not here."""
        return missing(self.needs)


def _called(model: Any, served: Served) -> Call:
    return lambda: floats(model(*served.built.args))


def _eager(served: Served) -> Call:
    return _called(served.built.model, served)


def _autofuse(name: str, served: Served) -> Call:
    options: dict[str, Any] = {"freeze": True, "db": str(served.folder / f"{name}.db")}
    if name == TUNED:
        options |= {"max_autotune": True, "budget_s": served.budget_s}
    compiled = torch.compile(served.built.model, backend="autofuse", options=options)
    with reported(served.told.setdefault(name, [])):
        compiled(*served.built.args)
    return _called(compiled, served)


def _inductor(options: Mapping[str, Any], served: Served) -> Call:
    return _called(torch.compile(served.built.model, options=dict(options)), served)


def _onnxruntime(served: Served) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads = usable_cores(), 1
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(served.onnx, options, providers=providers)
    feed = dict(zip((i.name for i in session.get_inputs()),
                    (a.numpy() for a in served.built.args), strict=True))  # fmt: skip
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")

    def call() -> list[Tensor]:
        session.run_with_iobinding(binding)
        return floats([torch.from_numpy(a) for a in binding.copy_outputs_to_cpu()])

    return call


def _openvino(served: Served) -> Call:
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(core.read_model(served.onnx), "CPU", _OPENVINO)
    request = compiled.create_infer_request()
    feed = {i: a.numpy() for i, a in enumerate(served.built.args)}

    def call() -> list[Tensor]:
        found = request.infer(feed, share_inputs=True, share_outputs=True)
        return floats([torch.from_numpy(a) for a in found.values()])

    return call


def _of_ours(name: str) -> System:
    return System(lambda served: _autofuse(name, served))


def _of_inductor(**options: Any) -> System:
    return System(lambda served: _inductor(options, served))


SYSTEMS: Mapping[str, System] = {
    UNTUNED: _of_ours(UNTUNED),
    TUNED: _of_ours(TUNED),
    EAGER: System(_eager),
    "inductor": _of_inductor(),
    "inductor freezing": _of_inductor(freezing=True),
    "inductor autotuned": _of_inductor(freezing=True, max_autotune=True),
    "onnxruntime": System(_onnxruntime, True, ("onnxruntime", "onnxscript")),
    "openvino": System(_openvino, True, ("openvino", "onnxscript")),
}
