"""Every kind of kernel under every way to launch it, on the emulator against the reference."""

from __future__ import annotations

import pytest

from autofuse.backends.emulator.emulator import Emulated
from autofuse.graph.reference import random_inputs
from autofuse.measure.check.compare import check, reference_of
from tests.support.emulation import OneKernel, library_of, one_kernel, run_kernel
from tests.support.kind_cases import CASES


@pytest.fixture(scope="module")
def library() -> tuple[dict[str, OneKernel], Emulated]:
    made = {name: one_kernel(*case) for name, case in CASES.items()}
    return made, library_of(list(made.values()))


@pytest.mark.parametrize("name", CASES)
def test_kernel_gives_the_reference_result(
    name: str, library: tuple[dict[str, OneKernel], Emulated]
) -> None:
    made = library[0][name]
    inputs = random_inputs(made.graph, 0)
    result = check(run_kernel(library[1], made, inputs), reference_of(made.graph, inputs))
    assert result.ok, result.message
