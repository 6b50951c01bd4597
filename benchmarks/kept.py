"""A table that is kept as its rows end, so that a run that was cut off goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autofuse.devices import timed_device
from autofuse.peers.types import BenchError


def calibrated_peaks() -> Mapping[str, float]:
    """What this device is calibrated to, outside of any row's budget."""
    return timed_device("cpu").calibrate().to_mapping()


def kept_table(output: Path | None, facts: Mapping[str, Any], script: str) -> dict[str, Any]:
    """What a run of `script` has left in a file; nothing where there is none. Raises BenchError for
    what holds no rows, or rows of other `facts`."""
    if output is None or not output.exists():
        return {}
    try:
        found = json.loads(output.read_text(encoding="utf-8"))
        others = [name for name, fact in facts.items() if found[name] != fact]
        dict(found["rows"])
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{output} holds no rows of {script}: {error}") from error
    if others:
        raise BenchError(f"{output} holds rows of another {others[0]}: name another file")
    return dict(found)
