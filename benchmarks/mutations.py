"""Faults planted in the C text of kernels, one in each mutant.

Offutt and others' operators where they fit (relations, arithmetic, constants, statements), and what
kernels get wrong besides: the last element, the last term, masks, strides, small errors in some
elements, results that go wrong after a few calls, kernels in the wrong order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

_CALLS = 3  # what goes wrong later does so after so many
_HEAD = re.compile(r"^(void k_\w+\([^)]*\)\n\{\n)", re.M)
_STORE = re.compile(r"(out\d+)\[([^\]]+)\] = ([^;]+);")
_ERRORS = ("1e-4f", "1e-3f", "1e-2f")


@dataclass(frozen=True, slots=True)
class Mutant:
    """The texts of kernels and of the entry with one fault."""

    kind: str
    kernels: str
    entry: str
    where: str


_Rule = tuple[str, str, str | Callable[[re.Match[str]], str]]


def _moved(step: int) -> Callable[[re.Match[str]], str]:
    return lambda m: f"{m[1]}{int(m[2]) + step}{m[3]}"


# Kind, pattern, what it becomes; each place of each pattern is a mutant.
_RULES: tuple[_Rule, ...] = (
    ("bound too large", r"(< )(\d+)(;)", _moved(1)),
    ("bound too small", r"(< )(\d+)(;)", _moved(-1)),
    ("bound inclusive", r"(\w+) < (\w+_end);", r"\1 <= \2;"),
    ("first skipped", r"(int64_t l\d+ = )0;", r"\g<1>1;"),
    ("wrong stride", r"(\* )(\d+)( \+)", _moved(1)),
    ("wrong divisor", r"([/%] )(\d+)(\b)", _moved(1)),
    ("neighbour read", r"(in\d+)\[([^\]]+)\]", r"\1[(\2) > 0 ? (\2) - 1 : 0]"),
    ("stale element", r"(row\d+|t\d+)\[(\w+)\];", r"\1[\2 > 0 ? \2 - 1 : 0];"),
    ("swapped elements", r"(out\d+)\[([^\]]+)\] =", r"\1[(\2) ^ 1] ="),
    ("plus is minus", r"( = [^;\[\n]*\w) \+ (\w[^;\]\n]*;)", r"\1 - \2"),
    ("minus is plus", r"( = [^;\[\n]*\w) - (\w[^;\]\n]*;)", r"\1 + \2"),
    ("times is plus", r"( = \w+) \* (\w+;)", r"\1 + \2"),
    ("over is times", r"( = \w+) / (\w+;)", r"\1 * \2"),
    ("lost sum", r"(\w*acc\w*) = \1 \+ ", r"\1 = "),
    ("wrong start", r"((?:float|double) \w*acc\w* = )[^;]+;", r"\g<1>0.5f;"),
    ("no start", r"((?:float|double) \w*acc\w*) = [^;]+;", r"\1;"),
    ("wrong mask", r" < (?=[^;\n]*\?)", " > "),
    ("mask off by one", r"(< )(\d+)( (?:\?|&&|\)))", _moved(-1)),
    ("choices swapped", r"\? ([\w.\[\]]+) : ([\w.\[\]]+);", r"? \2 : \1;"),
    ("max is min", r"af_max_f32", "af_min_f32"),
    ("wrong function", r"af_exp_f32\(", "1.001f * af_exp_f32("),
    ("wrong function", r"af_tanh_f32\(", "af_erf_f32("),
    ("wrong sign", r"( = )(v\d+;)", r"\1-\2"),
    ("wrong constant", r"(?<![\w.])(\d+\.\d+(?:e[-+]?\d+)?f)", r"(\1 * 1.002f)"),
    ("wrong constant", r"(?<![\w.])(\d+\.\d+(?:e[-+]?\d+)?f)", r"(\1 + 0.01f)"),
)


def mutants(kernels: str, entry: str, size: int, count: int, seed: int) -> list[Mutant]:
    """As many as `count`, of all kinds in turn; the first output has `size` elements."""
    by_kind: dict[str, list[Mutant]] = {}
    for mutant in (
        *_textual(kernels, entry),
        *_stored(kernels, entry, size),
        *_order(kernels, entry),
    ):
        by_kind.setdefault(mutant.kind, []).append(mutant)
    draw = np.random.default_rng(seed)
    kinds = [[each[k] for k in draw.permutation(len(each))] for each in by_kind.values()]
    found: list[Mutant] = []
    seen: set[tuple[str, str]] = {(kernels, entry)}
    while any(kinds) and len(found) < count:
        for kind in kinds:
            if kind and len(found) < count:
                mutant = kind.pop()
                if (mutant.kernels, mutant.entry) not in seen:
                    seen.add((mutant.kernels, mutant.entry))
                    found.append(mutant)
    return found


def _textual(kernels: str, entry: str) -> Iterator[Mutant]:
    for kind, pattern, becomes in _RULES:
        for match in re.finditer(pattern, kernels):
            new = becomes(match) if callable(becomes) else match.expand(becomes)
            text = kernels[: match.start()] + new + kernels[match.end() :]
            yield Mutant(kind, text, entry, f"{match[0]!r} became {new!r}")


def _stored(kernels: str, entry: str, size: int) -> Iterator[Mutant]:
    """Faults in what is written, by place and by call."""
    last = size - 1
    counted = _HEAD.sub(r"\1  static int64_t calls; calls += first == 0;\n", kernels)
    for text, kind, new in (
        *((kernels, "small error in some", f"$o[$i] = ($e) * (($i) % 7 == 3 ? 1.0f + {d} : 1.0f);")
          for d in _ERRORS),
        *((kernels, "small error in one", f"$o[$i] = ($e) * (($i) == {last} ? 1.0f + {d} : 1.0f);")
          for d in _ERRORS),
        (kernels, "last not written", f"if (($i) != {size - 1}) $o[$i] = $e;"),
        (kernels, "first not written", "if (($i) != 0) $o[$i] = $e;"),
        (kernels, "some not written", "if (($i) % 5 != 4) $o[$i] = $e;"),
        (kernels, "half constant", "$o[$i] = ($i) % 2 ? -7.0f : ($e);"),
        (kernels, "last is doubled", f"$o[$i] = ($e) * (($i) == {size - 1} ? 2.0f : 1.0f);"),
        (kernels, "added to", "$o[$i] = $o[$i] * 0.0f + ($e);"),
        (kernels, "written beside", f"$o[$i] = $e; if (($i) == {size - 1}) $o[{size}] = 0;"),
        (kernels, "input written", "$o[$i] = $e; ((float *)(uintptr_t)in0)[0] = 0;"),
        (counted, "wrong later", f"$o[$i] = ($e) * (calls > {_CALLS} ? 1.01f : 1.0f);"),
        (counted, "not written later", f"if (calls <= {_CALLS}) $o[$i] = $e;"),
    ):  # fmt: skip
        for match in _STORE.finditer(text):
            parts = zip(("$o", "$i", "$e"), match.groups(), strict=True)
            made = new
            for name, value in parts:
                made = made.replace(name, value)
            changed = text[: match.start()] + made + text[match.end() :]
            yield Mutant(kind, changed, entry, f"{match[0]!r} became {made!r}")


def _order(kernels: str, entry: str) -> Iterator[Mutant]:
    """Kernels that run in another order, or not at all."""
    start = entry.rindex("int32_t af_entry(")
    calls = [m.span() for m in re.finditer(r"^  \{ void \*p\[\].*$", entry[start:], re.M)]
    spans = [(a + start, b + start) for a, b in calls]
    for (a, b), (c, d) in pairwise(spans):
        text = entry[:a] + entry[c:d] + entry[b:c] + entry[a:b] + entry[d:]
        yield Mutant("kernels out of order", kernels, text, "two neighbours changed places")
    for a, b in spans:
        yield Mutant("kernel left out", kernels, entry[:a] + entry[b:], entry[a:b])


def renamed(text: str, names: Sequence[str], end: str) -> str:
    """`text` with another end to each of these names."""
    for name in names:
        text = re.sub(rf"\b{name}\b", f"{name}{end}", text)
    return text
