"""How the body of an op asks for elements of its operands."""

from __future__ import annotations

from typing import Protocol

from autofuse.ops.scalar import Expr

Index = tuple[Expr, ...]


class Pull(Protocol):
    """What a body asks operands of."""

    def __call__(self, operand: int, index: Index, /) -> Expr:
        """The element of `operand` at `index`, as its `dtype.compute`; the index is in range."""
        ...

    def let(self, value: Expr, /) -> Expr:
        """`value` bound to a variable, so that using it several times computes it once.

        A bounded non-negative index should come back as a Sym with its extent.
        """
        ...
