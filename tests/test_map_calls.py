"""Tensor maps on the host: what a driver is told, and that a map is always of the present array."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autofuse.backends.aligned import aligned_copy
from autofuse.backends.cuda import maps
from autofuse.backends.cuda.build import CudaArtifact
from autofuse.backends.cuda.driver import CupyDriver
from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.graphs import GraphApi, GraphNode, HeldCall
from autofuse.backends.cuda.launch import CudaPlan
from autofuse.backends.cuda.maps import MISSING, Given, MapApi, TensorMapError, aligned_room
from autofuse.backends.cuda.program import KernelLaunch, cuda_program
from autofuse.backends.emulator.emulator import Emulated
from autofuse.backends.emulator.maps import as_argument, encoded
from autofuse.devices import DEVICES
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.kernel.ir.tensor_map import MAP_BYTES, TensorMap
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion.groups import ordered_plan
from autofuse.plan.parameters import GROUP_MMA, Setting
from autofuse.plan.types import Candidate
from tests.support.artifacts import artifact
from tests.support.bound_calls import call, on
from tests.support.fake_cupy import FakeCupy, Resources, Stream
from tests.support.fake_graphs import FakeGraphs
from tests.support.fake_maps import FakeMaps
from tests.support.fake_streams import FAILED, NativeLaunches
from tests.support.mma_cases import launch, program
from tests.support.tile_programs import whole

FINE = TensorMap(DType.BF16, (100, 50), (208,), (64, 128), offset=32)
SETTINGS: dict[str, Setting] = {
    "impl": "loops", "mma": GROUP_MMA, "threads": 256, "micro": "64x64", "row_block": 64,
    "column_block": 64, "stages": 2, "maps": True,
}  # fmt: skip
GRAPH = program("product", (64, 64, 136), "bf16")
X, W = (aligned_copy(a, t) for a, t in zip(random_inputs(GRAPH, 3), GRAPH.input_types, strict=True))
CANDIDATE = Candidate(ordered_plan(GRAPH, [whole(GRAPH)]), (launch(SETTINGS),))
PROGRAM = cuda_program(GRAPH, CANDIDATE)


@pytest.fixture(scope="module")
def library() -> Emulated:
    return Emulated(*(source.text for source in PROGRAM.sources))


@pytest.fixture
def driver(library: Emulated) -> NativeLaunches:
    """One that runs the kernel in the emulator."""
    (action,) = PROGRAM.actions
    assert isinstance(action, KernelLaunch)
    symbol, arguments = action.symbol, action.arguments
    made = NativeLaunches({symbol: on_addresses(library, action)})
    made.mapped[symbol] = tuple(k for k, a in enumerate(arguments) if a.map is not None)
    made.bytes[symbol] = tuple((a.size * a.dtype.itemsize, a.written) for a in arguments)
    assert len(made.mapped[symbol]) == 2
    return made


def on_addresses(library: Emulated, own: KernelLaunch) -> Callable[..., None]:
    """A kernel as the driver has it."""

    def run(*given: Given) -> None:
        found = []
        for argument, value in zip(own.arguments, given, strict=True):
            if isinstance(value, bytes):
                found.append(as_argument(value))
                continue
            nbytes = argument.size * argument.dtype.itemsize
            memory = memoryview((ctypes.c_uint8 * nbytes).from_address(value))
            found.append(np.frombuffer(memory, argument.dtype.numpy))
        shape = own.geometry
        library.launch(own.symbol, shape.grid, shape.block, found, shape.shared)

    return run


def built(folder: Path) -> CudaArtifact:
    made = artifact(folder, PROGRAM.actions, workspace=PROGRAM.workspace)
    cubins = tuple((source.name, made.cubins[0][1]) for source in PROGRAM.sources)
    return replace(made, cubins=cubins, inputs=PROGRAM.inputs, outputs=PROGRAM.outputs)


def wanted(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    (found,) = evaluate(GRAPH, (x, w))
    return found


def is_right(y: np.ndarray, x: np.ndarray, w: np.ndarray) -> bool:
    return bool(np.allclose(y.astype(np.float64), wanted(x, w), rtol=2e-2, atol=2e-2))


def empty() -> np.ndarray:
    (type_,) = PROGRAM.outputs
    return aligned_copy(np.zeros(type_.shape, type_.dtype.numpy), type_)


def again(x: np.ndarray) -> np.ndarray:
    """An array elsewhere with other numbers."""
    return aligned_copy(np.ascontiguousarray(x[::-1]), GRAPH.input_types[x is W])


# --- plans ----------------------------------------------------------------------------------------


def test_every_call_has_maps_of_its_own_arrays(tmp_path: Path, driver: NativeLaunches) -> None:
    """By graphs: other addresses are other maps, and update the nodes that have them."""
    plan = CudaPlan(built(tmp_path), driver)
    for x, w in ((X, W), (again(X), W), (X, again(W)), (X, W)):
        arrays = driver.upload(x), driver.upload(w)
        (y,) = plan.run(arrays)
        assert is_right(y.memory, x, w)
    assert driver.updates


def test_maps_follow_the_table_of_addresses(tmp_path: Path, driver: NativeLaunches) -> None:
    """By C: a map is changed when its array is another one, and not otherwise."""
    entry, y = CudaPlan(built(tmp_path), driver).bound_entry(on(5)), empty()
    made = driver.maps.library.made
    before = len(made)
    assert call(entry, X, W, y) == 0, driver.failures
    assert is_right(y, X, W) and len(made) == before + 2
    assert call(entry, X, W, y) == 0 and len(made) == before + 2
    other = again(X)
    assert call(entry, other, W, y) == 0 and is_right(y, other, W)
    assert made[before + 2 :] == [other.ctypes.data]


def test_a_stale_map_is_seen(
    tmp_path: Path, driver: NativeLaunches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the test before this one can fail."""
    entry, y = CudaPlan(built(tmp_path), driver).bound_entry(on(5)), empty()
    assert call(entry, X, W, y) == 0
    monkeypatch.setattr(driver, "replace", lambda place, address: 0)
    assert call(entry, again(X), W, y) == FAILED
    assert "no argument of the kernel" in str(driver.failures[0])


