"""The tile schedule on the CPU: every program is right under every setting, and what it is made of
is what was chosen."""

from __future__ import annotations

import re
from itertools import product as pairs
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse import trace
from autofuse.backends.cpu import backend as cpu
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.kernel.ir.emit import LoweringError
from autofuse.kernel.ir.types import Local, TileProduct, Transpose, statements
from autofuse.kernel.lower import extract, lower
from autofuse.kernel.passes import C_PASSES, run_passes
from autofuse.kernel.text.c.tile import tile_text
from autofuse.ops import index as ix
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.parameters import DOT, MICRO, PRODUCT, ROW_BLOCK
from autofuse.plan.schedules.tiles import row_scratch, tiles_of
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan
from search_spaces import CpuLaunchSpace
from search_spaces.cpu_tiles import ORDER, REGISTERS, STREAMED, tile_options
from search_spaces.launch import first_option
from search_spaces.tile_cost import Machine
from search_spaces.tile_facts import tile_facts
from tests.support.batching import quick_library
from tests.support.seeds import examples
from tests.support.tile_launches import SETTINGS, error, kernel_statements, launch_of
from tests.support.tile_programs import PROGRAMS, layer_norm, program, whole

TOLERANCE = {"f32": 2e-5, "f64": 1e-12, "f16": 2e-3, "bf16": 2e-2}


@pytest.mark.wide(8)
@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=1, deadline=None)
@given(chosen=SETTINGS)
def test_every_program_is_right_under_every_setting(
    name: str, chosen: dict[str, int | str | bool]
) -> None:
    assert error(program(name), launch_of(**chosen)) < TOLERANCE["f32"]


@pytest.mark.wide(6)
@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
@pytest.mark.parametrize("name", ["epilogue", "attention", "convolution", "two_layers"])
def test_every_type_is_right(name: str, dtype: str) -> None:
    graph = program(name, dtype)
    assert error(graph, launch_of(term_block=32, row_block=20)) < TOLERANCE[dtype]


@settings(max_examples=examples(15), deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 70), st.integers(2, 150), st.integers(1, 60)),
    batch=st.integers(1, 3),
    chosen=SETTINGS,
)
def test_products_of_any_size_are_right(
    sizes: tuple[int, int, int], batch: int, chosen: dict[str, int | str | bool]
) -> None:
    rows, columns, terms = sizes
    graph = canonical(
        trace(lambda a, b: a @ b * 2, spec((batch, rows, terms)), spec((batch, terms, columns)))
    )
    assert error(graph, launch_of(**chosen)) < TOLERANCE["f32"]


def test_a_lone_last_column_of_a_single_row_is_summed_before_it_is_read() -> None:
    graph = canonical(trace(lambda a, b: a @ b * 2, spec((1, 34)), spec((34, 17))))
    assert error(graph, launch_of(micro="28x16", term_block=32)) < TOLERANCE["f32"]


def turned_product(
    sizes: tuple[int, int, int], batch: int, turned: tuple[bool, bool], dtype: str = "f32"
) -> Graph:
    """A product whose operands may each lie with their last two axes the other way round."""
    rows, columns, terms = sizes
    left = (terms, rows) if turned[0] else (rows, terms)
    right = (columns, terms) if turned[1] else (terms, columns)

    def made(a: Any, b: Any) -> Any:
        a = np.swapaxes(a, -1, -2) if turned[0] else a
        return a @ (np.swapaxes(b, -1, -2) if turned[1] else b) + 1

    return canonical(trace(made, spec((batch, *left), dtype), spec((batch, *right), dtype)))


@settings(max_examples=examples(10), deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 40), st.integers(2, 150), st.integers(1, 90)),
    batch=st.integers(1, 2),
    turned=st.tuples(st.booleans(), st.just(True)),
    dtype=st.sampled_from(("f32", "f64")),
    chosen=SETTINGS,
)
def test_transposed_operands_of_any_size_are_right(
    sizes: tuple[int, int, int], batch: int, turned: tuple[bool, bool], dtype: str,
    chosen: dict[str, int | str | bool],
) -> None:  # fmt: skip
    graph = turned_product(sizes, batch, turned, dtype)
    assert error(graph, launch_of(**chosen)) < TOLERANCE[dtype]


