"""What no emulator sees of a kernel, read off its cubin, the compiler's words and its text.

Rules, each of a promise that a text makes and machine code may break:

    notes    the compiler gave up what was asked for (C7508, C7510 to C7520)
    spills   registers are spilled, or memory of a thread is touched in a loop
    pool     roles of a block ask for more registers than the launch allocates (PTX ISA, setmaxnreg)
    ordered  a product of a warpgroup is waited for before the next one of its run is asked for
    boxes    bytes that an mbarrier expects are not those of the boxes that are asked for
    named    more than the 16 barriers of a block
    wide     the text loads 16 bytes at a time and the machine code does not

Encodings were read off kernels that have a known number of each (`tests/test_sass_lint.py`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autofuse.backends.base import Source
from autofuse.backends.cuda.build import build_flags
from autofuse.backends.cuda.devices import Target
from autofuse.backends.cuda.facts import CubinFacts, notes_in, parse_log
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.backends.cuda.ordering import every
from autofuse.backends.cuda.program import CudaProgram, KernelLaunch, Unit
from autofuse.backends.emulator.build import heads
from autofuse.kernel.cuda.wgmma import GROUP
from autofuse.kernel.ir.tensor_map import TensorMap
from autofuse.kernel.text.dialects import CUDA
from benchmarks.sass import LOAD, WIDE, decoded, kernel_code

# Operations: registers that change hands, the fence of a warpgroup or its wait, products of one of
# floats and of bytes, a look at an mbarrier, memory of a thread, a jump.
SET_REGISTERS, GROUP_ORDER, PRODUCTS, LOOK = 0x9C8, 0x9C5, (0x9F0, 0x9F1), 0x5A7
LOCAL, JUMP = (0x983, 0x387), 0x947
_GIVES, _IS_WAIT = 0x500, 1 << 47
_EACH, _MOST_BARRIERS = 16, 16
_NEW_JUMPS = 90
_USED_BARRIERS = re.compile(r"used (\d+) barriers")
_EXPECTED = re.compile(r"af_expect(?:_more|_bytes)?\([^,]*?, (\d+)\)")
_BOX = re.compile(r"(?:n < (\d+); n\+\+\)\s*)?af_copy_box_\d\(.*?, &(\w+),")
_VECTOR = re.compile(r"af_load_vector\w*\(af_[a-z]+(\d+)x(\d+), (\w+),")


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a kernel breaks, and how."""

    kernel: str
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.kernel}: {self.rule}: {self.text}"


@dataclass(frozen=True, slots=True)
class Text:
    """A kernel as its compiler gets it: threads of a block, names of its arrays, and its maps."""

    source: Source
    threads: int
    arrays: frozenset[str]
    maps: Mapping[str, TensorMap]

    @property
    def body(self) -> str:
        """Without the prelude."""
        return self.source.text.removeprefix(CUDA.prelude)


def text_of(unit: Unit) -> Text:
    """The kernel of a unit."""
    maps = {p.name: p.map for p in unit.params if p.map is not None}
    arrays = frozenset(p.name for p in unit.params)
    return Text(unit.source, unit.geometry.block, arrays, maps)


def texts_of(program: CudaProgram) -> Iterator[Text]:
    """The kernels that a program launches, each once."""
    launches = {a.symbol: a for a in every((*program.prepare, *program.actions))
                if isinstance(a, KernelLaunch)}  # fmt: skip
    for source in program.sources:
        launch = launches.get(source.name)
        if launch is None:
            continue
        names = [p.name for p in heads(source.text)[0].parameters]
        maps = {
            name: given.map
            for name, given in zip(names, launch.arguments, strict=False)
            if given.map is not None
        }
        yield Text(source, launch.geometry.block, frozenset(names), maps)


def compiled(text: Text, target: Target) -> list[Finding]:
    """The findings of a kernel that is compiled for a target. Raises CompileError."""
    source = text.source
    cubin, log = compile_cubin(source.text, target.code_for, build_flags(source))
    return lint(text, cubin, log, int(re.sub(r"\D", "", target.code_for)))


@dataclass(frozen=True, slots=True)
class Word:
    """An instruction as it is: its operation and its two halves."""

    low: int
    high: int

    @property
    def operation(self) -> int:
        return self.low & 0xFFF

    def jump(self, arch: int) -> int:
        """How many instructions on a jump goes from here. Its distance from the next instruction
        is in units of 4 bytes, from bit 34 on; from sm_90 on the lowest 8 bits are 16 to 23."""
        distance = (self.low >> 34) | (self.high & 0x3FFFF) << 30
        distance -= (distance >> 47 & 1) << 48
        if arch >= _NEW_JUMPS:
            distance = distance << 8 | (self.low >> 16 & 0xFF)
        return distance * 4 // _EACH + 1


