"""What the machine code of a CUDA kernel does, read from its cubin without NVIDIA's disassembler.

An instruction of sm_70 and later has 128 bits, of which this much is enough here (it was compared
with nvdisasm on the kernels of the zoo): the operation in bits 0 to 11, the predicate in 12 to 15,
the size of an access in 73 to 75, whether a load takes memory for constant in 79, the scoreboard
that a result will clear in 110 to 112 (7: none) and those that are waited for in 116 to 121.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from autofuse.peers.types import BenchError

LOAD, STORE, BARRIER, CALL, PADDING = 0x981, 0x986, 0xB1D, 0x944, 0x918
# Jumps, exits and returns: unless under a predicate, what follows in the text is elsewhere.
LEAVES = (0x947, 0x94D, 0x950)
# Bytes of one access, by the code of its size.
SIZES = (1, 1, 2, 2, 4, 8, 16, 16)
WIDE = 16
_INSTRUCTION = 16
_ALWAYS, _NO_SCOREBOARD = 7, 7


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; `size` means something for accesses only, in bytes, and `constant` for loads
    (ld.global.nc)."""

    operation: int
    always: bool
    size: int
    clears: int
    waits: int
    constant: bool = False


@dataclass(frozen=True, slots=True)
class CodeFacts:
    """Counts over the text of a kernel, loops counted once, without padding.

    `in_flight`: the most bytes that one thread has asked memory for when it waits for some of them,
    following the text; `loaded` and `stored`: bytes of one thread."""

    instructions: int
    loads: int
    wide_loads: int
    stores: int
    wide_stores: int
    in_flight: int
    barriers: int
    calls: int
    loaded: int
    stored: int

    @property
    def words(self) -> float:
        """4-byte words loaded or stored, whichever is more."""
        return max(self.loaded, self.stored) / 4


def kernel_code(cubin: bytes, name: str) -> bytes:
    """The machine code of the kernel `name`; raises BenchError where the cubin has none."""
    if cubin[:4] != b"\x7fELF":
        raise BenchError("this is no cubin: it does not start as an ELF file")
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    each, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", cubin, start + k * each) for k in range(count)]
    for label, _, _, _, offset, size in headers:
        at = headers[names][4] + label
        if cubin[at : cubin.index(b"\0", at)] == f".text.{name}".encode():
            return cubin[offset : offset + size]
    raise BenchError(f"the cubin has no kernel '{name}'")


def decoded(code: bytes) -> Iterator[Instruction]:
    """The instructions of some machine code, in order."""
    for at in range(0, len(code), _INSTRUCTION):
        low, high = struct.unpack_from("<QQ", code, at)
        yield Instruction(
            operation=low & 0xFFF,
            always=low >> 12 & 0xF == _ALWAYS,
            size=SIZES[high >> 9 & 7],
            clears=high >> 46 & 7,
            waits=high >> 52 & 0x3F,
            constant=bool(high >> 15 & 1),
        )


def code_facts(code: bytes) -> CodeFacts:
    """What the machine code of a kernel does."""
    made = [i for i in decoded(code) if i.operation != PADDING]
    loads = [i.size for i in made if i.operation == LOAD]
    stores = [i.size for i in made if i.operation == STORE]
    return CodeFacts(
        instructions=len(made),
        loads=len(loads),
        wide_loads=loads.count(WIDE),
        stores=len(stores),
        wide_stores=stores.count(WIDE),
        in_flight=most_in_flight(made),
        barriers=sum(i.operation == BARRIER for i in made),
        calls=sum(i.operation == CALL for i in made),
        loaded=sum(loads),
        stored=sum(stores),
    )


def most_in_flight(made: list[Instruction]) -> int:
    """The most bytes that are asked for at an instruction which waits for some of them."""
    most, asked = 0, dict.fromkeys(range(_NO_SCOREBOARD), 0)
    for each in made:
        waited = [board for board in asked if each.waits >> board & 1 and asked[board]]
        if waited:
            most = max(most, sum(asked.values()))
            asked.update(dict.fromkeys(waited, 0))
        if each.operation == LOAD and each.clears != _NO_SCOREBOARD:
            asked[each.clears] += each.size
        if each.operation in LEAVES and each.always:
            asked = dict.fromkeys(asked, 0)
    return most
