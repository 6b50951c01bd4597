"""Scalable vector graphics as text: elements, scales, ticks, and the words for quantities."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

NAMESPACE = "http://www.w3.org/2000/svg"
SERIES = 6
GROUPS = 12

# What XML 1.0 does not allow, and lone surrogates, which no file can hold.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LIGHT = ("#0b63c5", "#b54708", "#18794e", "#7a3fd0", "#b4237a", "#6b5900")
_DARK = ("#6cb2ff", "#ff9f5c", "#4fd08b", "#c4a2ff", "#ff8cc6", "#e0c341")


def clean(text: str) -> str:
    """The text with every character that a page cannot hold replaced by U+FFFD."""
    return _ILLEGAL.sub("\ufffd", text)


def tag(name: str, *children: str, **attributes: str | float | int) -> str:
    """An element; children are markup. `class_` is class, other underscores are hyphens."""
    pairs = "".join([f" {_key(key)}={_quoted(value)}" for key, value in attributes.items()])
    inner = "".join(children)
    return f"<{name}{pairs}>{inner}</{name}>" if inner else f"<{name}{pairs}/>"


def words(text: str) -> str:
    """Text as markup."""
    return escape(clean(text))


def label(x: float, y: float, text: str, limit: int = 60, **attributes: str | float | int) -> str:
    """A text element at (x, y), cut to `limit` characters; the whole is then its tooltip."""
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    tip = "" if short == text else tag("title", words(text))
    return tag("text", tip, words(short), x=x, y=y, **attributes)


def lifted(x: float, y: float, text: str, style: str, anchor: str) -> str:
    """A short label that stays readable over lines: first as a thick outline of the ground's
    colour. (`paint-order` would do it in one element, but many viewers do not know it.)"""
    outline = label(
        x, y, text, 40, class_=f"{style} af-halo", text_anchor=anchor, aria_hidden="true"
    )
    return outline + label(x, y, text, 40, class_=style, text_anchor=anchor)


def drawing(
    width: float, height: float, title: str, description: str, *body: str, natural: bool = False
) -> str:
    """A whole picture that also stands alone as a file. It fills the width it is given, unless it
    is `natural`: then one unit is one pixel."""
    extra: dict[str, str | float | int] = {"width": width, "height": height} if natural else {}
    return tag(
        "svg",
        tag("title", words(title)),
        tag("desc", words(description)),
        STYLE_TAG,
        tag("rect", class_="af-bg", width=width, height=height),
        *body,
        xmlns=NAMESPACE,
        class_="af",
        viewBox=f"0 0 {_attribute(width)} {_attribute(height)}",
        role="img",
        aria_label=title,
        **extra,
    )


def path(points: Iterable[tuple[float, float]], **attributes: str | float | int) -> str:
    """A polyline through the points."""
    return tag(
        "path",
        d="M" + "L".join(f"{_attribute(x)} {_attribute(y)}" for x, y in points),
        **attributes,
    )


def steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Corners of the staircase that keeps each value until the next position."""
    corners = list(points[:1])
    for x, y in points[1:]:
        corners += [(x, corners[-1][1]), (x, y)]
    return corners


def spread(positions: Sequence[float], gap: float, high: float) -> list[float]:
    """Positions moved as little as a simple pass can so that they are `gap` apart and <= high."""
    placed = list(positions)
    order = sorted(range(len(placed)), key=lambda i: (placed[i], i))
    for one, other in pairwise(order):
        placed[other] = max(placed[other], placed[one] + gap)
    limit = high
    for i in reversed(order):
        placed[i] = min(placed[i], limit)
        limit = placed[i] - gap
    return placed


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps [low, high] to [start, end] on the page, by logarithm if `log`."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return self.start + (self.end - self.start) * (at - low) / (high - low)

    def ticks(self, count: int = 5) -> list[float]:
        """Round values within the domain, about `count`."""
        if not self.log:
            return _linear_ticks(self.low, self.high, count)
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for digits in ((1,), (1, 3), (1, 2, 5)):
            found = [d * 10.0**e for e in decades for d in digits]
            found = [v for v in found if self.low <= v <= self.high]
            if len(found) >= 3:
                return found[:: math.ceil(len(found) / (count + 2))]
        return _linear_ticks(self.low, self.high, count)


