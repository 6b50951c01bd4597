"""An artifact of one kernel that is no real cubin, for the fake driver."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from autofuse.backends.cuda.build import CudaArtifact
from autofuse.backends.cuda.devices import DEFAULT_TARGET
from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.program import Action, Argument, Gemm, KernelLaunch
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType
from autofuse.plan.program.schedule import Ref
from tests.support.fake_cuda import DeviceArray, FakeDriver, floats
from tests.support.gemm_forms import contiguous

N = 8
TYPE = TensorType((N,), DType.F32)
SHAPE = Geometry(1, 32)
X = np.arange(N, dtype=np.float32)


def add_one(source: int, target: int) -> None:
    floats(target, N)[...] = floats(source, N) + 1


def launch(symbol: str, *refs: Ref) -> KernelLaunch:
    """A kernel that writes the last of its arguments."""
    arguments = tuple(Argument(ref, DType.F32, N, ref is refs[-1]) for ref in refs)
    return KernelLaunch(symbol, SHAPE, arguments)


SIMPLE: tuple[Action, ...] = (launch("k_add", Ref("in"), Ref("out")),)


def artifact(folder: Path, actions: tuple[Action, ...] = SIMPLE, **facts: int) -> CudaArtifact:
    path = folder / "k_add.cubin"
    path.write_bytes(b"\x7fELF")
    defaults = {"workspace": 256, "scratch": 0, "trips": 0} | facts
    return CudaArtifact(
        DEFAULT_TARGET, (("k_add", path),), actions, tuple(range(len(actions))), len(actions),
        (TYPE,), (TYPE,), (), facts=(), **defaults,
    )  # fmt: skip


def on_device(driver: FakeDriver, array: np.ndarray) -> DeviceArray:
    """A caller's array: it has been there for long."""
    found = driver.upload(array)
    driver.settle()
    return found


FORM = contiguous(1, 2, 2, 2)
PRODUCT: tuple[Action, ...] = (Gemm(FORM, DType.F32, Ref("in"), Ref("in"), Ref("out")),)
