"""Every op, on every dtype it claims, as CUDA on the emulator against its float64 reference."""

from __future__ import annotations

import pytest

from autofuse.backends.emulator.emulator import ORDERS, Emulated
from autofuse.measure.check.compare import check
from tests.support.emulation import OneKernel, library_of, one_kernel, run_kernel
from tests.support.op_cases import KERNELS, expected, one_op

Library = tuple[dict[str, OneKernel], Emulated]


@pytest.fixture(scope="module")
def library() -> Library:
    made = {name: one_kernel(one_op(*case)) for name, case in KERNELS.items()}
    return made, library_of(list(made.values()))


@pytest.mark.parametrize("name", KERNELS)
def test_op_gives_its_reference_result(name: str, library: Library) -> None:
    inputs, reference = expected(name)
    made, kernels = library
    # Single ops hardly synchronise: two of the orders do.
    outputs = run_kernel(kernels, made[name], inputs, orders=ORDERS[:2])
    result = check(tuple(outputs), reference)
    assert result.ok, result.message
