"""Products of a few rows by narrow weights, at the sizes of decoders: what is compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from autofuse.graph.composites.narrow import packed

# Columns and terms of the layers of Llama 3.2 1B and 3B, and of Llama 3.1 8B: attention's output,
# the first and the last product of its feed-forward network (their published configurations).
SHAPES = {
    "1B": ((2048, 2048), (8192, 2048), (2048, 8192)),
    "3B": ((3072, 3072), (8192, 3072), (3072, 8192)),
    "8B": ((4096, 4096), (14336, 4096), (4096, 14336)),
}


@dataclass(frozen=True, slots=True)
class Format:
    """How weights are kept: `bits` of each, a scale for each `block` of terms (0: for a column),
    and a zero point of its own for each, if `asymmetric`."""

    name: str
    bits: int
    block: int
    asymmetric: bool = False


FORMATS = (
    Format("i8", 8, 0),
    Format("i8 g32", 8, 32),
    Format("i4 g32", 4, 32),
    Format("i4 g128", 4, 128),
    Format("i4 g32 asymmetric", 4, 32, True),
)


@dataclass(frozen=True)
class Case:
    """One product: `rows` of f32 by weights of `columns` x `terms`."""

    model: str
    rows: int
    columns: int
    terms: int
    format: Format

    @property
    def name(self) -> str:
        return f"{self.model} {self.rows} x {self.terms} x {self.columns} {self.format.name}"

    @property
    def block(self) -> int:
        return self.format.block or self.terms

    @property
    def blocks(self) -> int:
        return self.terms // self.block

    @cached_property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng([self.rows, self.columns, self.terms, self.format.bits])

    @cached_property
    def given(self) -> np.ndarray:
        """The rows, f32."""
        return self.rng.standard_normal((self.rows, self.terms)).astype(np.float32)

    @cached_property
    def numbers(self) -> np.ndarray:
        """Whole numbers from 0 on, u8 of columns x blocks x block."""
        shape, most = (self.columns, self.blocks, self.block), 2**self.format.bits
        return self.rng.integers(0, most, shape, dtype=np.uint8)

    @cached_property
    def scales(self) -> np.ndarray:
        """f32 of columns x blocks."""
        return self.rng.uniform(0.5, 1.5, (self.columns, self.blocks)).astype(np.float32)

    @cached_property
    def zeros(self) -> np.ndarray:
        """u8 of columns x blocks."""
        shape, most = (self.columns, self.blocks), 2**self.format.bits
        if not self.format.asymmetric:
            return np.full(shape, most // 2, np.uint8)
        return self.rng.integers(0, most, shape, dtype=np.uint8)

    def stored(self, array: np.ndarray) -> np.ndarray:
        """Whole numbers as they lie in memory, u8."""
        return packed(array, self.format.bits) if self.format.bits < 8 else array

    @property
    def nbytes(self) -> int:
        """Bytes of weights, scales and zero points that are read."""
        zeros = self.stored(self.zeros).nbytes if self.format.asymmetric else 0
        return self.stored(self.numbers).nbytes + self.scales.nbytes + zeros

    def wanted(self) -> np.ndarray:
        """The result in f64."""
        wide = self.numbers.astype(np.float64) - self.zeros[:, :, None]
        weights = (wide * self.scales[:, :, None]).reshape(self.columns, self.terms)
        made: np.ndarray = self.given.astype(np.float64) @ weights.T
        return made


def cases(
    models: tuple[str, ...], rows: tuple[int, ...], formats: tuple[str, ...]
) -> Iterator[Case]:
    """All of some models, numbers of rows and formats."""
    chosen = [each for each in FORMATS if each.name in formats]
    for model, count, form in product(models, rows, chosen):
        for columns, terms in SHAPES[model]:
            yield Case(model, count, columns, terms, form)
