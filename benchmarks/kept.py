"""A table that is kept as its rows end, so that a run that was cut off goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autofuse.devices import timed_device
from autofuse.peers.types import BenchError
from benchmarks.run import write_json
from tuning_db import Store

Row = dict[str, Any]
# A row by its name, and what makes it.
Wanted = tuple[str, Callable[[], Row]]


def calibrated_peaks() -> Mapping[str, float]:
    """What this device is calibrated to, outside of any row's budget."""
    return timed_device("cpu").calibrate().to_mapping()


@contextmanager
def empty_database(peaks: Mapping[str, float]) -> Iterator[str]:
    """The file of a tuning database that knows what this machine was calibrated to and nothing
    else, beside an empty build cache."""
    with TemporaryDirectory() as folder:
        os.environ["AUTOFUSE_CACHE"] = str(Path(folder) / "cache")
        db = str(Path(folder) / "tuning.db")
        with Store.open(db) as store:
            store.set_calibration(timed_device("cpu").backend.environment(), peaks)
        yield db


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


def filled(
    rows: dict[str, Row], wanted: Iterable[Wanted], is_done: Callable[[Row], bool],
    data: Callable[[], dict[str, Any]], output: Path | None, say: Callable[[str, Row], object],
) -> dict[str, Any]:  # fmt: skip
    """The `data` of a table once `rows` has all that are wanted. Those that are done are kept,
    others made; `output` is rewritten after each."""
    for name, make in wanted:
        if not is_done(rows.get(name, {})):
            rows[name] = make()
        say(name, rows[name])
        if output is not None:
            write_json(output, data())
    return data()
