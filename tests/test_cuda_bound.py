"""A CUDA plan on addresses: launches go to the caller's stream, one after another, by C."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autofuse.backends.base import LaunchError
from autofuse.backends.cuda.launch import CudaPlan
from autofuse.backends.cuda.program import Action, Gemm, LoopAction
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType
from autofuse.plan.program.bound import Binding
from autofuse.plan.program.schedule import Copy, Ref
from tests.support.artifacts import TYPE, N, X, add_one, artifact, launch
from tests.support.bound_calls import call, on
from tests.support.fake_cuda import floats
from tests.support.fake_streams import FAILED, NativeLaunches
from tests.support.gemm_forms import contiguous

TWICE: tuple[Action, ...] = (
    launch("k_add", Ref("in"), Ref("work")),
    Copy(Ref("work"), Ref("work", offset=128), TYPE.nbytes),
    launch("k_add", Ref("work", offset=128), Ref("out")),
)


@pytest.fixture
def driver() -> NativeLaunches:
    return NativeLaunches({"k_add": add_one})


def test_launches_go_to_the_stream_that_is_told(tmp_path: Path, driver: NativeLaunches) -> None:
    streams = [7]
    plan = CudaPlan(artifact(tmp_path, TWICE), driver)
    entry, y = plan.bound_entry(lambda: streams[-1]), np.zeros_like(X)
    assert call(entry, X, y) == 0 and y.tolist() == (X + 2).tolist()
    streams.append(9)
    assert call(entry, X, y) == 0
    assert driver.issued == [7, 7, 7, 9, 9, 9]


def test_no_graph_is_made_for_addresses(tmp_path: Path, driver: NativeLaunches) -> None:
    entry = CudaPlan(artifact(tmp_path), driver).bound_entry(on(5))
    before = driver.captures, len(driver.log)
    for shift in range(20):
        x, y = X + shift, np.zeros_like(X)
        assert call(entry, x, y) == 0 and y.tolist() == (x + 1).tolist()
    assert (driver.captures, driver.updates) == (before[0], 0)
    # Nor is anything allocated, copied or waited for.
    assert set(driver.names()[before[1] :]) == {"launch"}


def test_another_stream_waits_for_the_last_one(tmp_path: Path, driver: NativeLaunches) -> None:
    streams = [1]
    plan = CudaPlan(artifact(tmp_path, TWICE), driver)
    entry, y = plan.bound_entry(lambda: streams[-1]), np.zeros_like(X)
    for stream in (1, 1, 2, 2, 1):
        streams.append(stream)
        call(entry, X, y)
    assert [one for one in driver.log if one[0] == "wait"] == [("wait", 2, 1), ("wait", 1, 2)]
    order = [one[0] for one in driver.log if one[0] in ("launch", "copy", "wait")]
    assert order[:7] == ["launch", "copy", "launch"] * 2 + ["wait"]


def test_calls_by_arrays_and_by_addresses_are_in_order(
    tmp_path: Path, driver: NativeLaunches
) -> None:
    plan = CudaPlan(artifact(tmp_path, TWICE), driver)
    entry, y = plan.bound_entry(on(3)), np.zeros_like(X)
    call(entry, X, y)
    plan.run([X])  # on the driver's current stream, which is 0
    call(entry, X, y)
    assert [one for one in driver.log if one[0] == "wait"] == [("wait", 0, 3), ("wait", 3, 0)]


def test_a_stream_that_is_captured_waits_for_nothing(
    tmp_path: Path, driver: NativeLaunches
) -> None:
    streams = [1]
    plan = CudaPlan(artifact(tmp_path), driver)
    entry, y = plan.bound_entry(lambda: streams[-1]), np.zeros_like(X)
    driver.capturing.add(2)
    for stream in (1, 2, 1):
        streams.append(stream)
        assert call(entry, X, y) == 0
    assert driver.issued == [1, 2, 1] and "wait" not in driver.names()


def test_uploaded_buffers_are_there_before_the_first_launch(
    tmp_path: Path, driver: NativeLaunches
) -> None:
    """The fake driver refuses a stream that uses what another has yet to write."""
    reads_scratch = (launch("k_add", Ref("scratch"), Ref("out")),)
    plan = CudaPlan(artifact(tmp_path, reads_scratch, scratch=TYPE.nbytes), driver)
    y = np.zeros_like(X)
    assert call(plan.bound_entry(on(11)), X, y) == 0, driver.failures
    assert y.tolist() == [1.0] * N


def test_what_is_still_being_written_elsewhere_is_refused(
    tmp_path: Path, driver: NativeLaunches
) -> None:
    """So that the test before this one can fail."""
    entry = CudaPlan(artifact(tmp_path), driver).bound_entry(on(11))
    x, y = driver.upload(X), np.zeros_like(X)
    assert call(entry, x.memory, y) == FAILED
    assert "has yet to write" in str(driver.failures[0])


def test_constants_and_places(tmp_path: Path, driver: NativeLaunches) -> None:
    def add(a: int, b: int, c: int) -> None:
        floats(c, N)[...] = floats(a, N) + floats(b, N)

    driver.kernels["k_add"] = add
    facts = artifact(tmp_path, (launch("k_add", Ref("in", 0), Ref("in", 1), Ref("out")),))
    facts = replace(facts, inputs=(TYPE, TYPE), binding=Binding((0,), (0,)))
    plan = CudaPlan(facts, driver)
    with pytest.raises(LaunchError, match="constants have not been bound"):
        plan.bound_entry(on(0))
    plan.prepare([2 * X])
    entry, y = plan.bound_entry(on(0)), np.zeros_like(X)
    assert len(entry.inputs) == 1 and call(entry, X, y) == 0
    assert y.tolist() == (3 * X).tolist()


def test_loops_are_unrolled_and_move(tmp_path: Path, driver: NativeLaunches) -> None:
    step = TYPE.nbytes
    body = launch("k_add", Ref("work", 0, 0, 0, step), Ref("work", 0, step, 0, step))
    actions = (
        Copy(Ref("in"), Ref("work"), step),
        LoopAction(3, 0, ((body,),)),
        Copy(Ref("work", offset=3 * step), Ref("out"), step),
    )
    entry = CudaPlan(artifact(tmp_path, actions), driver).bound_entry(on(4))
    y = np.zeros_like(X)
    assert call(entry, X, y) == 0 and y.tolist() == (X + 3).tolist()


def test_libraries_are_called_on_the_stream_between_kernels(
    tmp_path: Path, driver: NativeLaunches, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = contiguous(1, 2, 2, 2)
    product = Gemm(form, DType.F32, Ref("in"), Ref("in"), Ref("work"))
    actions = (launch("k_add", Ref("in"), Ref("work")), product,
               launch("k_add", Ref("work"), Ref("out")))  # fmt: skip
    seen: list[int] = []
    uses = driver.library_uses

    def spy(*addresses: int) -> None:
        seen.append(driver.current_stream().ptr)
        uses(*addresses)

    monkeypatch.setattr(driver, "library_uses", spy)
    entry = CudaPlan(artifact(tmp_path, actions), driver).bound_entry(on(6))
    y = np.zeros_like(X)
    before = driver.captures
    assert call(entry, X, y) == 0 and seen == [6] and driver.captures == before
    tail = [one[0] for one in driver.log if one[0] in ("launch", "gemm")]
    assert tail == ["launch", "gemm", "launch"]
    gemm = next(one for one in driver.log if one[0] == "gemm")
    assert gemm[2] == X.ctypes.data


def test_a_plan_stays_loaded_for_its_entry(tmp_path: Path, driver: NativeLaunches) -> None:
    plan = CudaPlan(artifact(tmp_path), driver)
    entry, y = plan.bound_entry(on(0)), np.zeros_like(X)
    assert entry.program is plan
    plan.close()
    with pytest.raises(LaunchError, match="unloaded"):
        call(entry, X, y)


def test_a_refusal_of_the_driver_is_a_code(tmp_path: Path, driver: NativeLaunches) -> None:
    entry = CudaPlan(artifact(tmp_path), driver).bound_entry(on(0))
    driver.broken = True
    assert call(entry, X, np.zeros_like(X)) == FAILED


def test_an_emulated_plan_takes_addresses_too() -> None:
    import autofuse
    from autofuse import spec, xp

    graph = autofuse.trace(lambda x: {"y": xp.exp(x) + 1}, spec(N))
    plan = autofuse.compile(graph, device="cuda-emulated")
    y = np.zeros_like(X)
    assert call(plan.loaded.bound_entry(on(0)), X, y) == 0
    np.testing.assert_allclose(y, np.exp(X) + 1, rtol=1e-5)
    assert ctypes.sizeof(ctypes.c_void_p) * 2 == ctypes.sizeof(plan.loaded.bound_entry(on(0)).table)
    assert TensorType((N,), DType.F32) == TYPE
