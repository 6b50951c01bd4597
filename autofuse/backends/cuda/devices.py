"""What a CUDA device can hold: a small table, or the running device's own answers.

Planning needs no device, only these numbers, so a plan can be made for one that is not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autofuse.kernel.ir.instructions import INSTRUCTIONS
from autofuse.ops.types import AutofuseError
from autofuse.plan.parameters import GROUP_MMA

WARP = 32
# Arithmetic units of one multiprocessor by architecture: f32, f64 and special-function units, and
# the multiply-adds of 16-bit factors and of f64 that its tensor cores do in a clock.
_UNITS = {
    "sm_80": (64, 32, 16, 1024, 64),
    "sm_89": (128, 2, 16, 512, 2),
    "sm_90": (128, 64, 16, 2048, 128),
    "sm_100": (128, 64, 16, 4096, 128),
}
_OTHER_UNITS = (128, 2, 16, 512, 2)
_LEAST_ARCH, _CLUSTER_ARCH = 80, 90
# What machine code is made for where that has instructions that no later device has (PTX ISA,
# wgmma and setmaxnreg): it runs on every device of the architecture.
_CODE_FOR = {"sm_90": "sm_90a"}
# A multiprocessor's warps and registers are dealt to so many parts, each on its own.
_PARTS = 4
_KIB, _MIB = 1 << 10, 1 << 20


class TargetError(AutofuseError):
    """A device that is not in the table, or that this backend cannot serve."""


@dataclass(frozen=True, slots=True)
class Target:
    """One CUDA device as far as kernels depend on it.

    Sizes are bytes, `bandwidth` is GB/s (10^9 bytes) of device memory, `clock_ghz` the boost
    clock; `shared_per_block` is what a block gets once it has opted in."""

    arch: str
    name: str
    sms: int
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int
    shared_per_block: int
    shared_per_sm: int
    l2_bytes: int
    bandwidth: float
    clock_ghz: float
    threads_per_block: int = 1024
    registers_per_thread: int = 255
    grid_limit: int = 2**31 - 1

    def __str__(self) -> str:
        return f"{self.arch}:{self.name}"

    @property
    def early(self) -> bool:
        """A kernel may be launched before the one that it depends on is over (PTX ISA,
        griddepcontrol)."""
        return int(self.arch.removeprefix("sm_")) >= 90

    @property
    def clusters(self) -> int:
        """Blocks of a cluster that can be had: since sm_90, 8 on every device."""
        return 8 if int(self.arch.removeprefix("sm_")) >= _CLUSTER_ARCH else 0

    @property
    def code_for(self) -> str:
        """The architecture that kernels are compiled for."""
        return _CODE_FOR.get(self.arch, self.arch)

    @property
    def warpgroups(self) -> bool:
        """Whether warpgroups multiply (PTX ISA, wgmma)."""
        return self.code_for == INSTRUCTIONS[GROUP_MMA].only

    @property
    def halves(self) -> int:
        """Multiply-adds of 16-bit factors that a multiprocessor's tensor cores do in a clock."""
        return _UNITS.get(self.arch, _OTHER_UNITS)[3]

    @property
    def peaks(self) -> Mapping[str, float]:
        """Peak rates in 10^9 operations a second: "f32" and "f64" multiply-adds (two each),
        "special" function results (one each), and the multiply-adds of tensor cores by the class
        of their factors: "half" of 16 bits, "tf32" of f32 at half that rate, "byte" of whole
        numbers of 8 bits at twice that rate, and "double"."""
        single, double, special, half, wide = _UNITS.get(self.arch, _OTHER_UNITS)
        per_unit = self.sms * self.clock_ghz
        return {
            "f32": 2 * single * per_unit,
            "f64": 2 * double * per_unit,
            "special": special * per_unit,
            "half": 2 * half * per_unit,
            "tf32": half * per_unit,
            "byte": 4 * half * per_unit,
            "double": 2 * wide * per_unit,
        }


def _target(
    arch: str, name: str, sms: int, threads: int, blocks: int, shared_kib: int,
    l2_mib: int, bandwidth: float, clock_ghz: float,
) -> Target:  # fmt: skip
    """A row of the table; a block gets all of the shared memory but the system's one KiB."""
    return Target(
        arch, name, sms, threads, blocks, 65536, (shared_kib - 1) * _KIB, shared_kib * _KIB,
        l2_mib * _MIB, bandwidth, clock_ghz,
    )  # fmt: skip


