"""Families: graphs that differ in numbers alone, such as one program at several sizes.

Canonical order numbers their nodes alike, so that a partition of one is a partition of all, as far
as it is legal there.
"""

from __future__ import annotations

import re
from math import log2

_CONTENTS = re.compile(r"#[0-9a-f]+|sha256:[0-9a-f]+")
# Not what is part of a word: f32 is no number.
_NUMBERS = re.compile(r"(?<![\w.])-?\d[\d.]*(e[+-]?\d+)?")
_INPUT = re.compile(r"^%\d+ = input\(\)")
_EXTENTS = re.compile(r"\[([\d,]*)\]$")


def family(text: str) -> str:
    """A canonical text without the numbers of its types and attributes: ops, operands, ranks and
    dtypes are left. Equal ones are a family."""
    return "\n".join(map(_numberless, text.splitlines()))


def distance(one: str, other: str) -> float:
    """How far two members of a family are from each other: by their inputs' extents, the sum of
    what their binary logarithms differ by (the measure of pytorch#163090)."""
    pairs = zip(_extents(one), _extents(other), strict=True)
    return sum(abs(log2(a + 1) - log2(b + 1)) for a, b in pairs)


def _numberless(line: str) -> str:
    head, closing, rest = line.partition(")")
    return head + closing + _NUMBERS.sub("n", _CONTENTS.sub("", rest))


def _extents(text: str) -> list[int]:
    found = []
    for line in text.splitlines():
        shape = _EXTENTS.search(line) if _INPUT.match(line) else None
        found += [int(n) for n in shape[1].split(",") if n] if shape else []
    return found