@pytest.mark.wide(5)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("terms", [3, 16, 37])
@pytest.mark.parametrize("micro", ["4x6", "1x8"])
def test_sums_along_terms_are_right_and_copy_nothing(micro: str, terms: int, dtype: str) -> None:
    graph = turned_product((5, 21, terms), 2, (False, True), dtype)
    chosen = {"micro": micro, "dot": True, "pack": False}
    assert error(graph, launch_of(**chosen)) < TOLERANCE[dtype]
    group, _ = extract(graph, whole(graph))
    body = list(statements(lower(group, launch_of(**chosen)).body))
    assert all(s.is_dot for s in body if isinstance(s, TileProduct))
    assert not any(s.name.startswith("panel") for s in body if isinstance(s, Local))


def test_what_the_terms_left_over_are_not_is_not_read() -> None:
    """The last vector of terms overlaps the one before it: an infinite term there counts once."""
    graph = turned_product((2, 3, 20), 1, (False, True))
    candidate = Candidate(
        FusionPlan((whole(graph),)), (launch_of(micro="4x6", dot=True, pack=False),)
    )
    a, b = (np.ones(t.shape, np.float32) for t in graph.input_types)
    a[0, 0, 5], b[0, :, 5] = np.inf, 2.0
    (found,) = quick_library(graph, candidate).run((a, b))
    assert np.isinf(found[0, 0]).all() and (found[0, 1] == 22.0).all()


@pytest.mark.parametrize("term_block", [0, 32])
def test_a_transposed_operand_is_packed_through_registers(term_block: int) -> None:
    graph = turned_product((40, 75, 70), 1, (False, True))
    group, _ = extract(graph, whole(graph))
    body = run_passes(lower(group, launch_of(term_block=term_block)), C_PASSES).body
    made = [s for s in statements(body) if isinstance(s, Transpose)]
    assert [s.rows for s in made] == [ix.lit(64), ix.lit(11)]
    assert all(s.target.buffer.startswith("panel") and s.source.outer == 70 for s in made)


@pytest.mark.parametrize("turned", [False, True])
def test_a_left_operand_is_packed_in_slabs_of_whole_tiles(turned: bool) -> None:
    graph = turned_product((40, 75, 70), 1, (turned, False))
    group, _ = extract(graph, whole(graph))
    launch = launch_of(micro="6x16", pack_left=True, term_block=32, vector_bits=256)
    body = list(statements(run_passes(lower(group, launch), C_PASSES).body))
    lefts = {(s.left.outer, s.left.inner) for s in body if isinstance(s, TileProduct)}
    assert lefts == {(1, 18)}, "rows side by side, three tiles to a slab"
    through = {s.target.outer for s in body if isinstance(s, Transpose)}
    assert through == (set() if turned else {18}), "rows along terms go through registers"


@pytest.mark.parametrize(("columns", "dtype"), [(30, "f64"), (30, "f32"), (100, "f64")])
def test_narrow_panels_stay_within_rows_of_sums(columns: int, dtype: str) -> None:
    graph = turned_product((13, columns, 70), 1, (False, False), dtype)
    assert error(graph, launch_of(micro="4x24", term_block=32)) < TOLERANCE[dtype]


