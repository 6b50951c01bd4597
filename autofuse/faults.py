"""Faults of our own: what fails inside a rule, a pass or a planner must not take a program down,
nor go unnoticed.

What can be done without (`guarded`) is left out when it fails, and that is told by name: to who
collects (`collecting`), else to the log `autofuse.faults`. In strict mode (`strict()`, or
AUTOFUSE_STRICT=1), as tests run, nothing is done without: the error is raised.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

STRICT_VARIABLE = "AUTOFUSE_STRICT"
_LOG = logging.getLogger("autofuse.faults")
_STRICT: ContextVar[bool | None] = ContextVar("autofuse_strict", default=None)
_COLLECTED: ContextVar[list[str] | None] = ContextVar("autofuse_faults", default=None)


def is_strict() -> bool:
    """Whether faults are raised."""
    asked = _STRICT.get()
    return os.environ.get(STRICT_VARIABLE, "") not in ("", "0") if asked is None else asked


@contextmanager
def strict(on: bool = True) -> Iterator[None]:
    """Raise faults in this block, or (`on` False) do without what fails."""
    token = _STRICT.set(on)
    try:
        yield
    finally:
        _STRICT.reset(token)


@contextmanager
def collecting() -> Iterator[list[str]]:
    """The faults of this block as sentences, each once; those around it hear of them too."""
    outer, told = _COLLECTED.get(), list[str]()
    token = _COLLECTED.set(told)
    try:
        yield told
    finally:
        _COLLECTED.reset(token)
        for sentence in told if outer is not None else ():
            _hear(outer, sentence)


def tell(what: str, error: BaseException) -> str:
    """Note that `what` failed and is done without; raises in strict mode. Returns the sentence."""
    if is_strict():
        raise error
    sentence = f"{what} failed and was done without: {reason_of(error)}"
    _hear(_COLLECTED.get(), sentence)
    return sentence


def reason_of(error: BaseException) -> str:
    """An error in one line: a sentence of ours as it is, anything else with its type."""
    from autofuse.errors import AutofuseError

    text = " ".join(str(error).split())[:300]
    if isinstance(error, AutofuseError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Do without what fails in this block."""
    try:
        yield
    except Exception as error:  # whatever fails: it is told by name, and raised in strict mode
        tell(what, error)


def _hear(told: list[str] | None, sentence: str) -> None:
    if told is None:
        _LOG.warning("%s", sentence)
    elif sentence not in told:
        told.append(sentence)
