"""Memory of results: where it starts, who holds it and when it is used again."""

from __future__ import annotations

import gc
import threading

import ml_dtypes
import numpy as np
import pytest

from autofuse.backends import aligned
from autofuse.backends.aligned import OutputPool, address_of
from autofuse.backends.base import ALIGNMENT
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType

SMALL, LARGE = TensorType((5, 7), DType.F32), TensorType((512, 257), DType.F32)


@pytest.mark.parametrize("type_", [SMALL, LARGE, TensorType((), DType.BF16)])
def test_an_array_is_of_its_type_and_starts_where_it_is_said(type_: TensorType) -> None:
    array, address = OutputPool(type_).take()
    assert (array.shape, array.dtype) == (type_.shape, type_.dtype.numpy)
    assert address == array.ctypes.data and address % ALIGNMENT == 0
    assert array.flags.c_contiguous and array.flags.writeable
    array[...] = 1  # all of it is there


def test_what_views_hold_is_not_given_away() -> None:
    pool = OutputPool(LARGE)
    first, _ = pool.take()
    first[...] = 1.0
    view = first[3:, ::2].T
    del first
    gc.collect()
    others = [pool.take()[0] for _ in range(4)]
    for other in others:
        other[...] = 2.0
    assert (view == 1.0).all()
    assert len({other.ctypes.data for other in others}) == len(others)


def test_large_memory_comes_back_and_two_blocks_are_kept() -> None:
    pool = OutputPool(LARGE)
    held = [pool.take() for _ in range(3)]
    addresses = [address for _, address in held]
    del held
    gc.collect()
    again = [pool.take() for _ in range(2)]
    assert {address for _, address in again} <= set(addresses)
    assert len(pool._lent) == 2
    del again
    gc.collect()
    assert not pool._lent and len(pool._free) == 2


def test_small_memory_is_the_allocators() -> None:
    pool = OutputPool(SMALL)
    held = [pool.take()[0] for _ in range(3)]
    assert not pool._lent and len({array.ctypes.data for array in held}) == 3


def test_threads_never_get_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligned, "POOLED_BYTES", 0)
    pool, wrong = OutputPool(SMALL), list[int]()

    def work(number: int) -> None:
        for _ in range(300):
            array, _ = pool.take()
            array[...] = number
            if not (array == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_addresses_of_arrays_of_all_kinds() -> None:
    fixed = np.arange(6.0)
    fixed.flags.writeable = False
    half = np.zeros((2, 3), ml_dtypes.bfloat16)
    for array in (np.arange(6), np.arange(6)[2:], fixed, half, np.zeros(()), np.zeros((0, 4))):
        assert address_of(array) == array.ctypes.data
