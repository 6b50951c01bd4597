"""Cases of a step on a GPU, in a process of their own.

Kernels that nobody has run on a device may hang, or break its context for whoever comes after them
in the same process. The process says what it begins before it begins: the case that it hangs or
dies at is named, and another process goes on after it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofuse.backends.base import LaunchError
from autofuse.records import WRONG
from benchmarks.gpu_children import follow
from benchmarks.gpu_steps import Context, Data
from benchmarks.run import sentence

# What the child ends with after a fault of the device: its context is of no use any more.
BROKEN = 3
RIGHT, REFUSED, FAILED, BEGUN = "right", "refused", "failed", "begun"


@dataclass(frozen=True)
class CaseStep:
    """A step of `gpu_check` whose cases `module` runs as a program, none for more than `limit_s`
    seconds."""

    name: str
    module: str
    limit_s: float

    def told(self, out: Path) -> Path:
        """Where the child writes its verdicts."""
        return out / f"{self.name}.jsonl"

    def run(self, context: Context, names: Sequence[str], seconds: float) -> Iterator[Data]:
        """Verdicts by case, more every time. A later call goes on with what was not right."""
        cases = context.found(self.name, "cases")
        end = context.clock() + seconds
        while (left := [name for name in names if name not in cases]) and context.clock() < end:
            watch = Watch(self, context)
            for found in self._child(context, left, end, watch):
                cases |= found
                yield cases
            cases |= watch.look()
            why = watch.verdict()
            if why is None:
                break
            if why:
                cases[watch.current] = {"state": FAILED, "error": why}
        yield cases

    def _child(
        self, context: Context, left: Sequence[str], end: float, watch: Watch
    ) -> Iterator[Data]:
        """One process on the cases that are left, killed where it hangs and at the end; what it has
        told so far, again and again."""
        asked, told = context.out / f"{self.name}-asked.json", self.told(context.out)
        asked.write_text(json.dumps(left), encoding="utf-8")
        told.unlink(missing_ok=True)
        command = child_command(self.module, context, asked, told)
        log, seconds = context.out / f"{self.name}.log", end - context.clock()
        with closing(follow(command, log, seconds, context.clock, poll_s=0.2)) as child:
            for code in child:
                watch.code = code
                yield watch.look()
                if watch.hangs:
                    return


def child_command(module: str, context: Context, asked: Path, told: Path) -> list[str]:
    """What runs `module` on the cases that the file `asked` names; it writes verdicts to `told`."""
    return [
        sys.executable, "-m", module, "--device", context.kind.name, "--size", context.size,
        "--asked", str(asked), "--told", str(told),
    ]  # fmt: skip


class Watch:
    """What a child has told so far: `current` is the case that it is at, `hangs` that it has been
    at it for too long, `code` what it ended with."""

    def __init__(self, step: CaseStep, context: Context) -> None:
        self._clock, self._step, self._told = context.clock, step, step.told(context.out)
        self.current, self.hangs = "", False
        self.code: int | None = None
        self._since = self._clock()

    def _rows(self) -> list[dict[str, Any]]:
        """Of lines that are whole."""
        text = self._told.read_text(encoding="utf-8") if self._told.exists() else ""
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def look(self) -> dict[str, Any]:
        """Verdicts by case."""
        rows = self._rows()
        found = {row["name"]: row["found"] for row in rows if "found" in row}
        begun = [row["name"] for row in rows if row.get("state") == BEGUN]
        at = begun[-1] if begun and begun[-1] not in found else ""
        if at != self.current:
            self.current, self._since = at, self._clock()
        self.hangs = bool(at) and self._clock() - self._since > self._step.limit_s
        return found

    def verdict(self) -> str | None:
        """What its end says of the current case, "" for nothing; None where the step is over.
        Raises RuntimeError where it ended before any case."""
        if self.hangs:
            return f"it hung: more than {self._step.limit_s:g} s"
        if self.code is None:
            return None
        if self.code not in (0, BROKEN) and not self.current:
            raise RuntimeError(f"the cases ended with code {self.code}: see {self._step.name}.log")
        return f"its process ended with code {self.code}" if self.current else ""


# --- the child ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What a child is asked: cases by name, on which device and at which size."""

    device: str
    size: str
    names: list[str]
    told: Path

    def answer(self, run: Callable[[str], Mapping[str, Any]]) -> int:
        """Tell what `run` finds of each case; the exit code. It ends at the first fault of the
        device: what `run` raises as a LaunchError, or calls wrong, since that is what becomes of
        an illegal address too."""
        with self.told.open("a", encoding="utf-8") as file:

            def say(row: Mapping[str, Any]) -> None:
                file.write(json.dumps(row) + "\n")
                file.flush()

            for name in self.names:
                say({"name": name, "state": BEGUN})
                try:
                    found = run(name)
                except LaunchError as error:
                    say({"name": name, "found": {"state": FAILED, "error": sentence(error)}})
                    return BROKEN
                say({"name": name, "found": found})
                if found["state"] == WRONG:
                    return BROKEN
        return 0


def asked(arguments: Sequence[str]) -> Asked:
    """What a child's command line says."""
    parser = argparse.ArgumentParser()
    for name in ("device", "size", "asked", "told"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args(arguments)
    names: list[str] = json.loads(Path(given.asked).read_text(encoding="utf-8"))
    return Asked(given.device, given.size, names, Path(given.told))