@pytest.mark.wide(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_default_of_every_program_is_right(name: str) -> None:
    """Compiled as users get it."""
    graph = program(name)
    space = CpuLaunchSpace()
    launch = space.choose(graph, whole(graph), loops_first, "")
    assert error(graph, launch, "-O3") < TOLERANCE["f32"]


def loops_first(name: str, options: tuple[int | str | bool, ...]) -> int | str | bool:
    return "loops" if "loops" in options else first_option(name, options)


def test_a_fused_product_is_a_kernel_of_its_kind() -> None:
    graph = program("epilogue")
    assert CpuLaunchSpace().kind(graph, whole(graph)) == PRODUCT


def machine(bits: int = 512, threads: int = 2) -> Machine:
    return Machine(bits, threads, 32 << 10, 1 << 20, 32 << 20)


def first_choice(
    sizes: tuple[int, int, int], turned: tuple[bool, bool] = (False, False), threads: int = 2,
    batch: int = 1, bits: int = 512,
) -> dict[str, int | str | bool]:  # fmt: skip
    """The first option of every setting of a product."""
    graph = turned_product(sizes, batch, turned)
    facts = tile_facts(graph, whole(graph))
    assert facts is not None
    made: dict[str, int | str | bool] = {}
    for row in ORDER:
        made[row.name] = tile_options(row.name, facts, made, machine(bits, threads))[0]
    return made


@pytest.mark.parametrize("bits", REGISTERS)
@pytest.mark.parametrize(("turned", "dot"), [((False, True), True), ((True, True), True),
                                             ((False, False), False)])  # fmt: skip
def test_one_row_is_summed_along_the_terms_it_lies_along(
    turned: tuple[bool, bool], dot: bool, bits: int
) -> None:
    assert first_choice((1, 4000, 3000), turned, bits=bits)["dot"] is dot
    assert first_choice((500, 4000, 3000), turned, bits=bits)["dot"] is False


def test_few_rows_read_the_other_operand_from_end_to_end() -> None:
    made = first_choice((4, 4096, 4096), threads=1)
    assert made["pack"] is False and int(made["term_block"]) in STREAMED
    assert int(made["column_block"]) == 0


@pytest.mark.parametrize(
    "sizes", [(1505, 96, 1728), (512, 512, 512), (1, 4096, 4096), (40, 900, 70)]
)
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_no_thread_waits_long_for_the_others(sizes: tuple[int, int, int], threads: int) -> None:
    made = first_choice(sizes, threads=threads)
    rows, columns, _ = sizes
    micro = int(str(made["micro"]).split("x")[0])
    most = max(int(made["row_block"]) // micro, 1) * micro
    high, broad = -(-rows // most), -(-columns // (int(made["column_block"]) or columns))
    turns = -(-high * broad // threads)
    assert high * broad / (turns * threads) > 0.74


@pytest.mark.parametrize("rows", [1, 7, 16, 31, 500])
@pytest.mark.parametrize("turned", [(False, False), (False, True)])
def test_the_other_operand_is_read_once_for_few_rows(rows: int, turned: tuple[bool, bool]) -> None:
    made = first_choice((rows, 3000, 1500), turned, threads=1)
    assert int(made["row_block"]) >= rows


def test_panels_that_rows_of_memory_push_out_of_the_cache_are_copied() -> None:
    assert first_choice((512, 4096, 1024))["pack"] is True


@pytest.mark.parametrize("bits", REGISTERS)
@pytest.mark.parametrize(("rows", "columns"), pairs((1, 3, 16, 400), (16, 48, 1000)))
def test_register_tiles_fit_the_registers(bits: int, rows: int, columns: int) -> None:
    graph = canonical(trace(lambda a, b: a @ b, spec((rows, 64)), spec((64, columns))))
    facts = tile_facts(graph, whole(graph))
    assert facts is not None
    offered = tile_options(MICRO.name, facts, {DOT.name: False}, machine(bits))
    assert offered
    for name in offered:
        high, wide = map(int, str(name).split("x"))
        vectors = wide // (bits // 32)
        # One row's sums take the right operand from memory.
        loaded = vectors if high > 1 else 1
        assert high * vectors + loaded + 1 <= REGISTERS[bits]


def test_an_operand_that_can_be_read_as_it_lies_is_not_copied() -> None:
    graph = program("product")
    copied = [s for s in kernel_statements(graph, pack=True) if isinstance(s, Local)]
    lying = [s for s in kernel_statements(graph, pack=False) if isinstance(s, Local)]
    assert sum(s.name.startswith("panel") for s in copied) == 2
    assert not any(s.name.startswith("panel") for s in lying)


@pytest.mark.parametrize(("micro", "copied"), [("28x16", 1), ("14x32", 0)])
def test_part_of_a_vector_is_copied_where_tiles_are_one_vector_wide(
    micro: str, copied: int
) -> None:
    graph = canonical(trace(lambda a, b: a @ b, spec((37, 70)), spec((70, 69))))
    lying = kernel_statements(graph, pack=False, micro=micro, vector_bits=512)
    assert sum(isinstance(s, Local) and s.name.startswith("panel") for s in lying) == copied


def test_rows_that_are_scaled_are_scaled_after_their_product() -> None:
    scratch = {s.name for s in kernel_statements(program("norm_before")) if isinstance(s, Local)}
    assert not any(name.startswith("left") for name in scratch), "the rows are read as they lie"
    assert any(name.startswith("total") for name in scratch)


def test_the_quotient_of_a_softmax_is_taken_of_results_only() -> None:
    group, _ = extract(program("attention"), whole(program("attention")))
    text = cpu.rendered(group, launch_of(), False).text
    places = [found.start() for found in re.finditer(" / v", text)]
    assert places and all("out0[" in text[place : place + 80] for place in places)


@pytest.mark.parametrize(
    ("name", "columns", "rows"), [("epilogue", True, 1), ("softmax_after", False, 1)]
)
def test_columns_are_parallel_unless_rows_are_reduced(name: str, columns: bool, rows: int) -> None:
    graph, group = program(name), whole(program(name))
    forms = check_group(graph, group.nodes, group.outputs)
    assert not isinstance(forms, Refusal)
    tiles = tiles_of(graph, forms[0])
    assert tiles is not None
    assert (bool(tiles.columns), len(tiles.rows)) == (columns, rows)
    assert columns or row_scratch(graph, forms[0], tiles) == 130


def test_rows_that_scratch_cannot_hold_are_refused() -> None:
    def normal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return layer_norm(a @ b)

    graph = canonical(trace(normal, spec((64, 16)), spec((16, 1 << 17))))
    group = whole(graph)
    found = check_group(graph, group.nodes, group.outputs)
    assert isinstance(found, Refusal)
    assert found.rule == "scratch"


def test_products_of_whole_numbers_that_are_no_i32_stay_alone() -> None:
    graph = canonical(trace(lambda a, b: a @ b + 1, spec((8, 8), "i64"), spec((8, 8), "i64")))
    group: FusionGroup = whole(graph)
    found = check_group(graph, group.nodes, group.outputs)
    assert isinstance(found, Refusal)
    assert found.rule == "library"


def test_the_text_of_a_register_tile() -> None:
    tiles = kernel_statements(program("product"), micro="2x64", vector_bits=512)
    tile = next(s for s in tiles if isinstance(s, TileProduct) and s.rows == 1)
    lines = list(tile_text(tile, str, 64))
    assert lines[4] == "  af_floatx16 c0_0 = (af_floatx16){0};"
    assert "  for (int64_t tk = 0;" in lines[8]
    assert lines[-2] == "  *(af_floatx16_u *)(tc + 48) = c0_48;"
    assert tile.extent == ix.lit(70)


def test_long_sums_are_cut_where_a_panel_would_not_fit_a_stack() -> None:
    graph = canonical(trace(lambda a, b: a @ b, spec((40, 20_000)), spec((20_000, 64))))
    chosen = CpuLaunchSpace().choose(graph, whole(graph), loops_first, "")
    assert error(graph, chosen) < 1e-4
    with pytest.raises(LoweringError, match="a block would keep"):
        error(graph, launch_of(term_block=0))


@pytest.mark.parametrize(("name", "dtype"), [("prologue", "f32"), ("product", "f16")])
def test_rows_that_are_copied_are_few_where_they_are_long(name: str, dtype: str) -> None:
    function, _ = PROGRAMS[name]
    graph = canonical(trace(function, spec((4000, 9000), dtype), spec((9000, 64), dtype)))
    facts = tile_facts(graph, whole(graph))
    assert facts is not None and facts.row_bytes == 9000 * 4
    assert all(int(rows) * facts.row_bytes <= 1 << 20 for rows in tile_options(
        ROW_BLOCK.name, facts, {DOT.name: False, MICRO.name: "6x64"}, machine(512)
    ))  # fmt: skip


def test_sums_too_long_to_be_copied_are_no_tiles() -> None:
    graph = canonical(
        trace(lambda a, b: a @ b, spec((16, 70_000), "f16"), spec((70_000, 8), "f16"))
    )
    group = whole(graph)
    forms = check_group(graph, group.nodes, group.outputs)
    assert not isinstance(forms, Refusal) and tiles_of(graph, forms[0]) is None
