"""The op table: importing this package registers every row."""

from autofuse.ops import contraction, control, movement, random, reduction

__all__ = ["contraction", "control", "movement", "random", "reduction"]
