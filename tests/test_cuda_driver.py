"""`CupyDriver` on a CuPy that refuses what the real one refuses."""

from __future__ import annotations

import pytest
from fake_cupy import FakeCupy, Resources

from autofuse.backends.cuda.driver import CupyDriver
from autofuse.backends.cuda.geometry import Geometry


@pytest.mark.parametrize("dynamic", [41 << 10, 48 << 10, 80_000])
def test_a_kernel_may_use_the_dynamic_shared_memory_it_is_made_for(dynamic: int) -> None:
    cupy = FakeCupy(k=Resources(shared=8 << 10))
    driver = CupyDriver(cupy)
    function = driver.function(cupy.module(), "k", dynamic)
    driver.launch(function, Geometry(3, 64, dynamic), ())
    assert cupy.launched == [("k", 3, dynamic)]


def test_the_driver_says_how_many_blocks_there_is_room_for() -> None:
    cupy = FakeCupy(k=Resources(registers=64))
    driver = CupyDriver(cupy)
    function = driver.function(cupy.module(), "k", 0)
    held = driver.blocks_held(function, Geometry(1, 256))
    assert held == 4 * cupy.target.sms
    driver.launch(function, Geometry(held + 1, 256, cooperative=True), ())
    assert cupy.launched == [("k", held, 0)], "CuPy launches what fits, and blocks would wait"
