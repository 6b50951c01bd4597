"""The tile schedule on CUDA: right on the emulator, compiled by NVRTC, within what blocks hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from autofuse import spec, trace
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.cuda.geometry import UnsupportedKernel
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.backends.emulator.emulator import Emulated, EmulatorError
from autofuse.frontends import array_api as xp
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.cuda import shape as cuda_shape
from autofuse.kernel.cuda.tile import thread_tile
from autofuse.kernel.ir.types import (
    Kernel,
    Let,
    Local,
    Loop,
    Panel,
    Param,
    Stmt,
    Store,
    TileProduct,
)
from autofuse.kernel.passes import (
    deal_rows,
    drop_dead,
    fuse_lanes,
    keep_rows,
    narrow_indices,
    private_rows,
    stage_panels,
    verify,
    warp_rows,
)
from autofuse.kernel.text.dialects import CUDA
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Load, Sym
from autofuse.plan.fusion.groups import group_of, is_source
from autofuse.plan.parameters import LaunchSettingError
from autofuse.plan.types import FusionGroup, LaunchConfig, Setting
from search_spaces import CudaLaunchSpace
from tests.support.emulation import OneKernel, library_of, one_kernel, run_kernel
from tests.support.kernel_texts import text
from tests.support.loop_kernels import loop

F32, I64 = DType.F32, DType.I64
Shape = tuple[int, ...]
Function = Callable[..., object]


def gelu(x):
    return x / (1 + np.exp(-1.702 * x))


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def norm(x):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5)


PROGRAMS: dict[str, tuple[Function, list[Shape]]] = {
    "product": (lambda a, b: a @ b, [(70, 70), (70, 100)]),
    "epilogue": (
        lambda a, b, c, r: gelu(a @ b + c) + r, [(37, 30), (30, 90), (90,), (37, 90)],
    ),
    "right turned": (lambda a, b: a @ b.T, [(37, 30), (90, 30)]),
    "left turned": (lambda a, b: a.T @ b, [(30, 37), (30, 90)]),
    "batch": (lambda a, b: a @ b * 2, [(3, 37, 20), (3, 20, 50)]),
    "shared right": (lambda a, b: gelu(a @ b), [(3, 37, 20), (20, 50)]),
    "prologues": (lambda a, b: gelu(a) @ (b * b), [(37, 30), (30, 90)]),
    "two products": (lambda a, b, c: gelu(a @ b) * (a @ c), [(37, 30), (30, 90), (30, 90)]),
    "softmax": (lambda a, b: softmax(a @ b), [(37, 30), (30, 90)]),
    "norm before": (lambda a, b: norm(a) @ b, [(37, 30), (30, 90)]),
    "norm and residual": (lambda a, b: norm(a) @ b + a, [(37, 50), (50, 50)]),
    "two layers": (lambda a, b, c: gelu(a @ b) @ c, [(37, 30), (30, 90), (90, 50)]),
    "attention": (
        lambda q, k, v: softmax(q @ np.swapaxes(k, -1, -2) * 0.3) @ v,
        [(2, 1, 37, 16), (2, 1, 40, 16), (2, 1, 40, 16)],
    ),
    "three products": (
        lambda a, b, c, d: softmax(a @ b) @ c @ d, [(37, 30), (30, 40), (40, 20), (20, 50)],
    ),
    "convolution": (
        lambda x, k: gelu(xp.conv(x, k, stride=(2, 1), padding=1)),
        [(2, 3, 9, 10), (20, 3, 3, 3)],
    ),
    "column sums": (lambda a, b: np.sum(a @ b, axis=0), [(37, 30), (30, 90)]),
    "result turned": (lambda a, b: (a @ b).T + 1, [(37, 30), (30, 90)]),
    "one row": (lambda a, b: gelu(a @ b), [(1, 70), (70, 90)]),
    "argmax": (lambda a, b: np.argmax(a @ b, axis=-1), [(37, 30), (30, 90)]),
    "logsumexp": (lambda a, b: np.log(np.sum(np.exp(a @ b), axis=-1)), [(37, 30), (30, 90)]),
}  # fmt: skip
USUAL: dict[str, Setting] = {
    "threads": 64, "impl": "loops", "micro": "32x32", "row_block": 64, "pack": True,
}  # fmt: skip
SETTINGS: list[dict[str, Setting]] = [
    {},
    {"pack": False, "grid": "one", "micro": "64x64"},
    {"micro": "16x64", "term_block": 16, "row_block": 16, "column_block": 64},
    {"micro": "8x32", "row_block": 8, "pack": False, "term_block": 16, "threads": 128, "vector": 4},
    {"micro": "64x64", "threads": 256, "pack": False, "row_block": 128},
]  # fmt: skip

FOR_ROWS: list[dict[str, Setting]] = [
    {"reduce": "block", "vector": 4, "stages": 2, "hints": True, "keep": "registers"},
    {"reduce": "cluster", "parts": 2, "early": True, "pack": False},
]  # fmt: skip


def program(name: str, dtype: str = "f32") -> Graph:
    function, shapes = PROGRAMS[name]
    return canonical(trace(function, *[spec(shape, dtype) for shape in shapes]))


def made(graph: Graph, **settings: Setting) -> OneKernel:
    return one_kernel(graph, LaunchConfig.of(**{**USUAL, **settings}))


def check(library: Emulated, one: OneKernel, tolerance: float = 2e-4) -> None:
    inputs = random_inputs(one.graph, 1)
    found = run_kernel(library, one, inputs)
    for got, wanted in zip(found, evaluate(one.graph, inputs), strict=True):
        error = np.abs(np.asarray(got, np.float64) - np.asarray(wanted, np.float64))
        assert np.max(error / (1 + np.abs(wanted))) < tolerance


def some(at: int) -> list[dict[str, Setting]]:
    """Three of the settings in turn, so that each meets most kinds of programs."""
    return [SETTINGS[(at + k) % len(SETTINGS)] for k in (0, 1, 3)]


@pytest.mark.wide(6)
@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        *((name, some(at)) for at, name in enumerate(PROGRAMS)),
        *(pytest.param(name, SETTINGS, marks=pytest.mark.slow) for name in PROGRAMS),
    ],
)
def test_programs_are_right_under_settings(name: str, chosen: list[dict[str, Setting]]) -> None:
    kernels = [made(program(name), **settings) for settings in chosen]
    library = library_of(kernels)
    for one in kernels:
        assert "sums[ti]" in one.text
        check(library, one)


@pytest.mark.wide(6)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_block_that_strides_over_all_tiles_overtakes_nobody(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is asked for that is made for rows; races are seen in dynamic shared memory."""
    monkeypatch.setattr(cuda_shape, "STATIC_SHARED", 0)
    small: dict[str, Setting] = {"micro": "16x32", "row_block": 16, "column_block": 32}
    kernels = [made(program(name), **small, **settings) for settings in FOR_ROWS]
    library = library_of(kernels)
    for one in kernels:
        shape = one.unit.geometry
        assert shape.shared > 0
        check(library, replace(one, unit=replace(one.unit, geometry=replace(shape, grid=1))))


