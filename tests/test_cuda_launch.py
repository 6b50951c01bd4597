"""A CUDA plan on a fake driver: addresses, graphs, arrays used in place, streams, failures."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autofuse.backends.base import LaunchError
from autofuse.backends.cuda.arrays import Arguments, first_overlap
from autofuse.backends.cuda.blas import WORKSPACE_BYTES
from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.launch import KEPT_GRAPHS, CudaPlan
from autofuse.backends.cuda.program import Action, KernelLaunch, LoopAction
from autofuse.backends.library import ArrayError
from autofuse.errors import AutofuseError
from autofuse.plan.program.bound import Binding
from autofuse.plan.program.schedule import Copy, Ref
from tests.support.artifacts import (
    PRODUCT,
    SIMPLE,
    TYPE,
    N,
    X,
    add_one,
    artifact,
    launch,
    on_device,
)
from tests.support.fake_cuda import DeviceArray, FakeDriver, Foreign, Stream, floats


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver({"k_add": add_one})


def test_numpy_in_numpy_out(tmp_path: Path, driver: FakeDriver) -> None:
    (found,) = CudaPlan(artifact(tmp_path), driver).run([X])
    assert isinstance(found, np.ndarray) and found.tolist() == (X + 1).tolist()


@pytest.mark.parametrize("mode", ["graph", "eager"])
@pytest.mark.parametrize("on_host", [True, False])
def test_constants_are_copied_and_prepared_once(
    tmp_path: Path, driver: FakeDriver, mode: str, on_host: bool
) -> None:
    once = (launch("k_add", Ref("in", 1), Ref("held")),)
    call = (launch("k_add", Ref("held"), Ref("out")), launch("k_add", Ref("in", 2), Ref("out", 1)))
    made = replace(
        artifact(tmp_path, call), inputs=(TYPE,) * 3, outputs=(TYPE,) * 2, prepare=once,
        binding=Binding((1, 2), (2,), TYPE.nbytes, 0),
    )  # fmt: skip
    plan = CudaPlan(made, driver, mode)
    with pytest.raises(LaunchError, match="constants have not been bound"):
        plan.run([X])
    w, v = X.copy(), 10 * X
    given = [w, v] if on_host else [on_device(driver, w), on_device(driver, v)]
    plan.prepare(given)
    for array in (w, v) if on_host else (each.memory for each in given):
        array.fill(-1)
    before = driver.names().count("launch")
    for _ in range(2):
        found = plan.run([X])
        assert [f.tolist() for f in found] == [(X + 2).tolist(), (10 * X + 1).tolist()]
    assert (before, driver.names().count("launch")) == (1, 5)
    assert plan.prepared_bytes == 2 * TYPE.nbytes


def test_device_arrays_are_used_in_place(tmp_path: Path, driver: FakeDriver) -> None:
    x = on_device(driver, X)
    (found,) = CudaPlan(artifact(tmp_path), driver).run([x])
    assert isinstance(found, DeviceArray) and found.memory.tolist() == (X + 1).tolist()
    (entry,) = [e for e in driver.log if e[0] == "launch"]
    assert entry[3] == (driver.pointer(x), driver.pointer(found))
    assert "assign" not in driver.names() and "download" not in driver.names()


@pytest.mark.parametrize("where", ["misaligned", "strided"])
def test_an_array_that_does_not_fit_goes_through_a_buffer(
    tmp_path: Path, driver: FakeDriver, where: str
) -> None:
    room = on_device(driver, np.arange(2 * N + 1, dtype=np.float32)).memory
    view = room[1 : N + 1] if where == "misaligned" else room[: 2 * N : 2]
    plan = CudaPlan(artifact(tmp_path), driver)
    for _ in range(2):
        (found,) = plan.run([DeviceArray(view)])
        assert found.memory.tolist() == (view + 1).tolist()
    assert (driver.captures, driver.updates) == (1, 1), "two results are alive"


def graphs_after(plan: CudaPlan, *calls: tuple[DeviceArray, DeviceArray]) -> tuple[int, int]:
    """How many graphs have been made and how many updated, after these calls."""
    driver = plan.driver
    assert isinstance(driver, FakeDriver)
    for number, (source, out) in enumerate(calls):
        source.memory.fill(number)
        plan.run([source], [out])
        assert out.memory.tolist() == [number + 1] * N
    return driver.captures, driver.updates


def test_new_addresses_update_a_graph_and_those_that_come_back_get_one(
    tmp_path: Path, driver: FakeDriver
) -> None:
    plan, out = CudaPlan(artifact(tmp_path), driver), on_device(driver, X)
    x, y, *others = ((on_device(driver, X), out) for _ in range(2 + 2 * KEPT_GRAPHS))
    assert graphs_after(plan, x, x) == (1, 0)
    assert graphs_after(plan, *others) == (1, len(others)), "arrays that are never the same"
    assert graphs_after(plan, x, y) == (2, len(others) + 1), "x had been there, y had not"
    assert graphs_after(plan, x, y, x, y) == (2, len(others) + 1), "now both have their own"
    assert graphs_after(plan, others[0], x, y) == (3, len(others) + 1)
    assert graphs_after(plan, *others[1:], x, y)[0] == KEPT_GRAPHS, "and no more than are kept"
    assert driver.names().count("graph") == driver.names().count("launch")


def test_a_refused_update_is_told_and_another_graph_made(
    tmp_path: Path, driver: FakeDriver
) -> None:
    plan = CudaPlan(artifact(tmp_path), driver)
    x, y, out = (on_device(driver, X) for _ in range(3))
    driver.refuses = True
    assert graphs_after(plan, (x, out)) == (1, 0)
    with pytest.warns(RuntimeWarning, match="stays as it is: a new graph is made"):
        assert graphs_after(plan, (y, out)) == (2, 0)


def test_results_that_were_let_go_are_used_again(tmp_path: Path, driver: FakeDriver) -> None:
    plan, x = CudaPlan(artifact(tmp_path), driver), on_device(driver, X)
    (first,) = plan.run([x])
    (second,) = plan.run([x])
    assert driver.pointer(first) != driver.pointer(second)
    address = driver.pointer(first)
    del first
    gc.collect()
    (third,) = plan.run([x])
    assert driver.pointer(third) == address and driver.captures + driver.updates == 3
    # Another stream must not write what the first may still be reading.
    del third
    gc.collect()
    with Stream(driver, 7):
        (fourth,) = plan.run([x])
    assert driver.pointer(fourth) != address


def test_eager_mode_launches_kernel_by_kernel(tmp_path: Path, driver: FakeDriver) -> None:
    (found,) = CudaPlan(artifact(tmp_path), driver, "eager").run([X])
    assert found.tolist() == (X + 1).tolist()
    assert driver.captures == 0 and "graph" not in driver.names()
    with pytest.raises(AutofuseError, match="unknown mode 'lazy'"):
        CudaPlan(artifact(tmp_path), driver, "lazy")


def test_any_thread_may_call(tmp_path: Path, driver: FakeDriver) -> None:
    plan, x = CudaPlan(artifact(tmp_path), driver), on_device(driver, X)
    with ThreadPoolExecutor(1) as pool:
        (found,) = pool.submit(plan.run, [x]).result()
    assert found.memory.tolist() == (X + 1).tolist()


def test_a_caller_who_captures_gets_our_launches(tmp_path: Path, driver: FakeDriver) -> None:
    plan, stream = CudaPlan(artifact(tmp_path), driver), Stream(driver, 5)
    stream.capturing = []
    with stream:
        plan.run([on_device(driver, X)])
    assert driver.captures == 0 and driver.names().count("launch") == 1


def test_a_call_on_another_stream_waits_for_the_one_before(
    tmp_path: Path, driver: FakeDriver
) -> None:
    plan, x = CudaPlan(artifact(tmp_path), driver), on_device(driver, X)
    for ptr in (3, 3, 4):
        with Stream(driver, ptr):
            plan.run([x])
    assert [e for e in driver.log if e[0] == "wait"] == [("wait", 4, 3)]


def test_buffers_are_filled_before_a_first_call_on_any_stream(
    tmp_path: Path, driver: FakeDriver
) -> None:
    x = on_device(driver, X)
    actions: tuple[Action, ...] = (launch("k_add", Ref("scratch"), Ref("out")),)
    plan = CudaPlan(artifact(tmp_path, actions, scratch=256), driver)
    with Stream(driver, 7):
        (found,) = plan.run([x])
    assert found.memory.tolist() == [1.0] * N


def test_a_stand_in_is_not_filled_while_another_stream_reads_it(
    tmp_path: Path, driver: FakeDriver
) -> None:
    odd = DeviceArray(on_device(driver, np.arange(N + 1, dtype=np.float32)).memory[1:])
    plan = CudaPlan(artifact(tmp_path), driver)
    for ptr in (3, 4):
        with Stream(driver, ptr):
            plan.run([odd])
    order = [n for n in driver.names() if n in ("assign", "wait", "graph")]
    assert order == ["assign", "graph", "wait", "assign", "graph"]


def test_a_loop_reads_its_trip_number_and_alternates_its_state(
    tmp_path: Path, driver: FakeDriver
) -> None:
    trip, state = Ref("trip", stride=4), (Ref("work"), Ref("work", offset=128))
    turns = [(launch("k_add", trip, a, b),) for a, b in (state, state[::-1])]
    slices = Copy(state[0], Ref("out", stride=4), 4)
    actions: tuple[Action, ...] = (LoopAction(3, 0, ((*turns[0], slices), turns[1])),)
    driver.kernels.clear()
    plan = CudaPlan(artifact(tmp_path, actions, trips=3), driver, "eager")
    plan.run([X])
    launches = [e[3] for e in driver.log if e[0] == "launch"]
    assert [a[0] - launches[0][0] for a in launches] == [0, 4, 8]
    assert floats(launches[0][0], 3).view(np.int32).tolist() == [0, 1, 2]
    assert [a[2] - a[1] for a in launches] == [128, -128, 128]
    copies = [e[1] for e in driver.log if e[0] == "copy"]
    assert copies[1] - copies[0] == 8, "iterations 0 and 2"


def test_a_library_runs_once_before_it_is_captured(tmp_path: Path, driver: FakeDriver) -> None:
    plan = CudaPlan(artifact(tmp_path, PRODUCT), driver)
    driver.log.clear()
    plan.run([on_device(driver, X)])
    names = [n for n in driver.names() if n in ("device", "gemm", "synchronize", "graph")]
    assert names == ["device", "gemm", "synchronize", "graph", "gemm"]


def test_every_program_has_a_workspace_for_its_products(tmp_path: Path, driver: FakeDriver) -> None:
    plans = [CudaPlan(artifact(tmp_path, PRODUCT), driver, "eager") for _ in range(2)]
    for plan in plans:
        plan.run([on_device(driver, X)])
    first, second = (entry[-1] for entry in driver.log if entry[0] == "gemm")
    assert abs(first - second) >= WORKSPACE_BYTES, "they may run at the same time"


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([], "has 1 inputs, not 0"),
        ([X.astype(np.float64)], r"input 0 must be .*, not float64\[8\]"),
        ([X[:4]], r"not float32\[4\]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    tmp_path: Path, driver: FakeDriver, inputs: list[np.ndarray], words: str
) -> None:
    with pytest.raises(ArrayError, match=words):
        CudaPlan(artifact(tmp_path), driver).run(inputs)
    assert "launch" not in driver.names()


def test_outputs_must_be_apart_from_inputs(tmp_path: Path, driver: FakeDriver) -> None:
    plan, x = CudaPlan(artifact(tmp_path), driver), on_device(driver, X)
    with pytest.raises(ArrayError, match="shares memory"):
        plan.run([x], [x])
    host = np.zeros(N, np.float32)
    plan.run([x], [host])
    assert host.tolist() == (X + 1).tolist()


def test_blocks_that_wait_for_each_other_must_all_be_there(
    tmp_path: Path, driver: FakeDriver
) -> None:
    x, shape = on_device(driver, X), Geometry(driver.held, 256, cooperative=True)
    arguments = SIMPLE[0].arguments
    made = artifact(tmp_path, (LoopAction(2, 0, ((KernelLaunch("k_add", shape, arguments),), ())),))
    CudaPlan(made, driver).run([x])
    driver.held -= 1
    with pytest.raises(LaunchError, match=r"1056 blocks wait .* the device holds 1055 at once"):
        CudaPlan(made, driver)


def test_an_error_of_the_device_is_one_of_ours(tmp_path: Path, driver: FakeDriver) -> None:
    plan = CudaPlan(artifact(tmp_path), driver)
    driver.broken = True
    with pytest.raises(LaunchError, match="illegal memory access"):
        plan.run([X])


def test_an_unloaded_program_says_so(tmp_path: Path, driver: FakeDriver) -> None:
    plan = CudaPlan(artifact(tmp_path), driver)
    plan.close()
    with pytest.raises(LaunchError, match="unloaded"):
        plan.run([X])


def test_a_missing_cubin_is_a_launch_failure(tmp_path: Path, driver: FakeDriver) -> None:
    found = artifact(tmp_path)
    (tmp_path / "k_add.cubin").unlink()
    with pytest.raises(LaunchError, match="cannot read k_add"):
        CudaPlan(found, driver)


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_borrowed_memory_is_given_back_when_the_device_is_done(
    tmp_path: Path, driver: FakeDriver, mode: str
) -> None:
    plan = CudaPlan(artifact(tmp_path), driver, mode)
    lent, out, own = Foreign(on_device(driver, X).memory), Foreign(X.copy()), on_device(driver, X)
    driver.idle = False
    plan.run([lent], [out])
    gc.collect()
    assert len(lent.views) == len(out.views) == 1, "a kernel may still use them"
    plan.run([own])
    assert len(lent.views) == 1
    driver.idle = True
    plan.run([own])
    gc.collect()
    assert not lent.views and not out.views
    driver.idle = False
    plan.run([lent])
    plan.close()
    gc.collect()
    assert driver.idle and not lent.views, "waited for"


def test_overlaps_are_found_without_comparing_all_with_all(driver: FakeDriver) -> None:
    count = 50
    arguments = Arguments(driver, (TYPE,) * count, (TYPE,) * count)
    given, wanted = ([on_device(driver, X) for _ in range(count)] for _ in range(2))
    asked: list[object] = []
    pointer = driver.pointer
    driver.pointer = lambda array: asked.append(array) or pointer(array)
    arguments.take(given, wanted, driver.current_stream())
    assert len(asked) <= 8 * count
    with pytest.raises(ArrayError, match="output 3 shares memory"):
        arguments.take(given, [*wanted[:3], given[7], *wanted[4:]], driver.current_stream())


def test_a_host_view_reaches_as_far_as_its_elements(tmp_path: Path, driver: FakeDriver) -> None:
    plan, room = CudaPlan(artifact(tmp_path), driver), np.zeros(3 * N, np.float32)
    backwards = room[N::2][::-1]
    plan.run([backwards], [room[:N]])
    for output in (room[1 : N + 1], room[2 * N - 1 : 3 * N - 1]):
        with pytest.raises(ArrayError, match="output 0 shares memory"):
            plan.run([backwards], [output])


@pytest.mark.parametrize(
    ("spans", "shared"),
    [
        ([], None),
        ([(0, 8, -1), (4, 12, -1), (12, 16, 0)], None),
        ([(0, 8, 0), (8, 16, 1), (16, 24, -1)], None),
        ([(0, 8, 0), (7, 16, 1)], 1),
        ([(0, 32, -1), (4, 8, -1), (16, 24, 0)], 0),
        ([(0, 32, 0), (4, 8, -1)], 0),
        ([(0, 32, 2), (32, 40, 1), (39, 40, -1)], 1),
        ([(0, 8, -1), (0, 8, 0)], 0),
        ([(0, 8, 0), (0, 8, -1)], 0),
    ],
)
def test_outputs_that_share_memory(spans: list[tuple[int, int, int]], shared: int | None) -> None:
    assert first_overlap(spans) == shared
