"""Tiles of rows that meet all panels of their block, and rows that end in tiles."""

from __future__ import annotations

from typing import Any

from autofuse import trace
from autofuse.backends.cpu import backend as cpu
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.canonical import canonical
from autofuse.kernel.ir.types import Local
from autofuse.kernel.lower import extract
from search_spaces import CpuLaunchSpace
from tests.support.tile_launches import kernel_statements, launch_of
from tests.support.tile_programs import program, whole


def test_no_row_of_a_product_is_kept_that_only_goes_on_column_by_column() -> None:
    for name, kept in (("norm_before", 0), ("softmax_after", 42 * 144)):
        scratch = [s for s in kernel_statements(program(name)) if isinstance(s, Local)]
        assert sum(s.size for s in scratch if s.size >= 37 * 130) == kept


def whole_rows(text: str) -> int:
    """Lane loops, but for those that end a row with a vector of its own."""
    return text.count("#pragma omp simd") - text.count("_t = 0;")


def test_a_tile_of_rows_may_meet_all_panels_packed_before() -> None:
    group, _ = extract(program("epilogue"), whole(program("epilogue")))
    across, down = (
        cpu.rendered(group, launch_of(micro="6x16", pack=True, across=way), False).text
        for way in (True, False)
    )
    assert across.index("panel0[") < across.index("tk <"), "packed before the first tile"
    assert whole_rows(across) < whole_rows(down)


def test_long_runs_come_first_where_much_is_read_beside_a_product() -> None:
    def made(a: Any, b: Any, *beside: Any) -> Any:
        return sum(beside, start=a @ b)

    full = [spec((512, 1024))] * 4
    graph = canonical(trace(made, spec((512, 64)), spec((64, 1024)), *full))
    launch = CpuLaunchSpace(256).default(graph, whole(graph))
    assert launch.get("across", False) is True
