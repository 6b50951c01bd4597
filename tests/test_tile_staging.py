"""Operands that are copied lie as a panel says, each element once, zeros where they are said to be,
and nothing else is written."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse import spec, trace
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Value
from autofuse.kernel.elements.values import Frame, memory
from autofuse.kernel.ir.emit import Emitter
from autofuse.kernel.ir.types import Kernel, Panel, Param
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.parts import TermBlock, TileSettings
from autofuse.kernel.tiles.staging import (
    Lines,
    TileOperand,
    stage,
    stage_along,
    stage_pairs,
    stage_tiles,
)
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.schedules.pairs import TILE_TERMS
from autofuse.plan.schedules.tiles import tiles_of
from autofuse.plan.types import LaunchConfig
from tests.support.kernel_eval import run
from tests.support.tile_programs import whole

ROWS, TERMS, COLUMNS, ROOM = 11, 37, 13, 4096
# What `kernel_eval` finds in memory that nobody has written.
UNTOUCHED = 77.0
LEFT = np.arange(1.0, 1 + ROWS * TERMS).reshape(ROWS, TERMS)
RIGHT = -np.arange(1.0, 1 + TERMS * COLUMNS).reshape(TERMS, COLUMNS)


def scratch(
    left: bool, copy: Callable[[TileOperand], None], cut: int = 0, number: int = 0
) -> np.ndarray:
    """What is in scratch when an operand of a product has been copied, of which `number` is the
    block of terms."""
    graph = canonical(trace(lambda a, b: a @ b, spec((ROWS, TERMS)), spec((TERMS, COLUMNS))))
    group = whole(graph)
    forms = check_group(graph, group.nodes, group.outputs)
    assert not isinstance(forms, Refusal)
    tiles, emitter = tiles_of(graph, forms[0]), Emitter()
    assert tiles is not None
    names = {Value(n): f"in{k}" for k, n in enumerate(graph.inputs)}
    sources = {v: memory(name, graph.type_of(v).shape, DType.F32) for v, name in names.items()}
    frame = Frame(graph, emitter, dict(sources))
    b = TileBlock(forms[0], tiles, frame, {}, TileSettings.of(LaunchConfig()))
    (p,) = tiles.products
    copy(TileOperand(b, p, p.left if left else p.right, DType.F32, TermBlock(cut, ix.lit(number))))
    ins = [Param(name, DType.F32, graph.type_of(v).size, "in") for v, name in names.items()]
    kernel = Kernel("k", (*ins, Param("out0", DType.F32, ROOM, "out")), emitter.body)
    (found,) = run(kernel, [LEFT, RIGHT])
    return found


def wanted(left: bool, cut: int, number: int) -> np.ndarray:
    """The present terms of all lines, line by line."""
    lines = LEFT if left else RIGHT.T
    return lines[:, number * cut :][:, : cut or TERMS]


@st.composite
def parts(draw: st.DrawFn) -> tuple[bool, int, int, int, int]:
    """Which operand, a block of terms, and lines of it."""
    left, cut = draw(st.booleans()), draw(st.sampled_from((0, 5, 8, TERMS)))
    number = draw(st.integers(0, -(-TERMS // cut) - 1)) if cut else 0
    most = ROWS if left else COLUMNS
    first = draw(st.integers(0, most - 1))
    return left, cut, number, first, draw(st.integers(1, most - first))


@given(parts(), st.integers(0, 5), st.integers(0, 9), st.booleans())
def test_terms_one_after_another(
    part: tuple[bool, int, int, int, int], behind: int, start: int, filled: bool
) -> None:
    left, cut, number, first, count = part
    outer, lines = count + behind, wanted(left, cut, number)[first : first + count]
    panel = Panel("out0", ix.lit(start), outer)
    found = scratch(
        left, lambda o: stage(o, [Lines(ix.lit(first), count, panel, filled=filled)]), cut, number
    )
    model = np.full(ROOM, UNTOUCHED, np.float32)
    for k in range(lines.shape[1]):
        if filled:
            model[start + k * outer :][:outer] = 0
        model[start + k * outer :][:count] = lines[:, k]
    np.testing.assert_array_equal(found, model)


@given(parts(), st.integers(0, 3))
def test_lines_one_after_another(part: tuple[bool, int, int, int, int], behind: int) -> None:
    left, _, _, first, count = part
    apart = TERMS + behind
    panel = Panel("out0", ix.lit(0), 1, apart)
    found = scratch(left, lambda o: stage_along(o, [Lines(ix.lit(first), count, panel)]))
    model = np.full(ROOM, UNTOUCHED, np.float32)
    for i, line in enumerate(wanted(left, 0, 0)[first : first + count]):
        model[i * apart :][:TERMS] = line
    np.testing.assert_array_equal(found, model)


@pytest.mark.parametrize("unit", [2, TILE_TERMS])
@given(part=parts(), behind=st.integers(0, 3))
def test_two_terms_side_by_side(
    unit: int, part: tuple[bool, int, int, int, int], behind: int
) -> None:
    left, cut, number, first, count = part
    cut, number = (8, number) if cut == 5 else (cut, number)  # pairs are in one block of terms
    number = min(number, -(-TERMS // (cut or TERMS)) - 1)
    width, lines = count + behind, wanted(left, cut, number)[first : first + count]
    panel = Panel("out0", ix.lit(0), 2 * width)
    found = scratch(
        left, lambda o: stage_pairs(o, Lines(ix.lit(first), count, panel), unit, None), cut, number
    )
    terms = -(-lines.shape[1] // unit) * unit
    model = np.full(ROOM, UNTOUCHED, np.float32)
    model[: terms * width] = 0
    for k in range(lines.shape[1]):
        model[k // 2 * 2 * width + k % 2 :][: 2 * count : 2] = lines[:, k]
    np.testing.assert_array_equal(found, model)


@given(parts())
def test_tiles_of_terms(part: tuple[bool, int, int, int, int]) -> None:
    left, cut, number, first, count = part
    lines = wanted(left, cut, number)[first : first + count]
    panel = Panel("out0", ix.lit(0), TILE_TERMS, apart=count * TILE_TERMS)
    found = scratch(left, lambda o: stage_tiles(o, ix.lit(first), count, panel), cut, number)
    model = np.full(ROOM, UNTOUCHED, np.float32)
    model[: -(-lines.shape[1] // TILE_TERMS) * count * TILE_TERMS] = 0
    for i, k in np.ndindex(*lines.shape):
        model[(k // TILE_TERMS * count + i) * TILE_TERMS + k % TILE_TERMS] = lines[i, k]
    np.testing.assert_array_equal(found, model)
