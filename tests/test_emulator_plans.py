"""Random plans under random launch settings, as whole CUDA programs on the emulator."""

from __future__ import annotations

import pytest

from tests.support.drawn_plans import made
from tests.support.emulated_plans import failures, on_cuda
from tests.support.seeds import examples, seeds

PLANS, CHUNK = examples(300), 50


@pytest.mark.parametrize("start", range(0, PLANS, CHUNK))
def test_random_plans_give_the_reference_result(start: int) -> None:
    """Small graphs, every other one with matrix products, half types and loops."""
    cases = [
        on_cuda(made(seed, 1 + seed % 12, seed % 40, rich=seed % 2 == 1), seed)
        for seed in seeds(PLANS)[start : start + CHUNK]
    ]
    wrong = failures(cases)
    assert not wrong, "\n".join(wrong)
