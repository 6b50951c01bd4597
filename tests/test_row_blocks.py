"""Which blocks of rows a product in tiles may have on a CPU."""

from __future__ import annotations

import pytest

from autofuse import spec, trace
from autofuse.graph.canonical import canonical
from autofuse.plan.parameters import ACROSS, DOT, MICRO, ROW_BLOCK
from search_spaces.cpu_tiles import tile_options
from search_spaces.tile_cost import Machine
from search_spaces.tile_facts import tile_facts
from tests.support.tile_programs import whole

HERE = Machine(512, 2, 48 << 10, 2 << 20, 32 << 20)


def row_blocks(rows: int, terms: int, columns: int) -> tuple[int, ...]:
    graph = canonical(
        trace(lambda a, b: a @ b, spec((rows, terms)), spec((terms, columns), constant=True))
    )
    facts = tile_facts(graph, whole(graph))
    assert facts is not None
    made = {DOT.name: False, ACROSS.name: False, MICRO.name: "6x64"}
    return tuple(int(rows) for rows in tile_options(ROW_BLOCK.name, facts, made, HERE))


def test_all_rows_may_be_one_block_where_the_second_cache_keeps_them() -> None:
    assert 1194 in row_blocks(1189, 80, 6096)


@pytest.mark.parametrize("terms", [1000, 4000])
def test_rows_that_the_second_cache_does_not_keep_are_several_blocks(terms: int) -> None:
    assert max(row_blocks(1189, terms, 6096)) <= 512