def scale(values: Iterable[float], start: float, end: float, log_from: float = 3.0) -> Scale:
    """A scale that shows all the finite values with some room, logarithmic if the greatest is at
    least `log_from` times the least and all are positive."""
    finite = sorted(v for v in values if math.isfinite(v))
    low, high = (finite[0], finite[-1]) if finite else (0.0, 1.0)
    if low > 0 and high / low >= log_from:
        room = max((high / low) ** 0.06, 1.05)
        return Scale(low / room, high * room, start, end, True)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return Scale(max(0.0, low - room) if low >= 0 else low - room, high + room, start, end, False)


@cache
def _key(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _quoted(value: str | float | int) -> str:
    # Pages hold tens of thousands of numbers, which need no escape.
    text = _attribute(value)
    return quoteattr(text) if isinstance(value, str) else f'"{text}"'


def _attribute(value: str | float | int) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return clean(value) if isinstance(value, str) else str(value)


def _linear_ticks(low: float, high: float, count: int) -> list[float]:
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def _hex(hue: float, saturation: float, lightness: float) -> str:
    """A colour from hue (turns), saturation and lightness (0..1)."""

    def channel(n: int) -> int:
        k = (n + hue * 12) % 12
        reach = saturation * min(lightness, 1 - lightness)
        return round(255 * (lightness - reach * max(-1, min(k - 3, 9 - k, 1))))

    return f"#{channel(0):02x}{channel(8):02x}{channel(4):02x}"


def _theme(
    ink: str,
    muted: str,
    grid: str,
    ground: str,
    series: Sequence[str],
    fill: Callable[[float], str],
) -> str:
    rules = [
        f".af-bg{{fill:{ground}}}.af text{{fill:{ink}}}.af .af-muted{{fill:{muted}}}",
        f".af-grid{{stroke:{grid}}}.af-axis,.af-edge{{stroke:{muted}}}.af-tip{{fill:{muted}}}",
        f".af-rule,.af-thick{{stroke:{ink}}}.af .af-halo{{stroke:{ground}}}",
        f".af-dot{{fill:{muted}}}.af-free{{fill:{ground};stroke:{muted}}}",
    ]
    for i, colour in enumerate(series):
        rules.append(f".af-l{i}{{stroke:{colour}}}.af-f{i}{{fill:{colour}}}")
    for i in range(GROUPS):
        # Steps of five twelfths keep neighbouring numbers far apart in hue.
        hue = (i * 5 % GROUPS) / GROUPS
        rules.append(f".af-g{i}{{fill:{fill(hue)};stroke:{muted}}}")
    return "".join(rules)


# Literal colours rather than variables: viewers other than browsers draw these files too. Paper is
# always light.
STYLE = (
    ".af{font:13px system-ui,sans-serif}.af-grid,.af-axis,.af-edge,.af-rule{fill:none}"
    ".af .af-small{font-size:12px}.af .af-strong{font-weight:600}.af-line{fill:none;stroke-width:2}"
    ".af-dash{stroke-dasharray:6 4}.af-dot{fill-opacity:.55}.af-edge{stroke-opacity:.6}"
    ".af-free{stroke-dasharray:4 3}.af .af-halo{stroke-width:4;stroke-linejoin:round}"
    ".af-bar{fill-opacity:.8}.af-rule{stroke-width:1.5}.af-thin{stroke-width:1.25}"
    ".af-thick{stroke-width:5;stroke-opacity:.35}"
    + _theme("#1c2128", "#57606a", "#d9dee3", "#ffffff", _LIGHT, lambda hue: _hex(hue, 0.75, 0.86))
    + "@media screen and (prefers-color-scheme:dark){"
    + _theme("#e8ecf0", "#a3adb8", "#363d46", "#14181d", _DARK, lambda hue: _hex(hue, 0.45, 0.24))
    + "}"
)
STYLE_TAG = tag("style", STYLE)


def embedded(picture: str) -> str:
    """A picture for a page that holds STYLE itself: its own copy is left out."""
    return picture.replace(STYLE_TAG, "", 1)
