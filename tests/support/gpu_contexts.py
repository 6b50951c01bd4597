"""Steps of gpu_check on their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autofuse.backends.cuda.devices import DEFAULT_TARGET
from autofuse.devices import DEVICES
from autofuse.measure.truth.references import Preparation
from benchmarks.gpu_steps import Context


def context(out: Path, *workloads: str, clock: Any = lambda: 0.0, **steps: Any) -> Context:
    """Of a step on its own, after others found `steps`."""
    return Context(
        out, "x.db", DEVICES["cuda"], DEFAULT_TARGET, "default", workloads, (), clock,
        lambda _: None, steps, Preparation({}),
    )  # fmt: skip
