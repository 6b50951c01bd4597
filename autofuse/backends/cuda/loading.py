"""The kernels and the buffers of a built program, on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.backends.base import LaunchError
from autofuse.backends.cuda.blas import WORKSPACE_BYTES
from autofuse.backends.cuda.build import CudaArtifact
from autofuse.backends.cuda.driver import CupyDriver
from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.maps import Given
from autofuse.backends.cuda.ordering import every
from autofuse.backends.cuda.program import Argument, KernelLaunch
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType
from autofuse.records import Blame

BLAS_WORKSPACE = TensorType((WORKSPACE_BYTES,), DType.U8)


def loaded_functions(driver: CupyDriver, artifact: CudaArtifact) -> dict[str, Any]:
    """The kernels of a program by symbol.

    Raises LaunchError for a cubin that cannot be read, and for more blocks that wait for each other
    than the device holds."""
    launches = [
        action
        for action in every((*artifact.prepare, *artifact.actions))
        if isinstance(action, KernelLaunch)
    ]
    shared = {launch.symbol: launch.geometry.shared for launch in launches}
    found = {}
    for symbol, path in artifact.cubins:
        try:
            cubin = path.read_bytes()
        except OSError as error:
            text = f"cannot read {path.name}: {error.strerror}"
            raise LaunchError(text, Blame.MACHINE) from error
        found[symbol] = driver.function(driver.load(cubin), symbol, shared.get(symbol, 0))
    for launch in launches:
        if launch.geometry.cooperative:
            _check_together(driver, found[launch.symbol], launch.geometry)
    return found


def _check_together(driver: CupyDriver, function: Any, shape: Geometry) -> None:
    """Blocks that wait for one that never starts would wait for ever."""
    held = driver.blocks_held(function, shape)
    if shape.grid > held:
        raise LaunchError(
            f"{shape.grid} blocks wait for each other, but the device holds {held} at once"
        )


def allocated(driver: CupyDriver, artifact: CudaArtifact, has_products: bool) -> dict[str, Any]:
    """The buffers of a program by space, filled on the current stream."""
    trips = np.arange(max(artifact.trips, 1), dtype=np.int32)
    binding = artifact.binding
    return {
        "const": tuple(driver.upload(as_bytes(c.array())) for c in artifact.constants),
        "work": (driver.zeros(max(artifact.workspace, binding.workspace)),),
        "held": (driver.zeros(binding.held),),
        "scratch": (driver.zeros(artifact.scratch),),
        "trip": (driver.upload(trips),),
        # Of this program alone: programs may run at the same time on several streams.
        "blas": (driver.empty(BLAS_WORKSPACE),) if has_products else (),
    }


def given_for(driver: CupyDriver, argument: Argument, address: int) -> Given:
    """What a kernel is given for an array at this address."""
    return address if argument.map is None else driver.tensor_map(argument.map, address)


def as_bytes(array: np.ndarray) -> np.ndarray:
    """A contiguous array's memory."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
