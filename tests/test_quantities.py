"""Numbers as texts for people."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.commands.output import duration, seconds
from autofuse.units import (
    amount_text,
    bytes_text,
    percent_text,
    plural,
    ratio_text,
    runs_text,
    seconds_text,
    time_text,
)

SCALES = {"s": 1e6, "ms": 1e3, "µs": 1.0, "ns": 1e-3}


def test_the_unit_is_chosen_after_rounding() -> None:
    assert time_text(999.9) == "1 ms" and bytes_text(1023.9) == "1 KiB"
    assert amount_text(999_999) == "1 M"


def test_quantities_in_words() -> None:
    assert [time_text(us) for us in (0.25, 12.345, 2.5e6)] == ["250 ns", "12.3 µs", "2.5 s"]
    assert [seconds_text(s) for s in (0.0021, 1234.0)] == ["2.1 ms", "1,230 s"]
    assert [bytes_text(n) for n in (0, 1023, 1024)] == ["0 B", "1,023 B", "1 KiB"]
    assert [bytes_text(n) for n in (1.5 * 2**30, -2048.0)] == ["1.5 GiB", "-2 KiB"]
    assert [amount_text(n) for n in (950, 1234, 2e9)] == ["950", "1.23 k", "2 G"]
    assert (percent_text(0.125), percent_text(None), ratio_text(1.5)) == ("12.5 %", "–", "1.5×")
    assert (plural(1, "kernel"), plural(0, "kernel")) == ("1 kernel", "0 kernels")


def test_runs_are_rounded_up() -> None:
    assert (runs_text(0.2), runs_text(None), runs_text(2e9)) == ("1", "never", "2.00e+09")


@pytest.mark.parametrize("text", [time_text, ratio_text, runs_text, bytes_text, percent_text])
def test_what_is_not_known_is_a_dash(text: object) -> None:
    assert callable(text) and text(math.nan) == "–"


def test_what_is_infinite_says_so() -> None:
    infinite = [text(math.inf) for text in (time_text, ratio_text, runs_text, percent_text)]
    assert infinite == ["∞"] * 4 and time_text(-math.inf) == "-∞"
    assert [bytes_text(math.inf), amount_text(math.inf)] == ["–", "–"]


@given(st.floats(1e-3, 9e8))
def test_a_time_is_right_to_three_digits(us: float) -> None:
    number, unit = time_text(us).split()
    assert float(number.replace(",", "")) * SCALES[unit] == pytest.approx(us, rel=5.1e-3)
    assert len(re.sub(r"^[0.]+|[.,]", "", number)) <= 3 or us >= 1e9


def test_commands_print_times_as_reports_do() -> None:
    assert [duration(us) for us in (None, math.inf, 12.34)] == ["-", "-", "12.3 µs"]
    assert [seconds(s) for s in (None, 0.02, 20.26)] == ["-", "20 ms", "20.3 s"]
