"""What may be chosen of how a kernel is launched: one typed table for each dialect.

A row is all there is to say of a parameter. From it follow what a launch space offers at most, what
a kernel gets that is told nothing, what is refused, what a configuration leaves out, and
docs/launch-parameters.md; the code that gives a parameter its meaning asks the row for its setting
(`TILE.of(launch)`). A name has one meaning wherever it occurs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autofuse.plan.launch_types import BLAS as BLAS
from autofuse.plan.launch_types import BLASLT as BLASLT
from autofuse.plan.launch_types import BODY as BODY
from autofuse.plan.launch_types import DIAGONAL as DIAGONAL
from autofuse.plan.launch_types import FFT as FFT
from autofuse.plan.launch_types import GEMM as GEMM
from autofuse.plan.launch_types import GENERATED as GENERATED
from autofuse.plan.launch_types import ITEM as ITEM
from autofuse.plan.launch_types import LAPACK as LAPACK
from autofuse.plan.launch_types import LOOP as LOOP
from autofuse.plan.launch_types import LOOPS as LOOPS
from autofuse.plan.launch_types import ONEDNN as ONEDNN
from autofuse.plan.launch_types import PRODUCT as PRODUCT
from autofuse.plan.launch_types import ROW as ROW
from autofuse.plan.launch_types import SOLVER as SOLVER
from autofuse.plan.launch_types import TILES as TILES
from autofuse.plan.launch_types import TRANSFORM as TRANSFORM
from autofuse.plan.launch_types import LaunchConfig as LaunchConfig
from autofuse.plan.launch_types import LaunchParameter as LaunchParameter
from autofuse.plan.launch_types import LaunchSettingError as LaunchSettingError
from autofuse.plan.launch_types import LaunchTable as LaunchTable
from autofuse.plan.launch_types import Setting as Setting


def _table(*rows: LaunchParameter[Any]) -> LaunchTable:
    return {row.name: row for row in rows}


# What every dialect knows.
IMPL = LaunchParameter(
    "impl", str, (BLAS, FFT, GENERATED), BLAS,
    "Who computes a product or a transform: a library or generated loops.", (GEMM, TRANSFORM),
)  # fmt: skip
# Arithmetic that differs from what is written; offered only where a request asks for it.
RELAXED = "relaxed"
MATH = LaunchParameter(
    "math", str, ("strict", RELAXED), "strict",
    "How exact arithmetic is: relaxed, which only a request for relaxed math offers, it may be "
    "reassociated and use reciprocals (C), or fast functions (CUDA).",
    (*LOOPS, PRODUCT, DIAGONAL), changes_text=False,
)  # fmt: skip
# Faster division is between the two: quotients are off by at most 2 units in the last place. PTX
# has such a quotient, and a square root that is off by 1 (PTX ISA, div.full and sqrt.approx); C has
# the reciprocal of a divisor that a whole row shares.
FAST_DIVISION, FAST_DIVISION_ULPS = "fast-division", 2.0
CUDA_MATH = replace(
    MATH, choices=("strict", FAST_DIVISION, RELAXED), kinds=(*LOOPS, *TILES),
    doc=f"{MATH.doc} Here strict quotients and square roots of f32 are calls that no load passes; "
    "with fast-division they err by at most 2 units in the last place instead. A relaxed "
    "product by a library rounds factors of f32 to 11 bits (TF32), and may round partial sums of "
    "16-bit factors to 16 bits.",
)  # fmt: skip
LOOP_UNROLL = LaunchParameter(
    "loop_unroll", int, (1, 2, 4), 1,
    "Iterations of a counted loop of the graph that one turn of the kernel's own loop computes; "
    "it divides the loop's iterations.", (LOOP,), least=1, most=1024,
)  # fmt: skip
TILE = LaunchParameter(
    "tile", int, (64, 128, 256, 512, 1024, 4096, 16384), 1024,
    "Items that one loop over lanes covers.", (ITEM, LOOP), least=1, most=1 << 20, spelled=True,
)  # fmt: skip
HALO = LaunchParameter(
    "halo", int, (0, 32, 64, 16, 8), 0,
    "Rows of a tile for which values that are read at shifted places are computed once and kept in "
    "scratch, with those of rows around it (0: each item computes all that it needs).", (ITEM,),
    least=0, most=1 << 14,
)  # fmt: skip
STAGE = LaunchParameter(
    "stage", bool, (True, False), True,
    "Rows that are expensive to compute are kept in scratch between passes, not computed again.",
    (ROW, PRODUCT), spelled=True,
)  # fmt: skip
MERGE = LaunchParameter(
    "merge", str, ("runs", "ranks"), "ranks",
    "Sorted runs are merged one element after another from both ends, or every element finds its "
    "own place in a search.", (ROW, PRODUCT),
)  # fmt: skip
MICRO = LaunchParameter(
    "micro", str,
    ("6x64", "14x32", "8x48", "12x32", "28x16", "4x64", "2x64", "1x64", "6x16", "4x24", "3x32",
     "5x16", "7x48", "32x32", "16x64", "16x32", "4x6", "3x8", "2x8", "1x8", "2x4",
     "1x1", "1x2", "1x4", "2x1", "2x2", "4x1", "4x2", "8x1"),
    "6x64", "Rows and columns of a product that are accumulated in registers at once.",
    (*TILES, DIAGONAL), spelled=True,
)  # fmt: skip
ROW_BLOCK = LaunchParameter(
    "row_block", int, (64, 128, 256, 512, 32, 16, 8), 128,
    "Rows of a product that one block computes.", (*TILES, DIAGONAL),
    least=1, most=1 << 31, spelled=True,
)  # fmt: skip
COLUMN_BLOCK = LaunchParameter(
    "column_block", int, (0, 32, 64, 128, 256, 512, 1024), 0,
    "Columns of a product that one block computes (0: all), or has at once where they are folded "
    "as they come.", (*TILES, DIAGONAL), least=0, most=1 << 24,
)  # fmt: skip
TERM_BLOCK = LaunchParameter(
    "term_block", int, (0, 8, 16, 32, 128, 256, 512, 1024), 0,
    "Terms of a product that are summed before the next ones are fetched (0: all).", TILES,
    least=0, most=1 << 24,
)  # fmt: skip
PACK = LaunchParameter(
    "pack", bool, (True, False), True,
    "The right operand of a product is copied panel by panel, also where it could be read as it "
    "lies.", TILES, spelled=True,
)  # fmt: skip
ACROSS = LaunchParameter(
    "across", bool, (False, True), False,
    "A tile of rows meets all panels of the right operand that its block has, packed before, and "
    "then comes the next one; otherwise a panel meets all rows of the block.", TILES,
)  # fmt: skip
SPLIT = LaunchParameter(
    "split", int, (1, 2, 4, 8, 16), 1,
    "Parts in which the terms of a product are summed at the same time; a second kernel adds them "
    "up in order, and does what follows.", TILES, least=1, most=1024,
)  # fmt: skip
PACK_LEFT = LaunchParameter(
    "pack_left", bool, (False, True), False,
    "The left operand of a product is copied too, block by block, rows next to each other.", TILES,
)  # fmt: skip
TRANSPOSE = LaunchParameter(
    "transpose", bool, (False, True), False,
    "Strided reads go through blocks: turned over in registers (C), or a padded tile of shared "
    "memory (CUDA).", (ITEM,),
)  # fmt: skip

NO_MMA, HALF_MMA, TF32_MMA, STRICT_MMA = "none", "half", "tf32", "3xtf32"
GROUP_MMA, BYTE_MMA, AMX_MMA = "wgmma", "int8", "amx"
BYTE_GROUP_MMA = "wgmma-int8"
MMA = LaunchParameter(
    "mma", str,
    (NO_MMA, HALF_MMA, TF32_MMA, STRICT_MMA, GROUP_MMA, BYTE_MMA, BYTE_GROUP_MMA, AMX_MMA), NO_MMA,
    "Instructions that multiply tiles.", TILES,
)  # fmt: skip

# What only C knows.
C_MATH = replace(
    MATH, choices=("strict", FAST_DIVISION, RELAXED), changes_text=True,
    doc=f"{MATH.doc} With fast-division, what a whole row is divided by becomes a reciprocal that "
    "the row is multiplied by, which errs by at most 2 units in the last place.",
)  # fmt: skip
C_MMA = replace(
    MMA, choices=(NO_MMA, AMX_MMA), kinds=(PRODUCT,),
    doc="Instructions that multiply tiles, sums in f32: none, or of bf16 in pairs of terms by AMX "
    "(tiles of 16 rows of 64 bytes), modelled in C where the processor has none.",
)  # fmt: skip
PREPACK = LaunchParameter(
    "prepack", bool, (True, False), False,
    "Right operands that are computed from declared constants alone are packed once, before the "
    "first call. Only the CPU packs so.", TILES,
)  # fmt: skip
DOT = LaunchParameter(
    "dot", bool, (False, True), False,
    "Vectors of a register tile run along the terms of a product, where both operands lie along "
    "them and are read as they lie; the columns of `micro` are then few.", TILES,
)  # fmt: skip
WALK = LaunchParameter(
    "walk", bool, (True, False), False,
    "The patches of a convolution are read where they lie in the image, tap after tap, not copied "
    "to rows first.", (*TILES, DIAGONAL), spelled=True,
)  # fmt: skip
LINES = LaunchParameter(
    "lines", bool, (True, False), False,
    "Register tiles of walked patches end where a line of the image does: one address is enough "
    "for their rows, and taps that are padding to all of them are left out.", (*TILES, DIAGONAL),
)  # fmt: skip
C_IMPL = replace(
    IMPL, choices=(BLAS, ONEDNN, FFT, GENERATED), kinds=(*TILES, ITEM, ROW, DIAGONAL, TRANSFORM),
    doc="Who computes a product or a transform: BLAS, generated loops or oneDNN, where it is "
    "installed. That may also compute a lone convolution, which is otherwise a kernel whatever is "
    "said. A Fourier transform is a call of pocketfft (fft) or generated loops.",
)  # fmt: skip
THREADS = LaunchParameter(
    "threads", int, (1,), 1,
    "Threads that work on a kernel together: 1 or as many as there are cores.",
    (*LOOPS, *TILES, DIAGONAL, TRANSFORM, SOLVER), changes_text=False, least=1, most=1 << 12,
    spelled=True,
)  # fmt: skip
VECTOR_BITS = LaunchParameter(
    "vector_bits", int, (512, 256), 512,
    "Width of the vector registers that the compiler is told to prefer, and of those in which a "
    "product is accumulated.", (*LOOPS, *TILES, DIAGONAL), least=64, most=2048,
)  # fmt: skip
STREAM = LaunchParameter(
    "stream", bool, (True, False), False,
    "Large results that nobody reads soon are written past the cache.", (ITEM, ROW), spelled=True,
)  # fmt: skip
AHEAD = LaunchParameter(
    "ahead", bool, (True, False), False,
    "While a row is computed in several passes, memory is asked for the next one.", (ROW,),
)  # fmt: skip
BATCH_LANES = LaunchParameter(
    "batch_lanes", bool, (False, True), False,
    "Vectors run along the innermost axis of a batch of products, where operands and result have "
    "it last: nothing is packed, and columns of `micro` are vectors of it.", (PRODUCT,),
)  # fmt: skip
PAIRS = LaunchParameter(
    "pairs", bool, (False, True), False,
    "Factors of bf16 are multiplied two terms at a time and summed in f32, by the processor's own "
    "instruction where it has one.", (PRODUCT,),
)  # fmt: skip
RESIDENT = LaunchParameter(
    "resident", bool, (False, True), False,
    "All iterations of a host loop are one job: threads go from one kernel to the next when the "
    "last piece of it is done, and the pool is asked once.", (BODY,), changes_text=False,
)  # fmt: skip
C_LAUNCH = _table(
    THREADS, C_IMPL, C_MATH, VECTOR_BITS, STAGE, MERGE, TILE, HALO, LOOP_UNROLL, STREAM, AHEAD,
    TRANSPOSE, WALK, LINES, BATCH_LANES, C_MMA, PAIRS, PREPACK, DOT, ACROSS, MICRO, ROW_BLOCK,
    COLUMN_BLOCK, TERM_BLOCK, PACK, PACK_LEFT, SPLIT, RESIDENT,
)  # fmt: skip

# What only CUDA knows.
REDUCE = LaunchParameter(
    "reduce", str, ("", "warp", "block", "split", "barrier", "cluster"), "",
    "Who folds a row: a warp, a block, or several blocks in two phases (split), waiting for each "
    "other (barrier) or through each other's shared memory (cluster). Nothing said, it is a block, "
    "and a column is folded by one thread.",
    (ROW,), spelled=True,
)  # fmt: skip
BLOCK_THREADS = LaunchParameter(
    "threads", int, (64, 128, 256, 512, 1024), 256,
    "Threads that work on a kernel together: those of one block.",
    (*LOOPS, *TILES), least=1, most=1 << 12, spelled=True,
)  # fmt: skip
ROWS = LaunchParameter(
    "rows", int, (0, 16, 32), 0,
    "Rows of one block whose warps fold them (0: one for each warp).", (ROW,), least=0, most=1024,
)  # fmt: skip
VECTOR = LaunchParameter(
    "vector", int, (1, 2, 4, 8), 1,
    "Neighbouring items that a thread loads or stores at once, at most 16 bytes.", (*LOOPS, *TILES),
)  # fmt: skip
ITEMS = LaunchParameter(
    "items", int, (1, 2, 4, 8, 16), 4,
    "Items that one thread computes; together they are the tile of its block.",
    (ITEM, LOOP, GEMM), least=1, most=1024, spelled=True,
)  # fmt: skip
KEEP = LaunchParameter(
    "keep", str, ("registers", "shared", "reread"), "shared",
    "Where a row stays between the passes over it.", (ROW,), spelled=True,
)  # fmt: skip
GRID = LaunchParameter(
    "grid", str, ("one", "stride"), "stride",
    "There is one block for each piece of the work, or any number of blocks stride over it.",
    (*LOOPS, *TILES), spelled=True,
)  # fmt: skip
STAGES = LaunchParameter(
    "stages", int, (0, 2, 3, 4, 5, 6, 8), 0,
    "Rows, or runs of terms for tensor cores, in shared memory at once, of which all but one are "
    "copied ahead while a block computes (0: none is copied ahead).", (ROW, *TILES),
)  # fmt: skip
CUDA_MMA = replace(
    MMA, choices=tuple(each for each in MMA.choices if each != AMX_MMA),
    doc="Instructions that multiply tiles, sums in f32: none, or tensor cores, of 16-bit factors "
    "(half), of f32 rounded to 11 bits (tf32), which a check may refuse, or thrice, both parts of "
    "each factor (3xtf32), or of 16-bit factors by warpgroups, of which one fetches (wgmma; sm_90 "
    "alone); of bytes, sums in i32 (int8), also by warpgroups (wgmma-int8).",
)  # fmt: skip
FRAGMENTS = LaunchParameter(
    "fragments", bool, (True, False), False,
    "Columns of products that are folded as they come stay in registers, as fragments of tensor "
    "cores: `column_block` of them at once, of `row_block` rows that are dealt to the warps.",
    (PRODUCT,),
)  # fmt: skip
HINTS = LaunchParameter(
    "hints", bool, (False, True), False,
    "Wide loads tell the second-level cache whether what they read is read again.", (ITEM, ROW),
)  # fmt: skip
MAPS = LaunchParameter(
    "maps", bool, (False, True), False,
    "One thread of the warpgroup that fetches has boxes of an operand copied, by a tensor map that "
    "the driver makes: of operands that lie in memory in lines a multiple of 16 bytes apart.",
    TILES,
)  # fmt: skip
COMPILER_UNROLL = LaunchParameter(
    "compiler_unroll", int, (0, 1, 2, 4), 0,
    "Factor by which the compiler is told to unroll innermost serial loops (0: as it likes).",
    (*LOOPS, GEMM), least=0, most=1024,
)  # fmt: skip
BLOCKS = LaunchParameter(
    "blocks", int, (0, 1, 2, 4, 8), 0,
    "Blocks wanted on a multiprocessor at once (0: any number).", (*LOOPS, *TILES),
    least=0, most=64,
)  # fmt: skip
PINGPONG = LaunchParameter(
    "pingpong", bool, (False, True), False,
    "Each warpgroup that multiplies has tiles of its own, and computes what follows one while "
    "another multiplies; one fetches for as long as the kernel runs (wgmma). With fragments two "
    "groups ask for products in turns: one multiplies while the other folds.", TILES,
)  # fmt: skip
PARTS = LaunchParameter(
    "parts", int, (0,), 0,
    "Blocks that share a row which is split (0: as many as its length asks for).",
    least=0, most=1 << 16,
)  # fmt: skip
EARLY = LaunchParameter(
    "early", bool, (False, True), False,
    "Blocks are launched while the kernel that theirs comes after still runs, and wait for its end "
    "by themselves (programmatic dependent launch). Off unless found to pay: it can only where one "
    "short kernel comes after another, and loads no longer pass stores.",
    (*LOOPS, *TILES),
)  # fmt: skip
TAIL = LaunchParameter(
    "tail", int, (1, 2, 3, 4, 5, 6, 8), 1,
    "Parts in which the terms of those tiles are summed that do not fill a wave (stream-k): the "
    "last part that is done adds them up in order and goes on.", TILES, least=1, most=64,
)  # fmt: skip
WAVE = LaunchParameter(
    "wave", int, (0,), 0, "Blocks that run at the same time, which `tail` counts waves by.",
    least=0, most=1 << 20,
)  # fmt: skip
# Tiles of a block's threads, and terms that its shared memory has room for.
CUDA_MICRO = replace(
    MICRO,
    choices=("64x64", "128x64", "128x128", "64x32", "32x64", "32x32", "16x64", "16x32", "8x128",
             "8x32", "4x64", "1x256", "1x64", "6x64", "128x256", "256x128", "64x128", "64x256",
             "256x64"),
    doc=f"{MICRO.doc} Here those of the threads of a block together.",
)  # fmt: skip
CUDA_TRANSPOSE = replace(TRANSPOSE, kinds=(ITEM, GEMM))
CUDA_ROW_BLOCK = replace(ROW_BLOCK, choices=(64, 128, 256, 512, 32, 16, 8, 4, 1))
CUDA_COLUMN_BLOCK = replace(COLUMN_BLOCK, choices=(0, 64, 128, 256, 512, 1024, 32, 16))
CUDA_TERM_BLOCK = replace(TERM_BLOCK, choices=(0, 16, 32, 64))
CUDA_RESIDENT = replace(
    RESIDENT,
    doc="All iterations of a host loop are one job: one kernel, whose blocks wait for each other "
    "after each kernel of an iteration.",
)  # fmt: skip
CUDA_IMPL = replace(
    IMPL, choices=(BLAS, BLASLT, FFT, GENERATED), kinds=(*TILES, TRANSFORM),
    doc=f"{IMPL.doc} cuBLASLt (blaslt) may also add a bias and an array, and do relu or gelu.",
)  # fmt: skip
ALGORITHM = LaunchParameter(
    "algorithm", int, (0, 1, 2, 3, 4, 5, 6, 7), 0,
    "Which algorithm of the list that cuBLASLt's heuristic gives, its best guess first.", TILES,
    changes_text=False,
)  # fmt: skip
CUDA_LAUNCH = _table(
    CUDA_IMPL, ALGORITHM, REDUCE, CUDA_MMA, FRAGMENTS, BLOCK_THREADS, ROWS, VECTOR, ITEMS, KEEP,
    GRID, STAGES, CUDA_TRANSPOSE, LOOP_UNROLL, COMPILER_UNROLL, BLOCKS, CUDA_MATH, EARLY, HINTS,
    PARTS, PINGPONG,
    CUDA_MICRO, CUDA_ROW_BLOCK, CUDA_COLUMN_BLOCK, CUDA_TERM_BLOCK, PACK, SPLIT, TAIL, WAVE,
    MAPS, CUDA_RESIDENT,
    replace(TILE, doc=f"{TILE.doc} Here threads and items say it.", kinds=(), default=0, least=0),
)  # fmt: skip
LAUNCH_TABLES: dict[str, LaunchTable] = {"c": C_LAUNCH, "cuda": CUDA_LAUNCH}


def canonical_launch(table: LaunchTable, settings: Mapping[str, Setting]) -> LaunchConfig:
    """Leaves out what a kernel gets anyway, so that equal kernels are equal candidates."""
    return LaunchConfig.of(
        **{k: v for k, v in settings.items() if table[k].spelled or v != table[k].default}
    )


def check_launch(table: LaunchTable, launch: LaunchConfig) -> None:
    """Raises LaunchSettingError for a setting that no kernel of a dialect can have. What other
    dialects know is let pass: it is without effect."""
    known = {name for each in LAUNCH_TABLES.values() for name in each}
    for name, value in launch.settings:
        if name in table:
            table[name].checked(value)
        elif name not in known:
            raise LaunchSettingError(f"no kernel has a launch parameter '{name}'")
