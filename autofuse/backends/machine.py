"""What this machine is: its cores, processor, instruction set and caches."""

from __future__ import annotations

import ctypes
import platform
import struct
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from autofuse.limits import usable_cores

# Assumed where the kernel does not tell (some containers hide /sys): a common server size.
FALLBACK_CACHE_BYTES = 32 << 20
_TELLING = (
    "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8", "asimd", "asimdhp", "sve", "sve2", "bf16",
    "i8mm",
)  # fmt: skip
# arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA), by its number on x86-64.
_ASK_FOR_TILES = (158, 0x1023, 18)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@lru_cache(maxsize=1)
def host_identity() -> str:
    """Tells this machine from others that share a home; all its containers agree on it, and it is
    another one after each start."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:13]
    except OSError:
        return platform.node()


@lru_cache(maxsize=1)
def _cpuinfo() -> dict[str, str]:
    """The first processor's fields of /proc/cpuinfo; empty where there is none."""
    found: dict[str, str] = {}
    try:
        # Line by line: all of it takes a large machine long to write, and the first will do.
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not line.strip():
                    break
                key, colon, value = line.partition(":")
                if colon:
                    found[key.strip()] = value.strip()
    except OSError:
        return {}
    return found


def host_facts() -> tuple[dict[str, str], dict[str, str]]:
    """What must match for a time of this machine to be used again, and what makes it stale, but for
    the compiler: who runs a library that is built asks for none."""
    must = {
        "cores": str(usable_cores()),
        "isa": isa_digest(),
        "model": cpu_model(),
        "word": str(8 * struct.calcsize("P")),
    }
    return must, {"kernel": platform.release(), "libc": " ".join(platform.libc_ver())}


def cpu_model() -> str:
    """The processor's name (on machines that print none, its implementer and part numbers)."""
    info = _cpuinfo()
    if "model name" in info:
        family = "/".join(info.get(key, "?") for key in ("cpu family", "model", "stepping"))
        return f"{info['model name']} ({family})"
    part = " ".join(info.get(key, "?") for key in ("CPU implementer", "CPU part"))
    return f"{platform.machine()} {part}"


def isa_digest() -> str:
    """16 hex digits naming the instruction set: architecture and sorted feature flags."""
    return sha256(" ".join([platform.machine(), *instruction_flags()]).encode()).hexdigest()[:16]


def instruction_flags() -> tuple[str, ...]:
    """All that the processor says it can do, as Linux spells it, sorted."""
    info = _cpuinfo()
    return tuple(sorted((info.get("flags") or info.get("Features") or "").split()))


def instruction_sets() -> tuple[str, ...]:
    """Those of this machine that matter to kernels, as Linux spells them."""
    flags = set(instruction_flags())
    return tuple(name for name in _TELLING if name in flags)


def vector_bits() -> int:
    """Width of this machine's vector registers: 512 (AVX-512), 256 (AVX2) or 128."""
    flags = (_cpuinfo().get("flags") or "").split()
    return 512 if "avx512f" in flags else 256 if "avx2" in flags else 128


def multiplies_pairs() -> bool:
    """This machine multiplies and adds pairs of bf16 by an instruction (AVX512-BF16)."""
    return "avx512_bf16" in (_cpuinfo().get("flags") or "").split()


def has_tiles() -> bool:
    """This machine's processor multiplies tiles of bf16 (AMX)."""
    return "amx_bf16" in instruction_flags() and platform.machine() == "x86_64"


@lru_cache(maxsize=1)
def multiplies_tiles() -> bool:
    """This process may multiply tiles of bf16: the processor has them, and the kernel, which is
    asked for all threads of the process by the first call, grants what they take to be saved
    (Linux, Documentation/arch/x86/xstate.rst)."""
    return has_tiles() and ctypes.CDLL(None).syscall(*_ASK_FOR_TILES) == 0


def last_level_cache_bytes() -> int:
    """Size of the largest cache of core 0; FALLBACK_CACHE_BYTES where the system does not say."""
    return max(_data_caches().values(), default=0) or FALLBACK_CACHE_BYTES


def cache_bytes() -> tuple[int, int, int]:
    """Sizes of the first, the second and the last level of data cache of core 0; common ones where
    the system does not say."""
    known = _data_caches()
    return known.get(1, 32 << 10), known.get(2, 1 << 20), last_level_cache_bytes()


def _data_caches() -> dict[int, int]:
    """Bytes of the data caches of core 0 by level."""
    sizes: dict[int, int] = {}
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind, level, text = (
                (path / name).read_text(encoding="ascii").strip()
                for name in ("type", "level", "size")
            )
            if kind != "Instruction":
                sizes[int(level)] = int(text.rstrip("KMG")) * _UNITS.get(text[-1:], 1)
        except (OSError, ValueError):  # a container may hide or empty single entries
            continue
    return sizes
