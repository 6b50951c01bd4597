"""What is read out of attention's machine code, and what follows from it."""

from __future__ import annotations

import pytest

from autofuse.backends.cuda.devices import TARGETS
from benchmarks.sass_attention import KeyBlockFacts, attention_row, busy, full_waves


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


@pytest.mark.parametrize("columns", [0, 64])
def test_the_products_of_a_block_of_keys_are_all_found(columns: int) -> None:
    row = attention_row(TARGETS["A100"], 16, 4096, 128, True, columns)
    rows, keys = 32, columns or 32
    loads = 16 + keys
    products = 2 * rows // 16 * keys // 8 * 8
    assert row["products_per_load"] == pytest.approx(products / loads, abs=0.01)
    tensor = row["clocks_of_a_key_block"]["tensor"]
    assert tensor == products * 2048 / 1024 * 4 * row["blocks_resident"]
    assert 0 < row["predicted_share"] <= 1