# Data sheets: multiprocessors, threads and blocks each, shared KiB, L2 MiB, GB/s, boost GHz.
TARGETS = {
    t.name: t
    for t in (
        _target("sm_80", "A100", 108, 2048, 32, 164, 40, 2039.0, 1.41),
        _target("sm_89", "RTX4090", 128, 1536, 24, 100, 72, 1008.0, 2.52),
        _target("sm_90", "H100", 132, 2048, 32, 228, 50, 3350.0, 1.98),
        _target("sm_90", "H200", 132, 2048, 32, 228, 60, 4800.0, 1.98),
        _target("sm_100", "B200", 148, 2048, 32, 228, 126, 8000.0, 1.965),
    )
}
DEFAULT_TARGET = TARGETS["H100"]


def target_named(text: str) -> Target:
    """The device called "sm_90:H100", "H100", or "sm_90" (the first of that architecture).

    Raises TargetError for one that is not in the table."""
    first, _, second = text.partition(":")
    arch, name = (first, second) if first.startswith("sm_") else ("", second or first)
    plain = name.replace(" ", "").upper()
    for target in TARGETS.values():
        if arch in ("", target.arch) and plain in ("", target.name) and (arch or plain):
            return target
    known = ", ".join(str(t) for t in TARGETS.values())
    raise TargetError(f"unknown target '{text}' (known: {known})")


def target_of(name: str, capability: tuple[int, int], attributes: Mapping[str, int]) -> Target:
    """A device from its own answers: `attributes` are CuPy's names of the CUDA attributes, clocks
    in kHz. Raises TargetError for a device older than sm_80."""
    major, minor = capability
    if 10 * major + minor < _LEAST_ARCH:
        raise TargetError(f"{name} is sm_{major}{minor}: the CUDA backend needs sm_80 or newer")
    bus = attributes["GlobalMemoryBusWidth"] / 8
    return Target(
        arch=f"sm_{major}{minor}",
        name=name,
        sms=attributes["MultiProcessorCount"],
        threads_per_sm=attributes["MaxThreadsPerMultiProcessor"],
        blocks_per_sm=attributes["MaxBlocksPerMultiprocessor"],
        registers_per_sm=attributes["MaxRegistersPerMultiprocessor"],
        shared_per_block=attributes["MaxSharedMemoryPerBlockOptin"],
        shared_per_sm=attributes["MaxSharedMemoryPerMultiprocessor"],
        l2_bytes=attributes["L2CacheSize"],
        # Two transfers a clock; a driver that hides the clock leaves the table's figure.
        bandwidth=2e-6 * attributes.get("MemoryClockRate", 0) * bus or _nominal(name).bandwidth,
        clock_ghz=1e-6 * attributes.get("ClockRate", 0) or _nominal(name).clock_ghz,
    )


def _nominal(name: str) -> Target:
    """The row of the table that a device's full name mentions."""
    plain = name.replace(" ", "").upper()
    return next((t for t in TARGETS.values() if t.name in plain), DEFAULT_TARGET)


def blocks_resident(target: Target, threads: int, registers: int, shared: int) -> int:
    """Blocks of `threads` threads (with `registers` each and `shared` bytes a block) that one
    multiprocessor holds at once; 0 when a block does not fit. The rules of cuda_occupancy.h."""
    if threads > target.threads_per_block or shared > target.shared_per_block:
        return 0
    warps = -(-threads // WARP)
    # Registers are handed out to warps in units of 256, shared memory in units of 128 bytes plus
    # a kilobyte that the system keeps of every block.
    per_warp = -(-max(registers, 1) * WARP // 256) * 256
    # A block is let in as if it had as many warps in each part.
    if -(-warps // _PARTS) * _PARTS * per_warp > target.registers_per_sm:
        return 0
    limits = [
        target.threads_per_sm // (warps * WARP),
        target.blocks_per_sm,
        target.registers_per_sm // _PARTS // per_warp * _PARTS // warps,
        target.shared_per_sm // (-(-shared // 128) * 128 + _KIB),
    ]
    return min(limits)


def occupancy(target: Target, threads: int, registers: int, shared: int) -> float:
    """The share of a multiprocessor's thread slots that such blocks fill, 0 to 1."""
    blocks = blocks_resident(target, threads, registers, shared)
    return blocks * -(-threads // WARP) * WARP / target.threads_per_sm