@pytest.mark.parametrize("name", ["epilogue", "softmax", "two layers"])
def test_wide_floats_are_right(name: str) -> None:
    kernels = [made(program(name, "f64"), **settings) for settings in SETTINGS[:3]]
    library = library_of(kernels)
    for one in kernels:
        check(library, one, 1e-9)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["epilogue", "softmax", "prologues"])
def test_halves_are_multiplied_as_f32(name: str, dtype: str) -> None:
    kernels = [made(program(name, dtype), **settings) for settings in SETTINGS[1:4:2]]
    library = library_of(kernels)
    for one in kernels:
        check(library, one, 2e-3 if dtype == "f16" else 2e-2)


def test_kernels_compile_for_every_architecture_without_a_word() -> None:
    names = ("product", "prologues", "softmax", "two layers", "attention", "one row")
    kernels = [made(program(n), **SETTINGS[k % 5]) for k, n in enumerate(names)]
    texts = [one.text.removeprefix(CUDA.prelude) for one in kernels]
    for arch in ("sm_80", "sm_90", "sm_100"):
        assert compile_cubin("\n".join([CUDA.prelude, *texts]), arch)[1] == ""


# --- barriers -------------------------------------------------------------------------------------

BARRIER = re.compile(r"(if \(t0 \+ \d+ < [^;]*\) )?__sync(threads|warp)\(\);")


