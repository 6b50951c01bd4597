"""Plans from databases, exports and bundles that ask for what no kernel can have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autofuse.ops.types import AutofuseError
from autofuse.plan.parameters import LAUNCH_TABLES
from autofuse.plan.types import candidate_from_json

GROUP = {"nodes": [2], "outputs": [[2, 0]], "body": None}


def stored(launch: Any = None, group: Any = None) -> str:
    return json.dumps({"plan": [group or GROUP], "launches": [launch or {}], "bodies": [[]]})


@pytest.mark.parametrize(
    "launch",
    [{"vector_bits": 2**40}, {"tile": 2**31}, {"threads": 10**9, "vector_bits": 512},
     {"vector_bits": 2.5}, {"gone": "x" * 1000}, {"gone": [1]}, {"grid": "one", "items": 10**6}],
)  # fmt: skip
def test_a_setting_without_bounds_is_refused_when_it_is_read(launch: dict[str, Any]) -> None:
    with pytest.raises(AutofuseError, match="launch setting"):
        candidate_from_json(stored(launch))


@pytest.mark.parametrize(
    "group",
    [{**GROUP, "unroll": 2**40, "body": []}, {**GROUP, "nodes": [-1]}, {**GROUP, "nodes": ["2"]},
     {**GROUP, "nodes": [2**60]}, {**GROUP, "outputs": [[0, True]]}],
)  # fmt: skip
def test_a_plan_of_no_possible_numbers_is_refused(group: dict[str, Any]) -> None:
    with pytest.raises(AutofuseError, match="not a stored candidate"):
        candidate_from_json(stored(None, group))


def test_deep_nesting_is_a_sentence() -> None:
    text = stored().replace(
        "null", '[{"nodes":[],"outputs":[],"body":' * 9000 + "null" + "}]" * 9000
    )
    with pytest.raises(AutofuseError, match="nested too deeply"):
        candidate_from_json(text)
    with pytest.raises(AutofuseError, match="nested too deeply"):
        candidate_from_json("[" * 100_000)


def test_every_count_has_a_largest_and_a_least() -> None:
    rows = [row for table in LAUNCH_TABLES.values() for row in table.values()]
    for row in rows:
        assert (row.least is None) == (row.most is None), row.name
        assert all(map(row.has, (*row.choices, row.default))), row.name
