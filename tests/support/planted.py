"""Faults that are planted in the text of a kernel, which the emulator must see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from autofuse.backends.emulator.emulator import Emulated, EmulatorError
from autofuse.kernel.text.dialects import CUDA
from tests.support.emulation import OneKernel, library_of


def body(one: OneKernel) -> str:
    """The kernel without the prelude."""
    return one.text.removeprefix(CUDA.prelude)


def changed(one: OneKernel, name: str, old: str, new: str) -> OneKernel:
    """The kernel under another name, with another text somewhere."""
    head, source = CUDA.prelude, one.unit.source
    assert old in body(one)
    text = head + body(one).replace(old, new).replace(source.name, f"k_{name}")
    source = replace(source, name=f"k_{name}", text=text)
    return replace(one, unit=replace(one.unit, source=source))


def all_are_seen(
    one: OneKernel,
    faults: Mapping[str, tuple[str, str]],
    is_right: Callable[[Emulated, OneKernel], bool],
) -> None:
    """Raises where the kernel is not right, or is as right with some old text made a new one."""
    faulty = [changed(one, name, *texts) for name, texts in faults.items()]
    library = library_of([one, *faulty])
    assert is_right(library, one)
    for each in faulty:
        with pytest.raises((EmulatorError, AssertionError)):
            assert is_right(library, each), each.unit.source.name
            pytest.fail(f"{each.unit.source.name} was not seen")
