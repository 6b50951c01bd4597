"""A kernel as C text."""

from __future__ import annotations

import textwrap


def text(expected: str) -> str:
    return textwrap.dedent(expected).strip("\n")
