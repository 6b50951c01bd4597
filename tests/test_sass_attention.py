"""What is read out of attention's machine code, and what follows from it."""

from __future__ import annotations

import pytest

from autofuse.backends.cuda.devices import TARGETS
from benchmarks.sass_attention import AttentionSize, KeyBlockFacts, attention_row, busy, full_waves
from benchmarks.sass_attention_groups import GroupLoop, group_clocks


def test_pieces_go_to_whoever_is_free_longest_first() -> None:
    assert full_waves([1.0] * 6, 3) == 1
    assert full_waves([1.0] * 4, 3) == pytest.approx(4 / 6)
    assert full_waves([1, 2, 3, 4, 5], 3) == 1
    assert full_waves([9, 1, 1], 3) == pytest.approx(11 / 27)


def test_the_busiest_unit_follows_from_counts() -> None:
    facts = KeyBlockFacts(products=256, matrix_loads=80, copies=8, special=64, instructions=1000)
    found = busy(facts, TARGETS["A100"], 4)
    assert found == pytest.approx({
        "tensor": 4 * 256 * 2048 / 1024, "shared": 4 * (80 * 4 + 8 * 4), "special": 4 * 64 * 2,
        "issue": 1000,
    })  # fmt: skip


@pytest.mark.wide(1)
@pytest.mark.parametrize("columns", [0, 32])
def test_the_products_of_a_block_of_keys_are_all_found(columns: int) -> None:
    row = attention_row(TARGETS["A100"], AttentionSize(16, 4096, 128, True), columns)
    rows, keys = 32, columns or 64
    loads = 16 + keys
    products = 2 * rows // 16 * keys // 8 * 8
    assert row["products_per_load"] == pytest.approx(products / loads, abs=0.01)
    tensor = row["clocks_of_a_key_block"]["tensor"]
    assert tensor == products * 2048 / 1024 * 4 * row["blocks_resident"]
    assert 0 < row["predicted_share"] <= 1


@pytest.mark.parametrize("causal", [False, True])
def test_attention_by_warps_has_what_the_ladder_has(causal: bool) -> None:
    """FlashAttention-2's tile on an A100: products for each load, bytes on their way, share."""
    row = attention_row(TARGETS["A100"], AttentionSize(16, 4096, 128, causal), 0)
    assert row["spilled_bytes"] == 0 and row["blocks_resident"] == 2
    for name in ("products_per_load", "bytes_in_flight"):
        assert row[name] >= row[f"{name}_of_the_ladder"]
    assert 0 < row["predicted_share_of_the_ladder"] <= row["predicted_share"] <= 1


# --- warpgroups -----------------------------------------------------------------------------------


def test_the_busiest_unit_of_warpgroups_follows_from_counts() -> None:
    loop = GroupLoop(8, 8, 68, 600, 16, 300)
    found = group_clocks(loop, TARGETS["H100"], 2, 128, 128)
    read = 8 * (64 + 128) * 32 + 8 * 128 * 32
    copied = 4 * 16 * 32 * 16
    rate = TARGETS["H100"].peaks["half"] / (2 * 132 * TARGETS["H100"].clock_ghz)
    own = 2 * 64 * 128 * 128 / rate
    assert found == pytest.approx({
        "tensor": 2 * own, "shared": (2 * read + copied) / 128, "second": copied / 32,
        "special": 8 * 68 * 2, "issue": 2 * 600 + 300, "group": own + 600,
    })  # fmt: skip


@pytest.mark.wide(1)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_on_hopper_is_predicted_at_least_as_fast_as_a_published_kernel(
    causal: bool,
) -> None:
    row = attention_row(TARGETS["H100"], AttentionSize(16, 4096, 128, causal), 0)
    clocks = row["clocks_of_a_key_block"]
    assert "mma=wgmma" in row["launch"] and row["spilled_bytes"] == 0
    assert clocks["tensor"] == max(clocks.values())
    masked = row["clocks_of_a_masked_one"]
    assert (masked["issue"] > clocks["issue"]) == causal and masked["tensor"] == clocks["tensor"]
    assert 0 < row["rung"]["predicted_share"] <= row["predicted_share"] <= 1


@pytest.mark.wide(1)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("depth", [64, 128])
def test_attention_on_hopper_has_more_bytes_on_their_way_than_a_published_kernel(
    causal: bool, depth: int
) -> None:
    row = attention_row(TARGETS["H100"], AttentionSize(16, 4096, depth, causal), 0)
    assert row["rung"]["bytes_in_flight"] <= row["bytes_in_flight"] and row["spilled_bytes"] == 0
    assert row["shared_bytes"] <= TARGETS["H100"].shared_per_block
