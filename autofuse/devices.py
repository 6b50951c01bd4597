"""The kinds of devices that plans are made for: one record each, one registry, one lookup."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from autofuse.backends.cpu import backend as cpu
from autofuse.backends.cpu.onednn_calls import does
from autofuse.backends.cpu.pocketfft import has_pocketfft
from autofuse.backends.cuda import driver
from autofuse.backends.cuda import program as cuda
from autofuse.backends.cuda.blaslt import has_cublaslt
from autofuse.backends.cuda.devices import DEFAULT_TARGET, Target, target_named
from autofuse.backends.cuda.maps import has_tensor_maps
from autofuse.backends.machine import cache_bytes, multiplies_pairs, multiplies_tiles, vector_bits
from autofuse.backends.registry import (
    CPU_BACKEND,
    CUDA_BACKEND,
    Backend,
    emulated_backend,
    relaxed_backend,
)
from autofuse.cost.bounds import Calibration
from autofuse.kernel.text.dialects import CUDA, C, Dialect
from autofuse.measure.calibrate.cuda import target_calibration
from autofuse.measure.hardware import GPU, HOST, Hardware
from autofuse.ops.types import AutofuseError
from autofuse.plan.arithmetic import DEFAULT_MATH, check_math
from autofuse.plan.parameters import RELAXED
from autofuse.plan.program.schedule import Run
from search_spaces import CpuLaunchSpace, CudaLaunchSpace, LaunchSpace

AUTO = "auto"


@dataclass(frozen=True)
class DeviceKind:
    """All there is to know of one kind of device.

    `backend` builds and runs; `launches` gives the launch space of the device that is here, or of
    the backend's target. `dialect` is what kernels are written in, and `kernel_text` the name and
    the text of one. `help` is what the command line says of it besides its name.
    `hardware` takes times; a kind without it is never timed. `standing_for` makes a backend for a
    device that is not here, and `automatic` says whether "auto" may mean this kind. With
    `dear_launches` small kernels cost what their launches cost, so that what was never tuned is
    fused horizontally. With `fast_tiles` generated products are as fast as the library's, so that
    products that were never tuned are fused where that is expected to pay. With `first_check`
    programs run in this process, so that it can check them before they serve."""

    name: str
    backend: Backend
    launches: Callable[[Backend], LaunchSpace]
    dialect: Dialect
    kernel_text: Callable[[Run], tuple[str, str]]
    help: str = ""
    hardware: Hardware | None = None
    standing_for: Callable[[Target], Backend] | None = None
    automatic: bool = False
    dear_launches: bool = False
    fast_tiles: bool = False
    first_check: bool = False

    @property
    def space(self) -> LaunchSpace:
        """Raises AutofuseError where the device itself must answer, and is not here."""
        return self.launches(self.backend)

    @property
    def timer(self) -> Hardware:
        """What takes times; raises AutofuseError for a kind that is never timed."""
        if self.hardware is None:
            raise AutofuseError(f"device '{self.name}' is never timed: it only shows what is right")
        return self.hardware

    def must_be_timed(self) -> None:
        """Raises AutofuseError for a kind that is never timed."""
        assert self.timer is not None

    def cache_bytes(self) -> int:
        """Bytes of the last-level cache; raises AutofuseError where the device is not here."""
        target = self.backend.target
        return self.timer.cache_bytes() if target is None else target.l2_bytes

    def calibrate(self) -> Calibration:
        """Peaks of the device here, measured; of a target, by its data sheet."""
        target = self.backend.target
        if target is not None:
            return target_calibration(target)
        return self.completed(self.timer.calibrate())

    def lacks(self, known: Calibration) -> bool:
        """Whether there is more to measure than a calibration of before has: latencies."""
        return not known.latency and self.backend.target is None and self.timer.has_latencies

    def completed(self, known: Calibration) -> Calibration:
        """A calibration with what it lacks, measured."""
        if not self.lacks(known):
            return known
        return replace(known, latency=self.timer.latencies(self.backend.math == RELAXED))


def _c_text(run: Run) -> tuple[str, str]:
    return cpu.kernel_text(cpu.kernel_of(run), run.launch)


def _cuda_text(run: Run) -> tuple[str, str]:
    return cuda.kernel_text(cuda.kernel_of(run), run.launch)


def _cuda_launches(backend: Backend) -> LaunchSpace:
    # What stands for another device never calls a library of that one, and is taken to have a
    # driver that makes tensor maps, as the emulator has.
    here = backend.target is None
    maps = not here or has_tensor_maps()
    return CudaLaunchSpace(
        backend.target or driver.running_target(), here and has_cublaslt(), maps,
        relaxed=backend.math == RELAXED,
    )  # fmt: skip


# The first that is ready is what "auto" means, of those that it may mean.
DEVICES: dict[str, DeviceKind] = {
    kind.name: kind
    for kind in (
        DeviceKind(
            "cuda", CUDA_BACKEND, _cuda_launches, CUDA, _cuda_text, hardware=GPU, automatic=True,
            dear_launches=True,
        ),
        DeviceKind(
            "cpu", CPU_BACKEND,
            lambda backend: CpuLaunchSpace(
                vector_bits(), does, cache_bytes(), multiplies_pairs(), has_pocketfft(),
                multiplies_tiles(), relaxed=backend.math == RELAXED,
            ), C, _c_text, hardware=HOST, automatic=True, fast_tiles=True, first_check=True,
        ),
        DeviceKind(
            "cuda-emulated", emulated_backend(DEFAULT_TARGET), _cuda_launches, CUDA, _cuda_text,
            "on the CPU, never timed", standing_for=emulated_backend, dear_launches=True,
        ),
    )
}  # fmt: skip


def device_named(name: str = AUTO, target: str = "", math: str = DEFAULT_MATH) -> DeviceKind:
    """The kind called `name`, standing for the device called `target` if one is named, whose
    kernels do with arithmetic what `math` allows.

    Raises AutofuseError for an unknown name, target or math, and for a kind that stands for
    itself."""
    return under(chosen_device(name, target)[0], math)


def under(kind: DeviceKind, math: str) -> DeviceKind:
    """A kind whose kernels do with arithmetic what `math` allows."""
    check_math(math)
    return kind if math == DEFAULT_MATH else replace(kind, backend=relaxed_backend(kind.backend))


def timed_device(name: str = AUTO, target: str = "", math: str = DEFAULT_MATH) -> DeviceKind:
    """The kind for measuring; raises AutofuseError where it is not ready or never timed."""
    kind = device_named(name, target, math)
    kind.must_be_timed()
    kind.backend.ready()
    return kind


def chosen_device(name: str, target: str = "") -> tuple[DeviceKind, str]:
    """As `device_named`, and what should be said about the choice ("" for nothing).

    "auto" is the best kind that is ready here; where a target is named, the one that can stand for
    it."""
    if name == AUTO:
        if target:
            return targeted(_standing()[0], target), ""
        return _best()
    if name in DEVICES:
        return (targeted(DEVICES[name], target) if target else DEVICES[name]), ""
    first, _, number = name.partition(":")
    if first in DEVICES and number:
        raise AutofuseError(
            f"unknown device '{name}': ask for '{first}', and choose among several with "
            "CUDA_VISIBLE_DEVICES"
        )
    known = ", ".join(sorted(DEVICES))
    raise AutofuseError(f"unknown device '{name}' (known here: {AUTO}, {known})")


def _best() -> tuple[DeviceKind, str]:
    *wanted, last = (kind for kind in DEVICES.values() if kind.automatic)
    remarks = []
    for kind in wanted:
        try:
            kind.backend.ready()
        except AutofuseError as error:
            remarks.append(f"{error}; using device '{last.name}'")
            continue
        return kind, ""
    return last, " ".join(remarks)


def _standing() -> list[DeviceKind]:
    return [kind for kind in DEVICES.values() if kind.standing_for is not None]


def targeted(kind: DeviceKind, target: str) -> DeviceKind:
    """`kind` standing for the device called `target`; raises AutofuseError for a kind that runs on
    real hardware, and for an unknown target."""
    if kind.standing_for is None:
        names = ", ".join(sorted(each.name for each in _standing()))
        raise AutofuseError(
            f"device '{kind.name}' is what it is: a target can be named for {names} only"
        )
    return replace(kind, backend=kind.standing_for(target_named(target)))


def standing_in(kind: DeviceKind) -> DeviceKind:
    """The kind that makes the same kernels and needs no such hardware: for plans of a device that
    is not here."""
    same = (each for each in _standing() if each.dialect.name == kind.dialect.name)
    return next(same, kind)


def present_device(
    name: str = AUTO, target: str = "", tell: Callable[[str], object] | None = None,
    math: str = DEFAULT_MATH,
) -> DeviceKind:  # fmt: skip
    """As `device_named`; `tell` hears why "auto" is no better.

    Raises AutofuseError for hardware that is not here."""
    kind, remark = chosen_device(name, target)
    if remark and tell is not None:
        tell(remark)
    kind.backend.present()
    return under(kind, math)


def speaking(dialect: str) -> DeviceKind:
    """A kind whose kernels are written in a dialect, be its hardware here or not.

    Raises AutofuseError for an unknown dialect."""
    found = [kind for kind in DEVICES.values() if kind.dialect.name == dialect]
    if not found:
        known = ", ".join(dict.fromkeys(kind.dialect.name for kind in DEVICES.values()))
        raise AutofuseError(f"no device speaks '{dialect}' (known: {known})")
    return min(found, key=lambda kind: kind.standing_for is None)


def devices_help() -> str:
    """What the option --device says."""
    names = (f"{k.name} ({k.help})" if k.help else k.name for k in DEVICES.values())
    return f"{', '.join([AUTO, *names])}."