def words(code: bytes) -> list[Word]:
    """The instructions of some machine code."""
    return [Word(*struct.unpack_from("<QQ", code, at)) for at in range(0, len(code), _EACH)]


def lint(text: Text, cubin: bytes, log: str, arch: int) -> list[Finding]:
    """All that a compiled kernel breaks; `arch`: 90 for sm_90a. Raises BenchError where the cubin
    has no such kernel."""
    name = text.source.name
    code = kernel_code(cubin, name)
    made, facts = words(code), parse_log(log)[name]
    rules = {
        "notes": notes_in(log),
        "spills": [*spilled(facts), *local_in_loops(made, arch)],
        "pool": beyond_the_pool(made, facts.registers, text.threads),
        "ordered": ordered_products(made),
        "boxes": unexpected_boxes(text),
        "named": too_many_barriers(log),
        "wide": narrow_loads(text, code),
    }
    return [Finding(name, rule, said) for rule, found in rules.items() for said in found]


def spilled(facts: CubinFacts) -> Iterator[str]:
    if facts.spilled:
        yield f"{facts.spilled} bytes of registers are spilled"


def local_in_loops(made: Sequence[Word], arch: int) -> Iterator[str]:
    """Accesses to a thread's own memory between a jump back and where it goes."""
    loops = [
        (at + there, at)
        for at, word in enumerate(made)
        if word.operation == JUMP and (there := word.jump(arch)) < 0
    ]
    local = [at for at, word in enumerate(made) if word.operation in LOCAL]
    inside = sum(any(first <= at <= last for first, last in loops) for at in local)
    if inside:
        yield f"{inside} accesses to memory of a thread in loops"


def beyond_the_pool(made: Sequence[Word], registers: int, threads: int) -> Iterator[str]:
    """Roles that ask for more than there is: one group keeps the least that is given, each of the
    others takes the most."""
    changes = [word for word in made if word.operation == SET_REGISTERS]
    given = [w.low >> 32 & 0x1FF for w in changes if w.high & 0xF00 == _GIVES]
    taken = [w.low >> 32 & 0x1FF for w in changes if w.high & 0xF00 != _GIVES]
    if not changes:
        return
    groups = threads // GROUP
    wanted = min(given, default=registers) + (groups - 1) * max(taken, default=registers)
    if wanted > registers * groups:
        yield f"{wanted} registers of the {registers * groups} for each {groups} lanes"


def ordered_products(made: Sequence[Word]) -> Iterator[str]:
    """Waits between two products of a run: there no mbarrier is looked at."""
    waits, early, begun = 0, 0, False
    for word in made:
        if word.operation in PRODUCTS:
            early += waits if begun else 0
            begun, waits = True, 0
        elif word.operation == GROUP_ORDER and word.low & _IS_WAIT:
            waits += 1
        elif word.operation == LOOK:
            begun = False
    if early:
        yield f"{early} waits between products of a run"


def _boxes(text: Text) -> list[tuple[int, int]]:
    """Where boxes are asked for, and their bytes."""
    return [
        (m.start(), int(m[1] or 1) * text.maps[m[2]].box_bytes) for m in _BOX.finditer(text.body)
    ]


def unexpected_boxes(text: Text) -> Iterator[str]:
    """Of each run: what is expected, and the boxes that follow it."""
    expected = [(m.start(), int(m[1])) for m in _EXPECTED.finditer(text.body)]
    boxes = _boxes(text)
    ends = [start for start, _ in expected[1:]] + [len(text.body)]
    for (start, nbytes), end in zip(expected, ends, strict=False):
        arriving = sum(size for at, size in boxes if start < at < end)
        if boxes and arriving != nbytes:
            yield f"{nbytes} bytes are expected and boxes of {arriving} asked for"
    if boxes and not expected:
        yield "boxes are asked for and nothing is expected"


def too_many_barriers(log: str) -> Iterator[str]:
    used = max((int(n) for n in _USED_BARRIERS.findall(log)), default=0)
    if used > _MOST_BARRIERS:
        yield f"{used} barriers of the {_MOST_BARRIERS} of a block"


def narrow_loads(text: Text, code: bytes) -> Iterator[str]:
    """Whether a text that loads 16 bytes of global memory at a time does so nowhere."""
    found = _VECTOR.findall(text.body)
    claimed = [int(bits) // 8 * int(n) for bits, n, of in found if of in text.arrays]
    wide = sum(i.operation == LOAD and i.size == WIDE for i in decoded(code))
    if claimed.count(WIDE) and not wide:
        yield f"{claimed.count(WIDE)} loads of 16 bytes in the text, none in the machine code"
