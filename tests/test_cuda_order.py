"""A CUDA plan's launches in a graph: those that share no bytes are in no order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.graphs import GraphNode
from autofuse.backends.cuda.launch import CudaPlan
from autofuse.backends.cuda.ordering import places, singles
from autofuse.backends.cuda.program import Action, Gemm, KernelLaunch
from autofuse.ops.dtypes import DType
from autofuse.plan.program.schedule import Ref
from tests.support.artifacts import (
    FORM,
    PRODUCT,
    SHAPE,
    SIMPLE,
    N,
    X,
    add_one,
    artifact,
    launch,
    on_device,
)
from tests.support.fake_cuda import FakeDriver, Stream, floats


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver({"k_add": add_one})


def add_two(left: int, right: int, target: int) -> None:
    floats(target, N)[...] = floats(left, N) + floats(right, N)


WORK = tuple(Ref("work", offset=64 * k) for k in range(3))
# Two kernels that may overlap, one that reads both, and one that takes the place of the first.
BRANCHES: tuple[Action, ...] = (
    launch("k_add", Ref("in"), WORK[0]),
    launch("k_add", Ref("in"), WORK[1]),
    launch("k_two", WORK[0], WORK[1], WORK[2]),
    launch("k_add", WORK[2], WORK[0]),
    launch("k_two", WORK[0], WORK[1], Ref("out")),
)
AFTER = [(), (), (1, 0), (2,), (3,)]


@pytest.fixture
def branches(tmp_path: Path, driver: FakeDriver) -> CudaPlan:
    (tmp_path / "k_two.cubin").write_bytes(b"\x7fELF")
    made = artifact(tmp_path, BRANCHES)
    made = replace(made, cubins=(*made.cubins, ("k_two", tmp_path / "k_two.cubin")))
    driver.kernels["k_two"] = add_two
    driver.bytes = {"k_add": ((4 * N, False), (4 * N, True))}
    driver.bytes["k_two"] = ((4 * N, False), (4 * N, False), (4 * N, True))
    return CudaPlan(made, driver)


def test_launches_that_share_no_bytes_are_in_no_order(
    branches: CudaPlan, driver: FakeDriver
) -> None:
    x = on_device(driver, X)
    (found,) = branches.run([x])
    assert found.memory.tolist() == (3 * X + 4).tolist()
    graph = branches.graph((driver.pointer(x),), (driver.pointer(found),))
    assert graph.after == AFTER
    order = [entry[3][-1] for entry in driver.log if entry[0] == "launch"]
    first = order[1]
    assert order[:4] == [first + 64, first, first + 128, first], "the second one may start first"
    driver.log.clear()
    with Stream(driver, 9):
        branches.mode = "eager"
        branches.run([x])
    again = [entry[3][-1] for entry in driver.log if entry[0] == "launch"]
    assert again[:4] == [first, first + 64, first + 128, first], "they are launched in order"


@pytest.mark.parametrize(("node", "missing"), [(2, 0), (2, 1), (3, 2), (4, 3)])
def test_the_fake_device_sees_a_missing_edge(
    branches: CudaPlan, driver: FakeDriver, node: int, missing: int
) -> None:
    calls = branches.calls([driver.pointer(on_device(driver, X))] * 1, [1 << 40])
    after = [tuple(m for m in own if (n, m) != (node, missing)) for n, own in enumerate(AFTER)]
    nodes = [GraphNode(call, own) for call, own in zip(calls, after, strict=True)]
    with pytest.raises(AssertionError, match=rf"launches \d and {node} touch the same bytes"):
        driver.graph(branches.side, nodes)


def test_calls_that_are_timed_together_do_not_overlap(
    branches: CudaPlan, driver: FakeDriver
) -> None:
    x, out = on_device(driver, X), on_device(driver, X)
    graph = branches.repeated((driver.pointer(x),), (driver.pointer(out),), 2)
    moved = [tuple(m + 1 for m in own) or (0,) for own in AFTER]
    assert graph.after[:6] == [(), *moved]
    assert graph.after[6] == (5,), "the gate comes after what nothing else comes after"
    assert graph.after[7:] == [tuple(m + 6 for m in own) for own in moved]


def test_products_follow_one_another_in_their_workspace(tmp_path: Path, driver: FakeDriver) -> None:
    second = Gemm(FORM, DType.F32, Ref("in"), Ref("in"), Ref("work"))
    plan = CudaPlan(artifact(tmp_path, (*PRODUCT, second, *SIMPLE)), driver)
    driver.bytes["k_add"] = ((4 * N, False), (4 * N, True))
    arrays = [on_device(driver, X) for _ in range(2)]
    addresses = [(driver.pointer(array),) for array in arrays]
    assert plan.graph(*addresses).after == [(), (0,), (0,)]


def test_blocks_that_wait_for_each_other_are_alone() -> None:
    shape = Geometry(2, 32, cooperative=True)
    refs = [(Ref("in"), Ref("work", offset=64 * k)) for k in range(3)]
    one, two, plain = (launch("k_add", *own) for own in refs)
    waiting = tuple(replace(own, geometry=shape) for own in (one, two))
    assert [place.after for place in places(tuple(singles((*waiting, plain))))] == [(), (0,), ()]


def test_a_kernel_starts_early_after_one_that_lets_it() -> None:
    early = Geometry(1, 32, early=True)
    actions = tuple(
        replace(own, geometry=shape)
        for own, shape in zip(BRANCHES, (early, early, early, early, SHAPE), strict=True)
        if isinstance(own, KernelLaunch)
    )
    found = places(tuple(singles(actions)))
    assert [place.after for place in found] == AFTER
    assert [place.early for place in found] == [False, False, False, True, False]