def without(one: OneKernel, number: int) -> OneKernel:
    """The kernel without one of its barriers."""
    start = one.text.index('extern "C" __global__')
    spot = list(BARRIER.finditer(one.text, start))[number]
    changed = one.text[: spot.start()] + ";" + one.text[spot.end() :]
    name = f"{one.unit.source.name}_{number}"
    source = replace(one.unit.source, name=name, text=changed.replace(one.unit.source.name, name))
    return replace(one, unit=replace(one.unit, source=source))


def test_a_barrier_left_out_is_seen() -> None:
    one = made(program("product"), **SETTINGS[1])
    assert one.unit.geometry.shared > 0  # whose races the emulator sees
    # Of the first tile: operands have come, all have read them, the sums are there for others.
    faulty = [without(one, number) for number in range(3)]
    library = library_of(faulty)
    for other in faulty:
        with pytest.raises(EmulatorError, match=r"race on dynamic shared memory"):
            check(library, other)


# --- passes ---------------------------------------------------------------------------------------

PARAMS = (Param("x", F32, 10**6, "in"), Param("out", F32, 10**6, "out"))
b, r, c, d = Sym("b", I64, 4), Sym("r", I64, 8), Sym("c", I64, 16), Sym("d", I64, 16)
ACC, ROW = Local("acc", F32, 128), Local("row", F32, 16)
v = Sym("v", F32)


def kernel(*body: Stmt, **facts: Setting) -> Kernel:
    return Kernel("k", PARAMS, (loop("grid", b, *body),), tuple(facts.items()))


def at(row: Expr, lane: Expr) -> Expr:
    return ix.iadd(ix.imul(row, 16), lane)


def product(left: str = "x", right: str = "panel") -> TileProduct:
    start = ix.imul(b, 80)
    panels = (Panel("acc", ix.lit(0), 16), Panel(left, start, 10), Panel(right, ix.lit(0), 16))
    return TileProduct(8, 16, ix.lit(10), *panels, F32, True)


PACK = loop("lane", c, Store("panel", c, Load("x", c, F32)))
PANEL = Local("panel", F32, 160)
READ = loop("lane", c, Let(v, Load("acc", at(r, c), F32)), Store("out", at(r, c), v))


def test_operands_in_global_memory_are_staged() -> None:
    staged = stage_panels(kernel(PANEL, PACK, ACC, product()))
    lines = str(verify(staged)).splitlines()
    assert text("\n".join(lines[-2:])) == text("""
        local stage0: f32[128]
        tile 8x16x10:i64 f32: acc[0:i64; 16, 1] = x[mul(b, 80:i64); 10, 1] * panel[0:i64; 16, 1] \
through stage0
    """)
    inside = kernel(PANEL, PACK, ACC, product("panel"))
    assert stage_panels(inside) == inside


def test_positions_of_panels_become_short() -> None:
    (grid,) = narrow_indices(kernel(PANEL, PACK, ACC, product())).body
    assert isinstance(grid, Loop)
    tile = grid.body[-1]
    assert isinstance(tile, TileProduct)
    assert tile.left.start.dtype is tile.extent.dtype is DType.I32


