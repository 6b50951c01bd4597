"""Every op, on every dtype it claims, through the C backend against its own reference."""

from __future__ import annotations

from itertools import islice

import pytest

from autofuse.measure.check.compare import CheckResult, check
from tests.support.batching import Case, build, poisoned_run
from tests.support.op_cases import CASES, CHUNK, LAUNCHES, expected, one_kernel_each, together


@pytest.fixture(scope="module")
def results() -> dict[str, CheckResult]:
    """All ops, many to a program, built together and run once per launch configuration."""
    names = list(CASES)
    chunks = [names[k : k + CHUNK] for k in range(0, len(names), CHUNK)]
    graphs = [together(chunk) for chunk in chunks]
    cases = [Case(g, one_kernel_each(g, launch), "") for launch in LAUNCHES for g, _ in graphs]
    wanted = {name: expected(name) for name in names}
    found: dict[str, CheckResult] = {}
    for (_, counts), artifact in zip(graphs * len(LAUNCHES), build(cases), strict=True):
        outputs = iter(poisoned_run(artifact, [x for name in counts for x in wanted[name][0]]))
        for name, count in counts.items():
            result = check(tuple(islice(outputs, count)), wanted[name][1])
            if name not in found or found[name].ok:
                found[name] = result
    return found


@pytest.mark.parametrize("name", CASES)
def test_op_gives_its_reference_result(name: str, results: dict[str, CheckResult]) -> None:
    result = results[name]
    assert result.ok, result.message
