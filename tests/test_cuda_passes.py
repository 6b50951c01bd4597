"""What each pass for CUDA does to a kernel, as text before and after, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from autofuse.kernel.ir.types import Assign, Fold, Kernel, Let, Local, Param, Stmt, Store
from autofuse.kernel.passes import (
    column_blocks,
    flatten_lanes,
    join_rows,
    keep_rows,
    narrow_indices,
    peel_tails,
    private_rows,
    scratch_params,
    short_indices,
    split_rows,
    transpose_tiles,
    warp_rows,
    widen_lanes,
)
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Load, Sym, call
from tests.support.kernel_texts import text
from tests.support.loop_kernels import (
    F16,
    F32,
    I64,
    ITEMS,
    ZERO,
    at,
    body_of,
    c,
    d,
    kernel,
    loop,
    r,
    s,
    summed,
    v,
    var,
    w,
    x,
)

SUMS = loop("grid", r, ZERO, summed(c, at(r, 64, c)), Store("out", r, s))


def test_flatten_lanes_folds_once() -> None:
    k = var("k", 9)
    rows = loop("serial", k, summed(c, at(k, 64, c)))
    assert body_of(flatten_lanes(kernel(loop("grid", r, ZERO, rows)))) == text("""
        grid r < 10:i64
          var s: f32 = 0.0:f32
          lane c < 576:i64 add->s
            s = add(s, x[c])
    """)
    mixed = kernel(loop("grid", r, ZERO, loop("serial", k, *rows.body, Assign(s, x(k)))))
    assert flatten_lanes(mixed) == mixed


def test_flatten_lanes_takes_as_many_rows_as_there_are() -> None:
    """Where at most so many are known to be there."""
    k, most = var("k", 9), Call("min", (ix.lit(9), r), I64)
    stored = loop("lane", c, Store("out", at(k, 64, c), x(c)))
    rows = replace(loop("serial", k, stored), extent=most)
    assert body_of(flatten_lanes(kernel(loop("grid", r, rows)))) == text("""
        grid r < 10:i64
          lane c < mul(min(9:i64, r), 64:i64)
            out[c] = x[rem(c, 64:i64)]
    """)
    unknown = replace(rows, var=Sym("k", I64))
    assert flatten_lanes(kernel(loop("grid", r, unknown))) == kernel(loop("grid", r, unknown))


def test_peel_tails_gives_the_short_tile_a_segment() -> None:
    b, lane = var("b", 6), var("l", 40)
    start = ix.imul(ix.imod(b, 3), 40)
    extent = Call("min", (ix.lit(40), ix.isub(ix.lit(100), start)), I64)
    place = at(ix.idiv(b, 3), 100, ix.iadd(start, lane))
    tiles = replace(loop("lane", lane, Store("out", place, x(place))), extent=extent)
    assert body_of(peel_tails(kernel(loop("grid", b, tiles)))) == text("""
        grid b < 4:i64
          lane l < 40:i64
            out[add(add(mul(div(b, 2:i64), 100:i64), mul(rem(b, 2:i64), 40:i64)), l)] = \
