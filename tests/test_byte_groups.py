"""Products of bytes by warpgroups: exact on the emulator, whose faults are seen, and compiled for
sm_90a."""

from __future__ import annotations

from itertools import product

from autofuse.backends.cuda.build import build_flags
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.cuda.facts import parse_log
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.kernel.cuda.wgmma import WIDTHS, registers
from autofuse.kernel.text.dialects import CUDA
from autofuse.plan.parameters import BYTE_GROUP_MMA, BYTE_MMA, NO_MMA, Setting
from autofuse.plan.types import LaunchConfig
from benchmarks.sass_tensor import generated
from tests.support.byte_products import Case, drawn_launch, exact, options_of, program
from tests.support.emulation import OneKernel, library_of, one_kernel
from tests.support.planted import all_are_seen, body

USUAL: dict[str, Setting] = {
    "impl": "loops", "mma": BYTE_GROUP_MMA, "threads": 384, "micro": "128x128", "row_block": 128,
    "column_block": 128, "stages": 3,
}  # fmt: skip
SIGNS = tuple(product(("i8", "u8"), repeat=2))
Sizes = tuple[int, int, int]


def grouped(
    name: str, types: tuple[str, str] = ("u8", "i8"), sizes: Sizes = (136, 80, 272),
    **settings: Setting,
) -> OneKernel:  # fmt: skip
    return one_kernel(program(name, sizes, types), LaunchConfig.of(**{**USUAL, **settings}))


def test_bytes_in_all_orders_and_of_all_signs_are_exact() -> None:
    """Those that lie along their terms are copied by pieces, others one by one."""
    kernels = [grouped("right turned", types) for types in SIGNS]
    others = [grouped(name) for name in ("product", "left turned", "both turned", "batch")]
    fewer: dict[str, Setting] = {"micro": "64x64", "row_block": 64, "column_block": 64}
    others += [
        grouped("narrow result", sizes=(70, 45, 33), **fewer, threads=256, stages=2),
        grouped("right turned", sizes=(200, 72, 520), tail=2, wave=3, **fewer, threads=256),
        grouped("right turned", term_block=64, threads=512, stages=4),
    ]
    library = library_of([*kernels, *others])
    for one in kernels:
        assert body(one).count("af_copy_ahead") == 2
    for one in (*kernels, *others):
        assert "af_multiply_group(bytes, " in body(one) and exact(library, one)[0]


def test_products_of_all_widths_are_exact_and_compile_without_a_word() -> None:
    wide: dict[str, Setting] = {"micro": "64x256", "row_block": 64, "column_block": 256}
    kernels = [
        grouped("right turned", types, (70, columns, 80), threads=256, stages=2, **wide)
        for columns, types in zip((30, 60, 90, 128, 190, 256), SIGNS + SIGNS[:2], strict=True)
    ]
    library = library_of(kernels)
    for one, width in zip(kernels, WIDTHS, strict=True):
        assert f"bytes, {width}, " in body(one) and exact(library, one)[0]
    assert compile_cubin("\n".join([CUDA.prelude, *map(body, kernels)]), "sm_90a")[1] == ""


def drawn(seed: int) -> Case:
    """A drawn product under settings of warpgroups."""
    return drawn_launch(
        seed,
        lambda r: {
            "mma": BYTE_GROUP_MMA, "threads": r.choice((256, 384)), "stages": r.choice((2, 3, 4)),
            "micro": "128x64", "row_block": 128 * r.choice((1, 2)), "column_block": 64,
        },
    )  # fmt: skip


def test_drawn_products_are_exact() -> None:
    cases = [drawn(seed) for seed in range(6)]
    library = library_of([case.one for case in cases])
    for case in cases:
        assert exact(library, case.one)[0], case.name


FAULTS = {
    "without_sign": ("128, u8, i8", "128, u8, u8"),
    "with_sign": ("128, u8, i8", "128, i8, i8"),
    "half_a_step": ("s * 32", "s * 16"),
    "exchanged_otherwise": ("^ (line & 7)", "^ (line & 3)"),
    "blocks_too_near": (", 1024)", ", 512)"),
    "stores_not_shown": ("af_show_stores();", ""),
    "no_wait_for_products": ("af_group_await(0);", ""),
    "place_given_back_early": ("af_group_await(1);\n", "af_group_await(2);\n"),
    "one_term_less": ("terms = 784;", "terms = 783;"),
    "a_row_too_far": ("line < high", "line <= high"),
}  # fmt: skip


def test_planted_faults_are_seen() -> None:
    one = grouped("right turned", sizes=(136, 128, 784))
    all_are_seen(one, FAULTS, lambda library, kernel: exact(library, kernel)[0])


def test_they_are_offered_first_where_both_operands_lie_along_their_terms() -> None:
    sizes, types = (512, 512, 64), ("u8", "i8")
    along = program("right turned", sizes, types)
    assert options_of(along, "H100") == (BYTE_GROUP_MMA, BYTE_MMA, NO_MMA)
    assert options_of(along, "A100") == (BYTE_MMA, NO_MMA)
    for name in ("product", "both turned"):
        assert options_of(program(name, sizes, types), "H100") == (BYTE_MMA, NO_MMA)


def test_the_default_on_hopper_spills_nothing() -> None:
    target = TARGETS["H100"]
    unit, launch = generated(program("right turned", (4096, 4096, 4096), ("i8", "i8")), target)
    source = unit.source
    log = compile_cubin(source.text, target.code_for, build_flags(source))[1]
    facts = parse_log(log)[source.name]
    assert dict(launch.settings)["mma"] == BYTE_GROUP_MMA
    assert facts.spilled == 0 and facts.registers == registers(384, 1).first
    assert "serialized" not in log and "setmaxnreg" not in log