def test_a_map_that_is_refused_is_a_code_and_tried_again(
    tmp_path: Path, driver: NativeLaunches, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, y = CudaPlan(built(tmp_path), driver).bound_entry(on(5)), empty()
    with monkeypatch.context() as patch:
        patch.setattr(driver, "replace", lambda place, address: 1)
        assert call(entry, X, W, y) == 1
    assert not driver.issued
    assert call(entry, X, W, y) == 0 and is_right(y, X, W)


def test_the_emulated_device_makes_maps_too() -> None:
    kind = DEVICES["cuda-emulated"]
    assert not kind.backend.lacking(CANDIDATE)
    built_here = kind.backend.build(kind.backend.program(GRAPH, CANDIDATE))
    (y,) = kind.backend.load(built_here.artifact, "").run((X, W))
    assert is_right(y, X, W)


# --- the driver -----------------------------------------------------------------------------------


def test_a_driver_is_told_what_a_map_is() -> None:
    room = aligned_room(1 << 14)
    address = ctypes.addressof(room)
    assert MapApi(FakeMaps()).encoded(FINE, address) == encoded(FINE, address)
    assert MapApi(FakeMaps()).encoded(FINE, address) != encoded(FINE, address + 16)


@pytest.mark.parametrize(
    "wrong",
    [
        {"strides": (200,)}, {"box": (64, 257)}, {"box": (128, 8)}, {"box": (4, 8)},
        {"offset": 8}, {"sizes": (0, 50)}, {"sizes": (100, 1 << 33)}, {"strides": (1 << 40,)},
        {"sizes": (8, 8, 8), "strides": (64, 32), "box": (8, 8, 8)},
    ],
)  # fmt: skip
def test_a_driver_refuses_what_the_predicate_refuses(wrong: dict[str, Any]) -> None:
    bad = replace(FINE, **wrong)
    assert bad.refusal
    with pytest.raises(TensorMapError, match="CUDA error 1"):
        MapApi(FakeMaps()).encoded(bad, 1 << 20)


def test_an_array_at_an_odd_address_has_no_map() -> None:
    with pytest.raises(TensorMapError):
        MapApi(FakeMaps()).encoded(FINE, (1 << 20) + 8)


def test_a_kernel_is_given_the_bytes_of_a_map() -> None:
    fake, cupy = FakeMaps(), FakeCupy(k=Resources())
    driver = CupyDriver(cupy, maps=MapApi(fake))
    made = driver.tensor_map(FINE, 1 << 20)
    assert len(made) == MAP_BYTES
    driver.launch(SimpleNamespace(ptr=0x203), Geometry(7, 96, 1024), (11, made, -12))
    ((*head, given),) = fake.launched
    assert head == [0x203, 7, 1, 1, 96, 1, 1, 1024, 0]
    assert given == [11, made, -12] and not cupy.launched


def test_a_node_of_a_graph_is_given_the_bytes_of_a_map() -> None:
    library, cupy = FakeGraphs(), FakeCupy(k=Resources())
    driver = CupyDriver(cupy, graphs=GraphApi(library), maps=MapApi(FakeMaps()))
    own = SimpleNamespace(ptr=0x102)

    def start(address: int) -> HeldCall:
        made = driver.tensor_map(FINE, address)
        return HeldCall(driver.launch, (own, Geometry(3, 64), (made, 5)))

    graph = driver.graph(Stream(cupy, 7), [GraphNode(start(1 << 20))])
    library.called.clear()
    graph.update([start(1 << 20)])
    assert library.called == []
    graph.update([start(1 << 21)])
    assert library.called == ["cuGraphExecKernelNodeSetParams_v2"]


def test_without_a_driver_a_plan_with_maps_is_lacking_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", nothing)
    maps.map_library.cache_clear()
    try:
        assert not maps.has_tensor_maps() and maps.lacking(CANDIDATE) == MISSING
        assert DEVICES["cuda"].backend.lacking(CANDIDATE) == MISSING
        plain = replace(CANDIDATE, launches=(launch({**SETTINGS, "maps": False}),))
        assert maps.lacking(plain) == ""
    finally:
        maps.map_library.cache_clear()
