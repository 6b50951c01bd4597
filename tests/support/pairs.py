"""Products whose terms lie in pairs."""

from __future__ import annotations

from typing import Any

from autofuse import trace
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.plan.parameters import LaunchConfig


def launch_of(**chosen: int | str | bool) -> LaunchConfig:
    plain: dict[str, int | str | bool] = {
        "threads": 1, "micro": "6x64", "row_block": 128, "pack": True, "stage": True,
        "pairs": True,
    }  # fmt: skip
    return LaunchConfig.of(**{**plain, **chosen})


def product(rows: int, terms: int, columns: int, left: bool, right: bool) -> Graph:
    """2 a b, operands as they are or transposed."""

    def function(a: Any, b: Any) -> Any:
        return (a.T if left else a) @ (b.T if right else b) * 2

    shapes = (
        (terms, rows) if left else (rows, terms),
        (columns, terms) if right else (terms, columns),
    )
    return canonical(trace(function, *(spec(shape, "bf16") for shape in shapes)))
