"""Products, attention and convolutions of real size on a GPU: our default launch, the launches next
to it, and what vendors' libraries do through PyTorch, all as graphs, in turns and with cold caches.

All must agree with the results in float64, which PyTorch computes on the device (without one NumPy
does), to `TOLERANCE` in the norm.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from autofuse.backends.base import LaunchError
from autofuse.devices import DeviceKind, device_named
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.limits import usable_cores
from autofuse.measure.cuda import CudaDevice
from autofuse.measure.worker.lock import measurement_lock
from autofuse.ops.dtypes import DType
from autofuse.ops.types import AutofuseError
from autofuse.peers.types import BenchError
from benchmarks.dry import measured
from benchmarks.gpu_cases import FAILED, RIGHT, CaseStep, asked
from benchmarks.gpu_classes import Program, SmokeCase, program_cases
from benchmarks.gpu_headlines import HEADLINES, Headline
from benchmarks.gpu_smoke import built_case
from benchmarks.gpu_steps import Context, require_all
from benchmarks.peers_cuda import Issue, captured, downloaded, fresh, torch_on
from benchmarks.run import sentence
from benchmarks.run_cuda import cuda_device, timed_in_turns

# Seconds that a program may take, those of timing it, and the most that compiling may take.
LIMIT_S, TIMING_S, COMPILE_S = 90.0, 3.0, 45.0
# |result - wanted| / |wanted|, by the dtype of the result.
TOLERANCE: Mapping[DType, float] = {DType.BF16: 1e-2, DType.F16: 2e-3, DType.F32: 1e-4}
CASES = CaseStep("headline", "benchmarks.gpu_headline", LIMIT_S)
DEFAULT = "default"


def headline(context: Context, seconds: float) -> Iterator[Mapping[str, Any]]:
    """Times by program and by who computes it. A later call goes on with what was not right."""
    names = list(HEADLINES)
    cases: Mapping[str, Any] = {}
    for cases in CASES.run(context, names, seconds):
        yield {"cases": dict(cases)}
    require_all(names, cases)


@dataclass
class Compared:
    """What of one program can be timed, and what was found out before."""

    issues: dict[str, Issue] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, make: Callable[[], tuple[Issue, Callable[[Any], Any]]],
            wanted: Sequence[np.ndarray], tolerance: float) -> None:  # fmt: skip
        """`make` gives what queues a run and what fetches its results. Raises LaunchError."""
        try:
            issue, fetch = make()
            error = distance(fetch(issue()), wanted)
        except LaunchError:
            raise
        except Exception as failed:  # of a library or of a compiler: the others are timed
            self.failed[name] = sentence(failed)
            return
        if not error <= tolerance:
            self.failed[name] = f"wrong: off by {error:.2g} of the norm"
            return
        self.issues[name], self.errors[name] = issue, error


def distance(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """The largest |found - wanted| / |wanted| of any result, in the Euclidean norm."""
    offs = [
        float(np.linalg.norm(one.astype(np.float64) - exact) / max(norm, 1e-300))
        for one, exact in zip(found, wanted, strict=True)
        for norm in [float(np.linalg.norm(exact))]
    ]
    return float(np.max(offs))  # which keeps what is no number


@dataclass(frozen=True)
class Bench:
    """What programs are timed with: a device, at which size, and PyTorch where it is on it."""

    kind: DeviceKind
    device: CudaDevice
    size: str
    torch: Any | None

    def case(self, name: str) -> dict[str, Any]:
        """The times of one program, in microseconds. Raises LaunchError where the device is
        broken."""
        one, begun = HEADLINES[name], time.perf_counter()
        compared = self.prepared(name, one)
        with measurement_lock(self.kind.timer.unit):
            samples, lost = timed_in_turns(self.device, compared.issues, "graph", TIMING_S)
        times = {n: _spread(values) for n, values in samples.items() if n not in lost and values}
        bad = {"state": FAILED, "error": "nothing could be timed"}
        return {
            **({"state": RIGHT} if times else bad), "flops": one.flops(*one.program.at(self.size)),
            "times": times, "errors": compared.errors, "failed": compared.failed | lost,
            "seconds": round(time.perf_counter() - begun, 1),
        }  # fmt: skip

    def prepared(self, name: str, one: Headline) -> Compared:
        """Everything that is to be timed, checked."""
        graph, torch = one.program.graph(self.size), self.torch
        inputs = random_inputs(graph, 1)
        arrays = tuple(self.device.driver.upload(array) for array in inputs)
        tensors = () if torch is None else tuple(tensor_of(torch, array) for array in inputs)
        wanted = wanted_of(one, graph, inputs, torch, tensors)
        tolerance = max(TOLERANCE.get(type_.dtype, 0.0) for type_ in graph.output_types)
        compared = Compared()
        cases = {name: one.program}
        for label, artifact in built(self.kind, cases, self.size, compared.failed).items():
            ours = partial(_ours, self.kind, self.device, artifact, graph, arrays)
            compared.add(label, ours, wanted, tolerance)
        for label, make in one.contestants().items() if torch is not None else ():
            compared.add(label, partial(_theirs, torch, make, tensors), wanted, tolerance)
        return compared


def _spread(values: Sequence[float]) -> dict[str, float]:
    low, middle, high = (float(q) for q in np.percentile(values, (25, 50, 75)))
    return {"us": middle, "q1_us": low, "q3_us": high, "n": len(values)}


def built(
    kind: DeviceKind, programs: Mapping[str, Program], size: str, failed: dict[str, str]
) -> dict[str, Any]:
    """Artifacts by launch: the default and those next to it that can be built in time."""
    cases = {
        label_of(case): case
        for case in program_cases(kind, size, programs)
        if "mma=none" not in case.name  # tens of times as slow
    }
    pool = ThreadPoolExecutor(usable_cores())
    end = time.perf_counter() + COMPILE_S
    pending = {label: pool.submit(built_case, kind, case) for label, case in cases.items()}
    found = {}
    for label, future in pending.items():
        try:
            found[label] = future.result(timeout=max(0.0, end - time.perf_counter()))
        except (AutofuseError, TimeoutError) as error:
            failed[label] = sentence(error)
    pool.shutdown(wait=False, cancel_futures=True)
    return found


def label_of(case: SmokeCase) -> str:
    """The launch of a case, without its program."""
    return case.name.partition("/")[2].removeprefix("0/")


def _ours(
    kind: DeviceKind, device: CudaDevice, artifact: Any, graph: Graph, arrays: Sequence[Any]
) -> tuple[Issue, Callable[[Any], Any]]:
    plan, outputs = kind.backend.load(artifact, "graph"), fresh(device.driver, graph.output_types)

    def run() -> Any:
        plan.run(arrays, outputs)
        return outputs

    return run, partial(downloaded, device.driver)


# --- PyTorch --------------------------------------------------------------------------------------


def tensor_of(torch: Any, array: np.ndarray) -> Any:
    """The same values on the device; NumPy's own extension types come by way of f32."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype(np.float32)).cuda().to(torch.bfloat16)
    return torch.from_numpy(array).cuda()


