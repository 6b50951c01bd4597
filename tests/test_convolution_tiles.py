"""Convolutions in the tile schedule: right however patches are read, and fast where it is said."""

from __future__ import annotations

from typing import Any

import pytest
from convolution_programs import convolutions, graph_of
from emulation import library_of, one_kernel, run_kernel
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from test_tile import error, launch_of

from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.plan.legality import Refusal, check_group
from tests.tile_programs import whole

SETTINGS = st.fixed_dictionaries(
    {
        "walk": st.booleans(),
        "micro": st.sampled_from(("6x64", "14x32", "1x64", "6x16", "3x32")),
        "row_block": st.sampled_from((8, 20, 128)),
        "column_block": st.sampled_from((0, 64)),
        "term_block": st.sampled_from((0, 32)),
        "pack": st.booleans(),
        "vector_bits": st.sampled_from((512, 256)),
    }
)


def one_of(case: dict[str, Any]) -> Graph:
    """The graph of a case that may be one kernel."""
    graph = canonical(graph_of(case))
    group = whole(graph)
    assume(not isinstance(check_group(graph, group.nodes, group.outputs), Refusal))
    return graph


@settings(max_examples=40, deadline=None)
@given(case=convolutions(), chosen=SETTINGS)
def test_every_convolution_is_right_under_every_setting(
    case: dict[str, Any], chosen: dict[str, int | str | bool]
) -> None:
    assert error(one_of(case), launch_of(**chosen)) < 2e-5
