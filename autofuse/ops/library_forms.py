"""What libraries are asked for: convolutions, Fourier transforms and factorisations of matrices, of
arrays in memory."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.ops.views import View


@dataclass(frozen=True, slots=True)
class StridedWindow:
    """The windows along one spatial axis of a convolution: their step, that of their taps, and the
    padding before and after the axis."""

    stride: int
    dilation: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class StridedConv:
    """A convolution of arrays in memory, axes by role: src[n, c, spatial...] with
    weights[o, c, spatial...], where it is grouped [group, o, c, spatial...], is dst[n, o,
    spatial...]. There is a window for each spatial axis."""

    src: View
    weights: View
    dst: View
    windows: tuple[StridedWindow, ...]


@dataclass(frozen=True, slots=True)
class Transform:
    """Fourier transforms of `n` numbers along the middle one of the axes [before, n, after] of a
    row-major array; of `kind` fft, ifft, rfft or irfft, of which the real side has no parts and the
    other one only n // 2 + 1 places."""

    kind: str
    n: int
    before: int
    after: int

    @property
    def count(self) -> int:
        """How many there are."""
        return self.before * self.after

    @property
    def sides(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of what is read and of what is written: places along the axis, and floats at each."""
        half = (self.n // 2 + 1, 2)
        if self.kind == "rfft":
            return (self.n, 1), half
        return (half, (self.n, 1)) if self.kind == "irfft" else ((self.n, 2), (self.n, 2))


@dataclass(frozen=True, slots=True)
class Solver:
    """`count` matrices of `rows` x `columns`, one after another and row-major, factorised or solved
    with by the op `kind`; `inner` columns of a right side, or so many reflections. `lower`: the
    elements of that triangle count; `unit`: ones are on the diagonal, whatever is in it."""

    kind: str
    count: int
    rows: int
    columns: int
    inner: int = 0
    lower: bool = True
    unit: bool = False

    @property
    def least(self) -> int:
        """The shorter side."""
        return min(self.rows, self.columns)
