"""What a launch parameter is, and a configuration of them (`parameters.py` has the tables)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from autofuse.ops.types import AutofuseError

Setting = int | str | bool
T = TypeVar("T", int, str, bool)
ITEM, ROW, LOOP, GEMM, PRODUCT = "item", "row", "loop", "gemm", "product"
# A product whose columns index both operands: a depthwise convolution, which only C has tiles of.
DIAGONAL = "diagonal"
# A Fourier transform, which a library does, or a kernel by its definition.
TRANSFORM = "transform"
LOOPS = (ITEM, ROW, LOOP)
# A loop that the host runs: its kernels have configurations of their own.
BODY = "body"
# Who computes what a library could.
BLAS, BLASLT, ONEDNN, FFT, GENERATED = "blas", "blaslt", "onednn", "fft", "loops"
# Kernels that may have tiles: products alone, which may also be library calls, and fused ones.
TILES = (GEMM, PRODUCT)


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """Choices that do not change what a kernel computes, as sorted (parameter, setting) pairs."""

    settings: tuple[tuple[str, Setting], ...] = ()

    @staticmethod
    def of(**settings: Setting) -> LaunchConfig:
        return LaunchConfig(tuple(sorted(settings.items())))

    def __getitem__(self, key: str) -> Setting:
        return dict(self.settings)[key]

    def get(self, key: str, default: Setting) -> Setting:
        return dict(self.settings).get(key, default)

    def __str__(self) -> str:
        return ",".join(f"{k}={v}" for k, v in self.settings)


class LaunchSettingError(AutofuseError):
    """A launch setting that no kernel can have."""


@dataclass(frozen=True)
class LaunchParameter(Generic[T]):
    """One thing that may be chosen of how a kernel is launched.

    `choices` are what a launch space offers at most, and all that there is unless `least` is given:
    then every whole number from there on is a setting. A kernel that is told nothing gets
    `default`, and a configuration leaves it out unless it is `spelled`. `kinds` are those of
    kernels that it is offered to (none: it is derived, or for experiments). `changes_text` is False
    where a kernel's text is the same under all settings, so that only the compiler's flags or the
    launch depend on it."""

    name: str
    type: type[T]
    choices: tuple[T, ...]
    default: T
    doc: str
    kinds: tuple[str, ...] = ()
    changes_text: bool = True
    least: int | None = None
    spelled: bool = False

    def of(self, launch: LaunchConfig) -> T:
        """The setting of a configuration; raises LaunchSettingError for one that cannot be."""
        return self.checked(launch.get(self.name, self.default))

    def checked(self, value: Setting) -> T:
        """`value`, if it is a setting of this parameter; raises LaunchSettingError."""
        if self.least is None:
            if type(value) is self.type and value in self.choices:
                return value
            raise LaunchSettingError(
                f"launch setting {self.name}={value!r} is none of {self.choices}"
            )
        if type(value) is self.type and int(value) >= self.least:
            return value
        raise LaunchSettingError(f"launch setting {self.name}={value!r} is not a count")


LaunchTable = dict[str, LaunchParameter[Any]]