def wanted_of(
    one: Headline, graph: Graph, inputs: Sequence[np.ndarray], torch: Any | None,
    tensors: Sequence[Any],
) -> tuple[np.ndarray, ...]:  # fmt: skip
    """Results in float64."""
    if torch is None:
        return tuple(result.astype(np.float64) for result in evaluate(graph, inputs))
    wide = one.exact(torch, *(t.double() if t.is_floating_point() else t for t in tensors))
    return (wide.double().cpu().numpy(),)


def _theirs(
    torch: Any, make: Callable[..., Callable[[], Any]], tensors: Sequence[Any]
) -> tuple[Issue, Callable[[Any], Any]]:
    with torch.inference_mode():
        call = make(torch, *tensors)

    def issue() -> Any:
        with torch.inference_mode():
            return call()

    return captured(torch, issue), lambda result: (result.float().cpu().numpy(),)


# --- the child ------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    """The child: it answers for the programs that it is asked about."""
    given = asked(arguments)
    with measured(given.device):
        kind = device_named(given.device)
        device = cuda_device(kind)
        try:
            torch = torch_on(device.stream)
        except BenchError as error:
            torch = None
            print(f"without PyTorch: {error}", file=sys.stderr)
        with device.stream:
            return given.answer(Bench(kind, device, given.size, torch).case)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
