"""Numbers as texts for people: three digits, and the unit that suits. Everything that prints a
number for people, be it a command, a report or a page, spells it here.

What is not known (NaN, and None where it is allowed) is a dash, what is infinite "∞"."""

from __future__ import annotations

import math

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_AMOUNTS = ((1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"))


def time_text(us: float) -> str:
    """Microseconds to three digits in the unit that suits."""
    if math.isnan(us):
        return "–"
    if math.isinf(us):
        return "∞" if us > 0 else "-∞"
    rounded = float(f"{us:.3g}")
    units = (("s", 1e6), ("ms", 1e3), ("µs", 1.0), ("ns", 1e-3))
    unit, size = next((u for u in units if abs(rounded) >= u[1]), ("µs", 1.0))
    return f"{_digits(rounded / size)} {unit}"


def seconds_text(seconds: float) -> str:
    return time_text(seconds * 1e6)


def ratio_text(ratio: float) -> str:
    if math.isnan(ratio):
        return "–"
    return "∞" if math.isinf(ratio) else f"{_digits(float(f'{ratio:.3g}'))}×"


def runs_text(runs: float | None) -> str:
    """A number of runs, rounded up; None is never."""
    if runs is None:
        return "never"
    if not math.isfinite(runs):
        return "–" if math.isnan(runs) else "∞"
    # Rounding errors must not cost a whole run.
    return f"{math.ceil(runs * (1 - 1e-12)):,}" if runs < 1e9 else f"{runs:.2e}"


def bytes_text(count: float) -> str:
    """Bytes to three digits with a binary unit."""
    if not math.isfinite(count):
        return "–"
    size, unit = abs(count), 0
    while size >= 1023.5 and unit < len(_BYTES) - 1:
        size, unit = size / 1024, unit + 1
    return f"{'-' if count < 0 else ''}{_digits(size)} {_BYTES[unit]}"


def amount_text(count: float) -> str:
    """A count to three digits with a decimal unit: 950, 1.2 k, 34 M."""
    if not math.isfinite(count):
        return "–"
    rounded = float(f"{abs(count):.3g}")
    size, unit = next(((s, u) for s, u in _AMOUNTS if rounded >= s), (1.0, ""))
    return f"{'-' if count < 0 else ''}{_digits(rounded / size)}{unit}"


def percent_text(share: float | None) -> str:
    """A share of one to three digits; None is not known."""
    if share is None or math.isnan(share):
        return "–"
    return "∞" if math.isinf(share) else f"{_digits(float(f'{100 * share:.3g}'))} %"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def plural(count: int, noun: str) -> str:
    """1 kernel, 2 kernels."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
