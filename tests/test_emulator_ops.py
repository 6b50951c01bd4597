"""Every op, on every dtype it claims, as CUDA on the emulator against its float64 reference."""

from __future__ import annotations

import pytest
from emulation import one_kernel, run_kernel
from test_ops_on_cpu import CASES, expected, one_op

from autofuse.backends.emulator.emulator import ORDERS, Emulated
from autofuse.measure.check import check

# A block of two warps shows what a missing barrier does; forward alone would hide it.
TWO = (ORDERS[0], ORDERS[2])


@pytest.fixture(scope="module")
def library() -> Emulated:
    return Emulated(*(MADE[name].text for name in CASES))


MADE = {name: one_kernel(one_op(*case), f"op{k}") for k, (name, case) in enumerate(CASES.items())}


@pytest.mark.parametrize("name", CASES)
def test_op_gives_its_reference_result(name: str, library: Emulated) -> None:
    inputs, reference = expected(name)
    outputs = run_kernel(library, MADE[name], inputs, orders=TWO)
    result = check(tuple(outputs), reference)
    assert result.ok, result.message
