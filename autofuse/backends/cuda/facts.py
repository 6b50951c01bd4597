"""What the assembler says about each kernel, read from its log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autofuse.backends.cuda.devices import Target, blocks_resident, occupancy

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_PROPERTIES = re.compile(r"Function properties for (\w+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
# Notes begin as the report does: that products are ordered one after another (C7510 to C7520), or
# that registers stay where they are (C7508).
_NOTE = re.compile(r"^ptxas info\s*:\s*\(C\d+\)")
_OF_KERNEL = re.compile(r"function '(\w+)'")
_VERBOSE = re.compile(r"^(ptxas info\s*:(?!\s*\(C\d)|ptxas\s+\.\s)")


@dataclass(frozen=True, slots=True)
class CubinFacts:
    """Of one kernel: registers a thread, bytes of static shared memory a block, and bytes of stack
    and of spilled registers a thread (stores plus loads); `notes` that the compiler gave up what
    the text asks for (products under way together, registers that change hands)."""

    registers: int = 0
    shared: int = 0
    stack: int = 0
    spilled: int = 0
    notes: int = 0

    def named(self, target: Target, threads: int, dynamic: int) -> tuple[tuple[str, float], ...]:
        """As stored with a candidate, with the occupancy of blocks of `threads` threads that ask
        for `dynamic` bytes of shared memory more."""
        shared = self.shared + dynamic
        return (
            ("blocks_per_sm", float(blocks_resident(target, threads, self.registers, shared))),
            ("compiler_notes", float(self.notes)),
            ("occupancy", occupancy(target, threads, self.registers, shared)),
            ("registers", float(self.registers)),
            ("shared_bytes", float(shared)),
            ("spilled_bytes", float(self.spilled)),
            ("stack_bytes", float(self.stack)),
            ("threads", float(threads)),
        )


def parse_log(log: str) -> dict[str, CubinFacts]:
    """The facts of each entry function, by name; device functions of their own are left out."""
    found: dict[str, CubinFacts] = {}
    entry, subject = "", ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry = match[1]
            found[entry] = CubinFacts()
        elif match := _PROPERTIES.search(line):
            subject = match[1]
        elif entry and subject == entry and (match := _STACK.search(line)):
            old = found[entry]
            spilled = int(match[2]) + int(match[3])
            found[entry] = replace(old, stack=int(match[1]), spilled=spilled)
        elif entry and (match := _REGISTERS.search(line)):
            found[entry] = replace(found[entry], registers=int(match[1]), shared=_shared(line))
    return _with_notes(found, [_OF_KERNEL.search(line) for line in notes_in(log)])


def _shared(line: str) -> int:
    match = _SHARED.search(line)
    return int(match[1]) if match else 0


def _with_notes(
    found: Mapping[str, CubinFacts], noted: Sequence[re.Match[str] | None]
) -> dict[str, CubinFacts]:
    """With the number of notes about each function; one about none is about all."""
    named = [match[1] if match else "" for match in noted]
    return {
        name: replace(facts, notes=named.count(name) + named.count(""))
        for name, facts in found.items()
    }


def notes_in(log: str) -> list[str]:
    """The lines in which the compiler says that it gave up what a text asks for."""
    return [line.strip() for line in log.splitlines() if _NOTE.match(line)]


def complaints(log: str) -> str:
    """What is left of a log without the report that was asked for: warnings and errors."""
    lines = (line.rstrip() for line in log.splitlines())
    return "\n".join(line for line in lines if line.strip() and not _VERBOSE.match(line))