def test_rows_between_tiles_are_dealt_to_warps() -> None:
    rows = loop("serial", r, READ)
    dealt = deal_rows(kernel(PANEL, PACK, ACC, product(), rows))
    assert "warp r < 8" in str(verify(dealt))
    summed = loop("serial", r, loop("lane", c, Store("acc", c, Load("acc", at(r, c), F32))))
    chained = kernel(PANEL, PACK, ACC, product(), summed)
    assert deal_rows(chained) == chained
    assert deal_rows(kernel(ACC, rows)) == kernel(ACC, rows)
    around = kernel(PANEL, ACC, loop("serial", r, PACK, product(), READ))
    assert deal_rows(around) == around


def test_passes_for_rows_leave_tiles_alone() -> None:
    tiled = kernel(PANEL, PACK, ACC, product(), READ, reduce="warp", keep="registers")
    assert warp_rows(tiled) == keep_rows(tiled) == private_rows(tiled) == tiled


def test_lanes_do_not_move_over_a_tile_that_reads_what_they_write() -> None:
    first = loop("lane", d, Store("out", d, Load("x", d, F32)))
    tiled = kernel(PANEL, ACC, first, product(), PACK)
    assert fuse_lanes(tiled) == tiled


def test_scratch_that_nothing_reads_goes() -> None:
    unread = loop("lane", d, Store("row", d, Load("x", d, F32)))
    assert drop_dead(kernel(ROW, unread, PANEL, PACK, ACC, product())) == kernel(
        PANEL, PACK, ACC, product()
    )


def test_lanes_compute_no_tile_alone() -> None:
    with pytest.raises(AssertionError, match="together"):
        verify(kernel(PANEL, ACC, loop("lane", c, product())))


@pytest.mark.parametrize("threads", [32, 64, 256])
@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (1, 256), (5, 48), (128, 128), (3, 2000)])
def test_threads_cover_a_tile(rows: int, columns: int, threads: int) -> None:
    own = thread_tile(rows, columns, threads, 4)
    assert own.across * own.down <= threads
    assert own.across * own.columns >= columns
    assert own.down * own.rows >= rows
    assert columns % own.vector == 0


# --- what is offered ------------------------------------------------------------------------------


def whole(graph: Graph) -> FusionGroup:
    return group_of(graph, [n for n in range(len(graph.nodes)) if not is_source(graph, n)])


LARGE: dict[str, list[Shape]] = {
    "epilogue": [(4096, 1024), (1024, 4096), (4096,), (4096, 4096)],
    "prologues": [(512, 1024), (1024, 1024)],
    "softmax": [(4096, 64), (64, 1024)],
    "attention": [(2, 8, 512, 64)] * 3,
    "one row": [(1, 4096), (4096, 4096)],
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("device", ["H100", "RTX4090"])
def test_what_is_offered_fits(name: str, device: str) -> None:
    shapes = [spec(shape) for shape in LARGE[name]]
    graph = canonical(trace(PROGRAMS[name][0], *shapes))
    space = CudaLaunchSpace(TARGETS[device])
    assert space.kind(graph, whole(graph)) == "product"
    for pick in (0, 1, -1):

        def choose(_: str, options: tuple[Setting, ...], pick: int = pick) -> Setting:
            return options[pick % len(options)]

        one = one_kernel(graph, space.choose(graph, whole(graph), choose, "p"))
        assert one.unit.geometry.shared <= TARGETS[device].shared_per_block


def test_half_a_warp_computes_no_tiles() -> None:
    with pytest.raises(LaunchSettingError, match="a block of 16 threads cannot compute tiles"):
        made(program("softmax"), threads=16)


def test_scratch_beyond_a_block_is_refused_by_name() -> None:
    graph = canonical(trace(PROGRAMS["prologues"][0], spec((512, 4096)), spec((4096, 64))))
    with pytest.raises(UnsupportedKernel, match="bytes of shared memory"):
        made(graph, micro="64x64")
