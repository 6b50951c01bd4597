"""Kernels that XLA and TorchInductor made of a program, counted in what they compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autofuse.peers.types import BenchError

# Instructions that no kernel runs for.
_FREE = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id")
)
_TRIPS = re.compile(r'known_trip_count"?:\s*\{"?n"?:\s*"?(\d+)')
_TARGET = re.compile(r'custom_call_target="([^"]+)"')
# Calls in the wrapper that TorchInductor generates: its kernels, and libraries and fallbacks.
_FUSED_CALL = re.compile(r"^\s+(?:cpp_fused\w*\(|triton_\w+\.run\()", re.MULTILINE)
# One C++ function may hold several loops one after another; each would be a kernel on a GPU.
_OUTER_LOOP = re.compile(r"\bfor\(int64_t x0=")
_EXTERN_CALL = re.compile(r"(?:extern_kernels\.\w+\(|torch\.ops\.\w+\.[\w.]+\()")


@dataclass(frozen=True, slots=True)
class Counts:
    """Kernels and library calls of one call of a program, and of one iteration of its main loop.

    `library` of them are calls of libraries; `cut` groups of a baseline were more than one kernel
    of ours could be."""

    outside: int
    per_trip: int | None = None
    library: int = 0
    cut: int = 0

    def __str__(self) -> str:
        loop = "" if self.per_trip is None else f" + {self.per_trip} an iteration"
        notes = [f"{self.library} library"] * bool(self.library)
        notes += [f"{self.cut} cut"] * bool(self.cut)
        return f"{self.outside}{loop}" + (f" ({', '.join(notes)})" if notes else "")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a computation: its opcode and the whole text."""

    opcode: str
    text: str


def computations(hlo: str) -> tuple[dict[str, list[Instruction]], str]:
    """The computations of an optimised HLO module by name, and the name of the entry."""
    found: dict[str, list[Instruction]] = {}
    entry, at = "", ""
    for line in hlo.splitlines():
        head = re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$", line)
        if head:
            at = head[2]
            found[at] = []
            entry = at if head[1] else entry
        elif at and " = " in line:
            found[at].append(Instruction(_opcode(line.split(" = ", 1)[1]), line))
        elif line.startswith("}"):
            at = ""
    if not entry:
        raise BenchError("the HLO text has no entry computation")
    return found, entry


def _opcode(rest: str) -> str:
    """The opcode behind a result type, which may be a tuple."""
    if rest.startswith("("):
        depth = 0
        for place, char in enumerate(rest):
            depth += (char == "(") - (char == ")")
            if depth == 0:
                rest = rest[place + 1 :].lstrip()
                break
    else:
        rest = rest.split(" ", 1)[1] if " " in rest else rest
    return rest.split("(", 1)[0].strip()


def hlo_counts(hlo: str) -> Counts:
    """Fusions, library calls and lone instructions; inner loops count each iteration, the loop with
    the most kernels in its body is the main one."""
    module, entry = computations(hlo)
    loops = [i for i in module[entry] if i.opcode == "while"]
    main = max(loops, key=lambda i: _run(module, _called(i.text, "body")), default=None)
    outside = sum(_cost(module, i) for i in module[entry] if i is not main)
    inside = None if main is None else _run(module, _called(main.text, "body"))
    parts = [entry, *_reached(module, entry)]
    library = sum(_is_library(i) for name in dict.fromkeys(parts) for i in module[name])
    return Counts(outside, inside, library)


def _run(module: Mapping[str, Sequence[Instruction]], name: str) -> int:
    return sum(_cost(module, i) for i in module[name])


def _cost(module: Mapping[str, Sequence[Instruction]], instruction: Instruction) -> int:
    if instruction.opcode in _FREE:
        return 0
    if instruction.opcode == "while":
        trips = _TRIPS.search(instruction.text)
        return int(trips[1]) * _run(module, _called(instruction.text, "body")) if trips else (
            _run(module, _called(instruction.text, "body"))
        )  # fmt: skip
    if instruction.opcode == "call":
        return _run(module, _called(instruction.text, "to_apply"))
    return 1


def _reached(module: Mapping[str, Sequence[Instruction]], name: str) -> Iterator[str]:
    """Computations that run as kernels of their own do: bodies of loops and calls."""
    for i in module[name]:
        if i.opcode in ("while", "call"):
            inner = _called(i.text, "body" if i.opcode == "while" else "to_apply")
            yield inner
            yield from _reached(module, inner)


def _called(text: str, role: str) -> str:
    named = re.search(rf"\b{role}=%?([\w.\-]+)", text)
    if named is None:
        raise BenchError(f"the HLO text has a call without {role}")
    return named[1]


def _is_library(i: Instruction) -> bool:
    if i.opcode == "fusion":  # XLA:CPU wraps library calls in fusions
        return '"kind":"__ynn_fusion"' in i.text
    return i.opcode in ("dot", "convolution") or (
        i.opcode == "custom-call" and _TARGET.search(i.text) is not None
    )


def inductor_counts(codes: Sequence[str], loop: bool) -> Counts:
    """Loops and kernels in the wrappers that TorchInductor generated. `loop`: each wrapper is one
    iteration, compiled anew where the first iteration differed, so the last one counts."""
    counted = codes[-1:] if loop else codes
    fused = sum(max(len(f.findall(code)) for f in (_FUSED_CALL, _OUTER_LOOP)) for code in counted)
    library = sum(len(_EXTERN_CALL.findall(_body(code))) for code in counted)
    total = fused + library
    return Counts(0, total, library) if loop else Counts(total, None, library)


def _body(code: str) -> str:
    """The wrapper's calls, without the imports above that bind names of libraries."""
    return code[max(code.find("def call("), 0) :]
