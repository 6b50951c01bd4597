"""Libraries for a processor that may be elsewhere: compiled with its flags, carried as content.

`-march=native` means whoever compiles. A host that is to run a library says what it would mean
there: GCC prints it, and with these words another host makes the very same bytes, as long as its
compiler is the same; other compilers are told what the processor says of itself.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise

from autofuse.backends.base import INTERFACE, Artifact, Built, CompileError, Program, building
from autofuse.backends.cache import BuildCache, content_key
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cpu.target import NATIVE, CpuTarget
from autofuse.backends.machine import instruction_flags, isa_digest
from autofuse.backends.toolchain import Compiler, find_compiler
from autofuse.errors import Blame

# What Linux calls instruction sets that GCC and clang call otherwise, and those that are called
# alike ([GCC manual] "x86 Options" and "AArch64 Options").
_X86 = {
    "pni": "sse3", "sse4_1": "sse4.1", "sse4_2": "sse4.2", "abm": "lzcnt", "bmi1": "bmi",
    "pclmulqdq": "pclmul", "sha_ni": "sha", "avx512_vnni": "avx512vnni", "avx_vnni": "avxvnni",
    "avx512_bf16": "avx512bf16", "avx512_fp16": "avx512fp16", "avx512_vbmi2": "avx512vbmi2",
    "avx512_bitalg": "avx512bitalg", "avx512_vpopcntdq": "avx512vpopcntdq",
    **{name: name for name in (
        "ssse3", "popcnt", "movbe", "aes", "avx", "f16c", "fma", "avx2", "bmi2", "adx",
        "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "avx512vbmi", "gfni", "vaes",
        "vpclmulqdq",
    )},
}  # fmt: skip
_ARM = {
    "atomics": "lse", "asimddp": "dotprod", "asimdhp": "fp16", "sve": "sve", "sve2": "sve2",
    "bf16": "bf16", "i8mm": "i8mm",
}  # fmt: skip
_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Parcel:
    """A built library as `content`, for processors of instruction set `isa`. The path of its
    artifact means nothing where it arrives."""

    isa: str
    interface: int
    digest: str
    content: bytes
    built: Built[Artifact]


@lru_cache(maxsize=1)
def cpu_target_here() -> CpuTarget:
    """What others are told to compile for this processor. Raises CompilerMissing."""
    compiler = find_compiler()
    flags = native_flags(_spoken(compiler)) or feature_flags(
        platform.machine(), instruction_flags()
    )
    return CpuTarget(isa_digest(), compiler.identity, flags)


def native_flags(told: str) -> tuple[str, ...]:
    """What GCC says that -march=native means, of the output of `gcc -march=native -E -v`; nothing
    where it is not GCC's."""
    line = next((one for one in told.splitlines() if "/cc1 " in one), "")
    words = line.split()[1:]
    found: list[str] = []
    for word, following in pairwise((*words, "")):
        if word.startswith(("-m", "--param=")) and word != NATIVE:
            found.append(word)
        elif word == "--param":
            found += [word, following]
    return tuple(found)


def feature_flags(machine: str, features: Collection[str]) -> tuple[str, ...]:
    """Flags for a processor by its architecture and the instruction sets that Linux names."""
    if machine == "x86_64":
        return ("-march=x86-64", *(f"-m{own}" for name, own in _X86.items() if name in features))
    if machine == "aarch64":
        extra = "".join(f"+{own}" for name, own in _ARM.items() if name in features)
        return (f"-march=armv8-a{extra}",)
    raise CompileError(f"nobody knows the flags of a processor '{machine}'", Blame.MACHINE)


def pack_program(program: Program, target: CpuTarget, timeout_s: float) -> Parcel:
    """Build a program for a processor that may be elsewhere. Raises CompileError, by the machine's
    fault where the compiler here is another one: its times would be those of other code."""
    found = find_compiler().identity
    if found != target.compiler:
        text = f"the compiler here is {found}, and the library is to be one of {target.compiler}"
        raise CompileError(text, Blame.MACHINE)
    built = compile_program(program, timeout_s=timeout_s, target=target)
    with building("the library"):
        content = built.artifact.path.read_bytes()
    return Parcel(target.isa, INTERFACE, sha256(content).hexdigest(), content, built)


def unpack_parcel(
    parcel: Parcel, cache: BuildCache | None = None, isa: str | None = None
) -> Built[Artifact]:
    """The library on this host, whose processor is `isa` unless said. Raises CompileError, by the
    machine's fault, for one that is damaged or was made for other processors or callers."""
    reason = ""
    if parcel.isa != (isa or isa_digest()):
        reason = "it was compiled for another processor"
    elif parcel.interface != INTERFACE:
        reason = f"it is called by interface {parcel.interface}, not {INTERFACE}"
    elif sha256(parcel.content).hexdigest() != parcel.digest:
        reason = "its content is not what was compiled"
    if reason:
        raise CompileError(f"a library is refused: {reason}", Blame.MACHINE)
    with building("the library"):
        key = content_key(["parcel", parcel.digest])
        path = (cache or BuildCache()).put(key, ".so", parcel.content)
    return replace(
        parcel.built, artifact=replace(parcel.built.artifact, path=path, digest=parcel.digest)
    )


def _spoken(compiler: Compiler) -> str:
    command = [*compiler.command, NATIVE, "-E", "-v", "-"]
    try:
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise CompileError(f"the compiler does not answer: {error}", Blame.MACHINE) from error
    return answer.stderr
