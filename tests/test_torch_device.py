"""Islands on devices: whose plans serve tensors where, and how CUDA plans are called by PyTorch."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")  # an extra of its own

from torch import nn  # noqa: E402 - after torch
from torch._subclasses import FakeTensorMode  # noqa: E402 - after torch
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402 - after torch

import autofuse  # noqa: E402 - after torch
from autofuse import spec, xp  # noqa: E402 - after torch
from autofuse.backends.cuda.build import CudaArtifact  # noqa: E402 - after torch
from autofuse.backends.cuda.launch import CudaPlan  # noqa: E402 - after torch
from autofuse.devices import DEVICES  # noqa: E402 - after torch
from autofuse.errors import AutofuseError  # noqa: E402 - after torch
from autofuse.interop.torch import device as torch_device  # noqa: E402 - after torch
from autofuse.interop.torch import plans as torch_plans  # noqa: E402 - after torch
from autofuse.interop.torch.backend import islands_of  # noqa: E402 - after torch
from autofuse.interop.torch.call import Port, port_of, tensor_call  # noqa: E402 - after torch
from autofuse.interop.torch.device import (  # noqa: E402 - after torch
    ISLAND_DEVICES,
    Places,
    event_seconds,
)
from autofuse.interop.torch.islands import Cut  # noqa: E402 - after torch
from autofuse.interop.torch.options import options_of  # noqa: E402 - after torch
from autofuse.torch import explain  # noqa: E402 - after torch
from benchmarks.dry import DryDriver, dry_run  # noqa: E402 - after torch
from tests.support.fake_streams import NativeLaunches  # noqa: E402 - after torch

EMULATED = {"device": "cuda-emulated"}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    torch_plans._plans.clear()


# --- where islands are


def cuts(function: Callable[..., Any], *shapes: tuple[str, tuple[int, ...]]) -> Cut:
    """The islands of a function of tensors, fake ones, on devices that need not be here."""
    with FakeTensorMode():
        given = [torch.empty(shape, device=device) for device, shape in shapes]
        gm = make_fx(function)(*given)
    return islands_of(gm, Places(absent=True))


def ranks(found: Cut) -> list[tuple[int, int, int]]:
    return [(i.level, i.rank, len(i.nodes)) for i in found.islands]


def test_tensors_on_cuda_are_islands_of_that_device() -> None:
    found = cuts(lambda x: (x.exp() * x).sin(), ("cuda", (4, 4)))
    assert ranks(found) == [(0, 1, 3)] and not found.left


def test_each_device_has_islands_of_its_own() -> None:
    found = cuts(
        lambda x, y, z: (x.exp() * 2, y.exp() * 2, z.sin() + 1),
        ("cpu", (4,)), ("cuda:1", (4,)), ("cuda:0", (4,)),
    )  # fmt: skip
    assert ranks(found) == [(0, 0, 2), (0, 1, 2), (0, 2, 2)]
    assert {n.meta["val"].device.type for n in found.islands[0].nodes} == {"cpu"}


def test_numbers_on_the_cpu_are_taken_among_tensors_elsewhere() -> None:
    def function(x: Any, s: Any) -> Any:
        scale = s.exp() * 2
        return x * scale + s

    found = cuts(function, ("cuda", (4,)), ("cpu", ()))
    # What is computed on the CPU comes first.
    assert ranks(found) == [(0, 0, 2), (0, 1, 2)] and not found.left
    on_cpu, on_cuda = found.islands
    assert set(on_cpu.outputs) < set(on_cuda.inputs)


def test_what_is_between_devices_is_left_to_torch() -> None:
    def function(x: Any) -> Any:
        return (x.exp() * 2).cpu().sin() + 1

    found = cuts(function, ("cuda", (4,)))
    assert [(one.op, one.reason) for one in found.left] == [
        ("aten._to_copy.default", "it reads cuda:0 and writes cpu")
    ]
    assert ranks(found) == [(0, 1, 2), (1, 0, 2)]
    index = torch.ops.aten.index.Tensor
    indexed = cuts(lambda x, k: index(x, [k.long()]) * 2, ("cuda", (4,)), ("cpu", (3,)))
    assert "it reads cpu and writes cuda:0" in {one.reason for one in indexed.left}


def test_a_device_that_is_not_here_or_not_asked_for_is_said() -> None:
    with FakeTensorMode():
        gm = make_fx(lambda x: x.exp() * 2)(torch.empty(4, device="cuda"))
    if not torch.cuda.is_available():
        reasons = {one.reason for one in islands_of(gm, Places()).left}
        assert all(r.startswith("device 'cuda' cannot be used: ") for r in reasons) and reasons
    (reason,) = {one.reason for one in islands_of(gm, Places("cpu")).left}
    assert reason == "it is on cuda, and islands are on cpu"
    with pytest.raises(AutofuseError, match=r"no tensors on device 'tpu' \(it has on: cpu, "):
        _ = Places("tpu").rows


def test_options_name_devices() -> None:
    with pytest.raises(AutofuseError, match="device is one of auto, cpu, cuda, cuda-emulated, not"):
        options_of(None, {"device": "tpu"})
    with pytest.raises(AutofuseError, match="'cuda-emulated' is never timed"):
        options_of("max-autotune", EMULATED)


# --- explained without the device


@pytest.mark.parametrize("device", ["meta", "cuda"])
def test_tensors_without_memory_are_explained(device: str) -> None:
    def model(x: Any, w: Any) -> Any:
        return torch.softmax(x @ w, -1) * torch.tensor(2.0).exp()

    with FakeTensorMode() if device == "cuda" else torch.no_grad():
        x, w = torch.empty(4, 6, device=device), torch.empty(6, 5, device=device)
    found = explain(model, x, w)
    islands = [island for graph in found.graphs for island in graph.islands]
    wanted = ("cuda", "cuda:0") if device == "cuda" else ("cpu", "cpu")
    assert [(i.device, i.place) for i in islands][-1] == wanted
    assert islands[-1].ops > 1 and islands[-1].kernels
    assert f"on {wanted[1]} (" in str(found)


@pytest.mark.parametrize("device", ["meta", "cuda"])
def test_graphs_come_from_tensors_without_memory(device: str) -> None:
    with FakeTensorMode() if device == "cuda" else torch.no_grad():
        x = torch.empty(4, 6, device=device)
    graph = autofuse.from_torch(lambda x: torch.softmax(x, -1) * 2, x)
    assert [str(t) for t in graph.input_types] == ["f32[4,6]"]


# --- emulated


def small() -> Any:
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))


def test_a_model_runs_by_emulated_cuda_kernels() -> None:
    model, x = small().eval(), torch.rand(4, 6)
    with torch.no_grad():
        compiled = torch.compile(model, backend="autofuse", options=EMULATED)
        torch.testing.assert_close(compiled(x), model(x))
        torch._dynamo.reset()
        (graph,) = explain(model, x, options=EMULATED).graphs
    assert [(i.device, i.place) for i in graph.islands] == [("cuda-emulated", "cpu")]
    assert "kernels on cuda-emulated, cpu (" in str(graph.islands[0])


def test_emulated_training_and_frozen_parameters() -> None:
    model, x = small(), torch.rand(4, 6)
    wanted = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    compiled = torch.compile(model, backend="autofuse", options=EMULATED)
    got = torch.autograd.grad(compiled(x).square().sum(), list(model.parameters()))
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()
    with torch.no_grad():
        frozen = torch.compile(model, backend="autofuse", options={**EMULATED, "freeze": True})
        torch.testing.assert_close(frozen(x), model(x))


# --- CUDA plans on the fake driver, whose kernels are emulated


class TorchDriver(NativeLaunches, DryDriver):
    """Memory of PyTorch's counts as the device's."""

    def __init__(self) -> None:
        super().__init__()
        self.lent: dict[int, int] = {}

    def _memory(self) -> Iterator[tuple[int, int]]:
        yield from super()._memory()
        yield from self.lent.items()


class TorchPlan(CudaPlan):
    """Tells its driver how large the arrays of a call are."""

    def bound_entry(self, stream: Callable[[], int]) -> Any:
        entry, own = super().bound_entry(stream), self.artifact
        driver: Any = self.driver
        places = (*entry.inputs, *range(entry.first_output, entry.first_output + len(own.outputs)))
        types = (*own.binding.free(own.inputs), *own.outputs)

        def issue() -> int:
            driver.lent.clear()
            driver.lent |= {
                entry.table[p] or 0: t.nbytes for p, t in zip(places, types, strict=True)
            }
            return entry.issue()

        return replace(entry, issue=issue)


class Card:
    """A CUDA device as PyTorch would see it, with CPU tensors in the place of its own."""

    def __init__(self) -> None:
        self.driver, self.stream, self.plans = TorchDriver(), 1, list[CudaPlan]()

    def load(self, artifact: CudaArtifact, _: str = "") -> CudaPlan:
        self.plans.append(TorchPlan(artifact, self.driver))
        return self.plans[-1]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    made = Card()
    name = "cuda-emulated"
    row = replace(ISLAND_DEVICES[name], stream=lambda _: lambda: made.stream, alignment=16)
    monkeypatch.setitem(torch_device.ISLAND_DEVICES, name, row)
    with dry_run() as kind:
        DEVICES[name] = replace(kind, backend=replace(kind.backend, load=made.load))
        yield made


def programs() -> tuple[Any, Any]:
    def function(x: Any, y: Any) -> Any:
        # Two kernels at least, with scratch between them.
        z = torch.softmax(x, -1) * y
        return z.flip(0).cumsum(0) / (1 + z.abs().sum(0))

    return function, torch.compile(function, backend="autofuse", options=EMULATED)


def test_launches_follow_the_stream_that_torch_says(card: Card) -> None:
    eager, compiled = programs()
    x, y = torch.rand(8, 16), torch.rand(8, 16)
    torch.testing.assert_close(compiled(x, y), eager(x, y))
    assert not card.driver.failures and set(card.driver.issued) == {1}
    first = len(card.driver.issued)
    card.stream = 2
    torch.testing.assert_close(compiled(y, x), eager(y, x))
    assert set(card.driver.issued[first:]) == {2} and card.driver.issued[0] == 1


def test_new_tensors_in_each_call_need_no_capture(card: Card) -> None:
    eager, compiled = programs()
    compiled(torch.rand(8, 16), torch.rand(8, 16))
    before = card.driver.captures
    kept = []
    for _ in range(5):
        x, y = torch.rand(8, 16), torch.rand(8, 16)
        kept.append((compiled(x, y), eager(x, y)))
        del x, y
        gc.collect()
    # Results are memory of their own, whatever came later.
    for got, want in kept:
        torch.testing.assert_close(got, want)
    assert card.driver.captures == before == 0 and card.driver.updates == 0


def test_tensors_off_the_boundary_are_copied(card: Card) -> None:
    eager, compiled = programs()
    x, y = torch.rand(8, 16), torch.rand(8, 16)
    compiled(x, y)
    off = torch.rand(8 * 16 + 1)[1:].view(8, 16)
    assert off.data_ptr() % 16
    torch.testing.assert_close(compiled(off, y), eager(off, y))
    assert all(address % 16 == 0 for address in card.driver.lent)


def test_a_failure_of_the_driver_is_one_sentence(card: Card) -> None:
    _, compiled = programs()
    x, y = torch.rand(8, 16), torch.rand(8, 16)
    compiled(x, y)
    card.driver.broken = True
    with pytest.raises(AutofuseError, match="the plan failed on cpu with code 719"):
        compiled(x, y)


def test_an_operator_of_a_cuda_plan(card: Card) -> None:
    graph = autofuse.trace(lambda x: {"y": xp.exp(x) * 2}, spec((4, 8)))
    op = autofuse.compile(graph, device="cuda-emulated").torch_op("on_card")
    x = torch.rand(4, 8)
    card.stream = 3
    torch.testing.assert_close(op(x), x.exp() * 2)
    assert card.driver.issued == [3]


def test_a_call_refuses_tensors_of_another_device() -> None:
    graph = autofuse.trace(lambda x: {"y": xp.exp(x) * 2}, spec((4, 8)))
    plan = autofuse.compile(graph, device="cpu")
    place = torch_device.IslandPlace(ISLAND_DEVICES["cpu"])
    elsewhere = replace(place.device, serves="cuda")
    port = Port((4, 8), (8, 1), torch.float32, torch_device_layout(), "cuda:0")
    call = tensor_call(plan.loaded, place._replace(device=elsewhere), [port], [port])
    with pytest.raises(AutofuseError, match="for tensors on cuda:0, not cpu"):
        call(torch.rand(4, 8))


def torch_device_layout() -> Any:
    from autofuse.interop.torch.layout import dense

    return dense((4, 8))


# --- numbers, units, clocks


def test_numbers_are_brought_to_the_device() -> None:
    """A port that is elsewhere, of a row that is CPU memory under another name."""
    graph = autofuse.trace(lambda x, s: {"y": x * s}, spec(4), spec(()))
    plan = autofuse.compile(graph, device="cpu")
    place = torch_device.IslandPlace(ISLAND_DEVICES["cpu"])
    x, s = torch.arange(4.0), torch.tensor(3.0)
    ports = [port_of(t) for t in (x, s)]
    asked: list[str] = []

    def full(*args: Any, device: str, **rest: Any) -> Any:
        asked.append(device)
        return torch.zeros((), **rest) + args[1]

    call = tensor_call(plan.loaded, place, [ports[0], replace(ports[1], device="host")], [ports[0]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "full", full)
        (y,) = call(x, s)
    assert y.tolist() == [0, 3, 6, 9] and asked == ["cpu"]


def test_the_unit_is_the_current_one_in_a_call_where_there_are_several() -> None:
    graph = autofuse.trace(lambda x: {"y": xp.exp(x) * 2}, spec(4))
    plan = autofuse.compile(graph, device="cpu")
    entered: list[int] = []

    class Guard:
        def __init__(self, unit: int) -> None:
            self.unit = unit

        def __enter__(self) -> None:
            entered.append(self.unit)

        def __exit__(self, *_: object) -> None:
            entered.append(-1)

    row = replace(ISLAND_DEVICES["cpu"], on=Guard, units=lambda: 2)
    x = torch.arange(4.0)
    ports = [port_of(x)]
    call = tensor_call(plan.loaded, torch_device.IslandPlace(row), ports, ports)
    np.testing.assert_allclose(call(x)[0].numpy(), 2 * np.exp(x.numpy()), rtol=1e-6)
    assert entered == [0, -1]
    assert torch_device.IslandPlace(replace(row, units=lambda: 1)).guard is None


class FakeCuda:
    """What `event_seconds` asks of torch.cuda."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def current_stream(self) -> FakeCuda:
        return self

    def synchronize(self) -> None:
        self.log.append("idle")

    def Event(self, enable_timing: bool) -> FakeEvent:  # noqa: N802 - torch's name
        assert enable_timing
        return FakeEvent(self.log)


class FakeEvent:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def record(self) -> None:
        self.log.append("record")

    def synchronize(self) -> None:
        self.log.append("wait")

    def elapsed_time(self, other: FakeEvent) -> float:
        return 2.5


def test_times_on_a_gpu_are_those_of_events_on_its_stream() -> None:
    cuda = FakeCuda()
    seconds = event_seconds(lambda: cuda.log.append("call"), cuda)
    assert seconds == pytest.approx(2.5e-3)
    assert cuda.log == ["idle", "record", "call", "record", "wait"]