x[add(add(mul(div(b, 2:i64), 100:i64), mul(rem(b, 2:i64), 40:i64)), l)]
        grid b < 2:i64
          lane l < 20:i64
            out[add(add(mul(b, 100:i64), l), 80:i64)] = x[add(add(mul(b, 100:i64), l), 80:i64)]
    """)
    other = kernel(loop("grid", b, replace(tiles, extent=Call("min", (ix.lit(40), b), I64))))
    assert peel_tails(other) == other


def test_warp_rows_deals_rows_to_warps() -> None:
    assert body_of(warp_rows(kernel(SUMS, reduce="warp", threads=128))) == text("""
        grid r < 3:i64
          warp r_w < min(4:i64, add(mul(r, -4:i64), 10:i64))
            let r_r: i64 = add(mul(r, 4:i64), r_w)
            var s: f32 = 0.0:f32
            lane c < 64:i64 add->s
              s = add(s, x[add(mul(r_r, 64:i64), c)])
            out[r_r] = s
    """)
    assert warp_rows(kernel(SUMS)) == kernel(SUMS)
    assert warp_rows(kernel(ITEMS, reduce="warp")).body == (ITEMS,)


def test_split_rows_shares_a_row_and_scratch_params_lets_its_blocks_meet() -> None:
    split = split_rows(kernel(SUMS, reduce="split", parts=3, vector=4))
    assert body_of(split) == text("""
        grid r < 30:i64
          let r_r: i64 = div(r, 3:i64)
          var s: f32 = 0.0:f32
          part c_q < 3:i64 add->s
            lane c < min(24:i64, add(mul(c_q, -24:i64), 64:i64)) add->s
              s = add(s, x[add(add(mul(r_r, 64:i64), mul(c_q, 24:i64)), c)])
          out[r_r] = s
    """)
    work = [p for p in scratch_params(split).params if p.role == "work"]
    assert [(p.dtype, p.size) for p in work] == [(DType.U32, 10), (F32, 30)]
    twice = loop("grid", r, ZERO, SUMS.body[1], loop("lane", d, Store("out", d, s)))
    assert split_rows(kernel(twice, reduce="split", parts=3)).body == (twice,)
    waits = split_rows(kernel(twice, reduce="barrier", parts=3))
    assert body_of(waits).count("part") == 2
    two = kernel(twice, SUMS, reduce="barrier", parts=3)
    assert split_rows(two) == two


def test_split_rows_leaves_rows_that_other_lanes_read() -> None:
    turned = Load("row", ix.isub(ix.lit(63), d), F32)
    body = (
        Local("row", F32, 64), ZERO, loop("lane", c, Store("row", c, x(c))),
        summed(c, c), loop("lane", d, Store("out", d, turned)),
    )  # fmt: skip
    rows = kernel(loop("grid", r, *body), reduce="barrier", parts=2, keep="registers")
    assert split_rows(rows) == rows
    assert private_rows(rows) == rows


def test_keep_rows_keeps_what_two_passes_compute_alike() -> None:
    square = Let(w, call("mul", v, v))
    first = loop(
        "lane", c, Let(v, x(at(r, 64, c))), square,
        Assign(s, call("add", s, w)), folds=(Fold(s, "add"),),
    )  # fmt: skip
    second = loop(
        "lane", d, Let(v, x(at(r, 64, d))), square, Store("out", d, call("div", w, s)),
    )  # fmt: skip
    before = kernel(loop("grid", r, ZERO, first, second), keep="shared")
    assert body_of(keep_rows(before)) == text("""
        grid r < 10:i64
          var s: f32 = 0.0:f32
          local kept0: f32[64]
          lane c < 64:i64 add->s
            let v: f32 = x[add(mul(r, 64:i64), c)]
            let w: f32 = mul(v, v)
            kept0[c] = w
            s = add(s, w)
          lane d < 64:i64
            let v: f32 = x[add(mul(r, 64:i64), d)]
            let w: f32 = kept0[d]
            out[d] = div(w, s)
    """)
    assert keep_rows(replace(before, facts=())).body == before.body
    assert keep_rows(replace(before, facts=(("keep", "reread"),))).body == before.body


ROW = (
    Local("row", F32, 64),
    loop("lane", c, Store("row", c, x(at(r, 64, c)))),
    loop("lane", d, Store("out", at(r, 64, d), Load("row", d, F32))),
)


def test_private_rows_stay_in_registers() -> None:
    assert body_of(private_rows(kernel(loop("grid", r, *ROW), keep="registers", threads=32))) == (
        text("""
        grid r < 10:i64
          private row: f32[2]
          lane c < 64:i64 pass c_n
            row[c_n] = x[add(mul(r, 64:i64), c)]
          lane d < 64:i64 pass d_n
            out[add(mul(r, 64:i64), d)] = row[d_n]
    """)
    )
    longer = replace(ROW[0], size=64 * 1024)
    lanes = [var(name, 64 * 1024) for name in "cd"]
    body = (longer, loop("lane", lanes[0], Store("row", lanes[0], x(lanes[0]))))
    too_long = kernel(loop("grid", r, *body), keep="registers", threads=32)
    assert private_rows(too_long) == too_long


def test_private_rows_follow_vectors() -> None:
    wide = widen_lanes(kernel(loop("grid", r, *ROW), keep="registers", threads=32, vector=2))
    assert "row[mul(c, 2:i64) ..] = " in body_of(wide)
    done = body_of(private_rows(wide))
    assert "private row: f32[2]" in done
    assert "row[mul(c_n, 2:i64)] = c_x1_0" in done
    assert "let d_x1_1: f32 = row[add(mul(d_n, 2:i64), 1:i64)]" in done


def test_widen_lanes_shares_accesses() -> None:
    assert body_of(widen_lanes(kernel(ITEMS, vector=4))) == text("""
        grid r < 10:i64
          lane c < 16:i64
            let c_x1_0 c_x1_1 c_x1_2 c_x1_3 = x[add(mul(r, 64:i64), mul(c, 4:i64)) ..]
            out[add(mul(r, 64:i64), mul(c, 4:i64)) ..] = c_x1_0, c_x1_1, c_x1_2, c_x1_3
    """)


def test_widen_lanes_keeps_what_is_not_aligned() -> None:
    def shifted(by: int, width: int = 64) -> Kernel:
        place = ix.iadd(at(r, width, c), ix.lit(by))
        return kernel(
            loop("grid", r, loop("lane", c, Store("out", at(r, 64, c), x(place)))), vector=4
        )

    assert body_of(widen_lanes(shifted(4))).count("..") == 2
    # An odd start, or rows of odd length: the loads stay single, the store is shared.
    for single in (shifted(1), shifted(0, 63)):
        done = body_of(widen_lanes(single))
        assert done.count("..") == 1 and done.count("x[") == 4
    strided = loop("lane", c, Store("out", ix.imul(c, 2), x(ix.imul(c, 2))))
    assert widen_lanes(kernel(loop("grid", r, strided), vector=4)).body[0].body == (strided,)


def test_widen_lanes_takes_16_bytes_at_most_and_leaves_a_rest() -> None:
    lane = var("l", 67)
    params = (Param("x", F16, 1000, "in"), Param("out", F32, 1000, "out"))
    wide = Call("cast", (Load("x", lane, F16),), F32)
    items = loop("grid", r, loop("lane", lane, Let(v, wide), Store("out", lane, v)))
    done = body_of(widen_lanes(Kernel("k", params, (items,), (("vector", 8),))))
    assert "x[mul(l, 8:i64) ..]" in done
    assert done.count("out[") == 3 and "out[add(mul(l, 8:i64), 4:i64) ..]" in done
    assert "lane l < 8:i64" in done and "lane l_t < 3:i64" in done


def test_widen_lanes_folds_every_element_and_refuses_what_reads_a_total() -> None:
    done = body_of(widen_lanes(kernel(SUMS, vector=2)))
    assert "lane c < 32:i64 add->s" in done and done.count("s = add(s, c_x1_") == 2
    reads = loop("lane", c, Let(v, call("add", s, x(c))), Assign(s, v), folds=(Fold(s, "add"),))
    kept = kernel(loop("grid", r, ZERO, reads), vector=2)
    assert widen_lanes(kept) == kept
    odd = kernel(loop("grid", r, ZERO, summed(var("c", 63), var("c", 63))), vector=2)
    assert widen_lanes(odd) == odd


K = var("k", 300)
COLUMNS = loop(
    "grid", var("b", 1),
    loop(
        "lane", c, ZERO,
        loop("serial", K, Assign(s, call("add", s, x(at(K, 64, c))))), Store("out", c, s),
    ),
)  # fmt: skip


def test_column_blocks_share_the_rows_of_32_columns() -> None:
    assert body_of(column_blocks(kernel(COLUMNS, reduce="block"))) == text("""
        grid b < 2:i64
          column c_x < 32:i64
            var s: f32 = 0.0:f32
            lane k < 300:i64 add->s
              s = add(s, x[add(add(mul(k, 64:i64), mul(b, 32:i64)), c_x)])
            out[add(mul(b, 32:i64), c_x)] = s
    """)
    split = body_of(column_blocks(kernel(COLUMNS, reduce="split", parts=2)))
    assert "grid b < 4:i64" in split and "part k_q < 2:i64 add->s" in split
    assert column_blocks(kernel(COLUMNS)).body == (COLUMNS,)
    recurrence = loop("serial", K, Assign(s, call("add", call("sin", s), x(K))))
    chained = loop("grid", r, loop("lane", c, ZERO, recurrence, Store("out", c, s)))
    assert column_blocks(kernel(chained, reduce="block")).body == (chained,)


def turned(rows: int, width: int, index: Expr) -> Kernel:
    """out[row*width + item] = x[index], in tiles of 1024 items."""
    b, lane = var("b", rows), var("l", width)
    row, item = var("p", rows), var("i", width)
    lanes = loop("lane", lane, Let(item, lane), Store("out", at(row, width, item), x(index)))
    return kernel(loop("grid", b, Let(row, b), lanes), transpose=True)


def test_transpose_tiles_reads_along_the_other_axis() -> None:
    row, item = var("p", 96), var("i", 64)
    done = body_of(transpose_tiles(turned(96, 64, at(item, 96, row))))
    assert done.startswith("grid t0_b < 6:i64\n  local t0_tile0: f32[1056]")
    assert "= x[add(mul(t0_i, 96:i64), t0_ar)]" in done
    assert "let t0_ar: i64 = add(mul(div(t0_b, 2:i64), 32:i64), rem(t0_m, 32:i64))" in done
    assert "out[add(mul(t0_aw, 64:i64), i)] = t0_tile0[" in done and "when" not in done
    edge = body_of(transpose_tiles(turned(90, 50, at(var("i", 50), 90, var("p", 90)))))
    assert "when and(lt(i, 50:i64), lt(t0_aw, 90:i64))" in edge and "min(" in edge
    straight = turned(96, 64, at(row, 64, item))
    assert transpose_tiles(straight) == straight


def test_join_rows_fills_a_block_with_short_rows() -> None:
    assert body_of(join_rows(kernel(ITEMS, tile=256))) == text("""
        grid r < 2:i64
          lane c < 256:i64
            let v: f32 = x[add(mul(r, 256:i64), c)]
            out[add(mul(r, 256:i64), c)] = v
        grid r < 1:i64
          lane c < 128:i64
            let v: f32 = x[add(c, 512:i64)]
            out[add(c, 512:i64)] = v
    """)
    assert join_rows(kernel(ITEMS, tile=100)).body == (ITEMS,)
    assert join_rows(kernel(SUMS, tile=256)).body == (SUMS,)


def test_short_indices_spell_out_names_that_cancel() -> None:
    p, i = var("p", 10), var("i", 40)
    lane = var("l", 400)
    body = (
        Let(p, ix.idiv(lane, 40)), Let(i, ix.imod(lane, 40)), Let(v, x(i)),
        Store("out", at(p, 40, i), v),
    )  # fmt: skip
    done = body_of(short_indices(kernel(loop("grid", r, loop("lane", lane, *body)))))
    assert "out[l] = v" in done and "let v: f32 = x[i]" in done


def test_narrow_indices_stop_where_32_bits_do() -> None:
    done = body_of(narrow_indices(kernel(ITEMS)))
    assert "grid r < 10:i32" in done and "x[add(mul(r, 64:i32), c)]" in done
    rows = var("r", 2**26)
    large = replace(ITEMS, var=rows, extent=ix.lit(2**26))
    text_ = body_of(narrow_indices(kernel(large)))
    assert "grid r < 67108864:i32" in text_
    assert "x[add(mul(cast:i64(r), 64:i64), cast:i64(c))]" in text_
    huge = var("r", 2**31)
    assert "grid r < 2147483648:i64" in body_of(
        narrow_indices(kernel(replace(ITEMS, var=huge, extent=ix.lit(2**31))))
    )


def test_narrow_indices_leave_data_alone() -> None:
    wide = Sym("n", I64)
    params = (Param("x", I64, 640, "in"), Param("out", I64, 640, "out"))
    lane = loop(
        "lane", c, Let(wide, Load("x", c, I64)), Store("out", c, call("mul", wide, c))
    )  # fmt: skip
    done = body_of(narrow_indices(Kernel("k", params, (loop("grid", r, lane),))))
    assert "let n: i64 = x[c]" in done and "out[c] = mul(n, cast:i64(c))" in done
    quotient = ix.idiv(at(r, 64, c), 7)
    divided = loop("grid", r, loop("lane", c, Store("out", quotient, x(c))))
    assert "cast:i32(div(cast:u32(add(c, r)), 7:u32))" in body_of(narrow_indices(kernel(divided)))


def test_long_chains_of_values_are_not_spelled_out() -> None:
    """Sixty squarings are sixty statements, and an expression of 2^60 parts."""

    def chain(lane: Sym, dtype: DType) -> list[Stmt]:
        names = [Sym(f"{lane.name}_v{k}", dtype) for k in range(60)]
        first = Call("cast", (lane,), dtype) if dtype is not I64 else lane
        made: list[Stmt] = [Let(names[0], call("add", first, Load("x", lane, dtype)))]
        made += [Let(b, call("mul", a, a)) for a, b in pairwise(names)]
        return [*made, Store("out", lane, names[-1])]

    for dtype in (F32, I64):
        params = (Param("x", dtype, 64, "in"), Param("out", dtype, 64, "out"))
        loops = [loop("lane", lane, *chain(lane, dtype)) for lane in (c, d)]
        start = Let(Sym("first", I64), ix.lit(0))
        before = Kernel(
            "k", params, (loop("grid", r, start, *loops),),
            (("keep", "shared"), ("vector", 2), ("threads", 32)),
        )  # fmt: skip
        done = body_of(narrow_indices(short_indices(widen_lanes(keep_rows(before)))))
        assert "local kept0" in done and len(done) < 40_000
