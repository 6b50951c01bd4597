"""What a launch parameter is, and a configuration of them (`parameters.py` has the tables)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
# A factorisation of matrices, which only a library does.
SOLVER = "solver"
# A loop that the host runs: its kernels have configurations of their own.
BODY = "body"
# Who computes what a library could.
BLAS, BLASLT, ONEDNN, FFT, GENERATED = "blas", "blaslt", "onednn", "fft", "loops"
# Asked for by no setting: nothing else computes what it does.
LAPACK = "lapack"
# Kernels that may have tiles: products alone, which may also be library calls, and fused ones.
TILES = (GEMM, PRODUCT)


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """Choices that do not change what a kernel computes.

    `settings` are sorted (parameter, setting) pairs. `inner`, of a loop that the host runs, are the
    configurations of its body's groups in the order of their plan; without them each group takes
    the loop's own."""

    settings: tuple[tuple[str, Setting], ...] = ()
    inner: tuple[LaunchConfig, ...] = ()

    @staticmethod
    def of(**settings: Setting) -> LaunchConfig:
        return LaunchConfig(tuple(sorted(settings.items())))

    def __getitem__(self, key: str) -> Setting:
        return dict(self.settings)[key]

    def get(self, key: str, default: Setting) -> Setting:
        return dict(self.settings).get(key, default)

    def everywhere(self) -> Iterator[LaunchConfig]:
        """This one and all inside it, in order."""
        yield self
        for each in self.inner:
            yield from each.everywhere()

    def changed(self, change: Callable[[LaunchConfig], LaunchConfig]) -> LaunchConfig:
        """This one with `change` made to its settings and to those of all inside it."""
        own = change(LaunchConfig(self.settings)).settings
        return LaunchConfig(own, tuple(each.changed(change) for each in self.inner))

    def __str__(self) -> str:
        own = ",".join(f"{k}={v}" for k, v in self.settings)
        return f"{own}[{'; '.join(map(str, self.inner))}]" if self.inner else own


def _short(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


class LaunchSettingError(AutofuseError):
    """A launch setting that no kernel can have."""


@dataclass(frozen=True)
class LaunchParameter(Generic[T]):
    """One thing that may be chosen of how a kernel is launched.

    `choices` are what a launch space offers at most, and all there is unless `least` and `most` are
    given: then every whole number between them is a setting, and none above: a stored
    configuration may say any number, and kernels grow with it. A kernel that is told nothing gets
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
    most: int | None = None
    spelled: bool = False

    def __post_init__(self) -> None:
        assert (self.least is None) == (self.most is None), f"{self.name} has one limit alone"

    def of(self, launch: LaunchConfig) -> T:
        """The setting of a configuration; raises LaunchSettingError for one that cannot be."""
        return self.checked(launch.get(self.name, self.default))

    def has(self, value: Setting) -> bool:
        """Whether `value` is a setting of this parameter."""
        if type(value) is not self.type:
            return False
        if self.least is None or self.most is None:
            return value in self.choices
        return self.least <= int(value) <= self.most

    def checked(self, value: Setting) -> T:
        """`value`, if it is a setting of this parameter; raises LaunchSettingError."""
        if type(value) is self.type and self.has(value):
            return value
        if self.least is None:
            raise LaunchSettingError(
                f"launch setting {self.name}={_short(value)} is none of {self.choices}"
            )
        raise LaunchSettingError(
            f"launch setting {self.name}={_short(value)} is no count of {self.least} to {self.most}"
        )


LaunchTable = dict[str, LaunchParameter[Any]]
