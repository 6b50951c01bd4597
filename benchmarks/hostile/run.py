"""Damaged inputs through the command line: each is answered, or refused in a sentence and exit 2,
within its time and memory.

Most cases call the command line in a process that serves many of them; a share are processes of
their own. Every case follows from the seed, its kind and its number.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.hostile.damage import TEXTS
from benchmarks.hostile.kinds import KINDS, Kind

SECONDS, BYTES = 10, 2 << 30
# Cases of one process, and one of how many is a process of its own.
BATCH, ALONE = 250, 1000
_CODES = (0, 2, 4)
_SHOWN, _LONGEST = 300, 2000


@dataclass
class Tally:
    """What became of the cases of a kind; `failures` are kept files and what was wrong."""

    answered: int = 0
    refused: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    slowest_s: float = 0.0
    largest_mib: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "answered": self.answered,
            "refused": self.refused,
            "failed": len(self.failures),
            "slowest_s": round(self.slowest_s, 2),
            "largest_mib": self.largest_mib,
        }


def material(folder: Path, names: Sequence[str]) -> dict[str, list[bytes]]:
    """Sound files and hostile seeds of some kinds."""
    return {name: [*KINDS[name].sound(folder)] for name in names}


def content(kind: Kind, sound: Sequence[bytes], rng: random.Random) -> bytes:
    seeds = kind.seeds()
    if seeds and rng.random() < 0.02:
        return rng.choice(seeds)
    return rng.choice(kind.damages)(rng, rng.choice(sound))


def line_of(kind: Kind, rng: random.Random, file: Path) -> list[str]:
    """A command line that reads `file`, or a strange one."""
    if kind.lines:
        own = {"FILE": str(file), "DB": str(file.with_name("t.db"))}
        line = [*rng.choice(kind.lines)]
        return [_filled(word, own) for word in line]
    words = ("query", "show", "info", "zoo", "db", "bundle", "info", "merge", "export", "verify",
             "--db", "--device", "--dim", "--format", "--plan", "json", "cpu", "x=1", str(file),
             "zoo:softmax:small", "--help", "-", "--target", "--seed", "9" * 400)  # fmt: skip
    strange = [t.replace("\0", "") for t in TEXTS]
    return [rng.choice((*words, *strange)) for _ in range(rng.randrange(1, 7))]


def _filled(word: str, own: dict[str, str]) -> str:
    for name, value in own.items():
        if word == name or word.endswith(f"={name}"):
            return word[: -len(name)] + value
    return word


def wrong_about(code: int, out: str, err: str, asked: int = 0) -> str:
    """What is wrong about an answer to a line of so many characters, which it may quote; "" where
    nothing is."""
    if code not in _CODES:
        return f"exit {code}"
    if "Traceback" in err or "Traceback" in out:
        return "a traceback"
    if code != 2:
        return ""
    last = err.strip().splitlines()[-1:] or [""]
    said = last[0].startswith("autofuse: ") or "Error: " in err or "Usage: " in err
    return "" if said and len(last[0]) < _LONGEST + asked else "no sentence"


def answered(program: Callable[..., Any], line: Sequence[str]) -> tuple[int, str, str]:
    """A command line in this process."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="surrogateescape", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace", write_through=True)
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            program(list(line), prog_name="autofuse")
        except SystemExit as ended:
            code = int(ended.code or 0)
    texts = [s.buffer.getvalue().decode("utf-8", "replace") for s in (out, err)]
    return code, texts[0], texts[1]


class _LateError(BaseException):
    """A case took too long: no `except Exception` is to hold it up."""


def _late(*_: object) -> None:
    raise _LateError


def _case(name: str, number: int, seed: int, sound: Sequence[bytes], folder: Path) -> list[str]:
    rng = random.Random(f"{seed}:{name}:{number}")
    kind = KINDS[name]
    for left in folder.iterdir():
        left.unlink() if left.is_file() else shutil.rmtree(left)
    file = folder / f"case{kind.suffix}"
    file.write_bytes(content(kind, sound, rng))
    return line_of(kind, rng, file)


def _one(program: Callable[..., Any], line: Sequence[str], alone: bool) -> str:
    """What is wrong about the answer to a line; "" and the code where nothing is."""
    if alone:
        words = [w.encode("utf-8", "surrogateescape") for w in line if _encodes(w)]
        ran = subprocess.run(
            [sys.executable, "-m", "autofuse", *words], capture_output=True, timeout=10 * SECONDS,
            check=False,
        )  # fmt: skip
        code, out, err = (
            ran.returncode,
            *(t.decode("utf-8", "replace") for t in (ran.stdout, ran.stderr)),
        )
    else:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            code, out, err = answered(program, line)
        except _LateError:
            return f"more than {SECONDS} s of processor time"
        except BaseException as error:  # whatever gets out is what is looked for
            return f"{type(error).__name__}: {error}"[:_SHOWN]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    wrong = wrong_about(code, out, err, sum(map(len, line)))
    return f"{wrong}: {err[-_SHOWN:]}" if wrong else f"={code}"


def _encodes(word: str) -> bool:
    try:
        word.encode("utf-8", "surrogateescape")
    except UnicodeError:
        return False
    return True


def _batch(cases: _Cases, numbers: range, pipe: int) -> None:
    """The cases of one process, which tells of each before and after it."""
    from typer.main import get_command

    from autofuse.commands.app import app

    program = get_command(app)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, most))
    signal.signal(signal.SIGPROF, _late)
    with tempfile.TemporaryDirectory(prefix="autofuse-fuzz-") as where:
        folder = Path(where)
        os.environ["XDG_DATA_HOME"] = where
        for number in numbers:
            line = _case(cases.name, number, cases.seed, cases.sound, folder)
            begun = time.monotonic()
            os.write(pipe, json.dumps({"begins": number}).encode() + b"\n")
            found = _one(program, line, number % ALONE == ALONE - 1)
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            told = {"number": number, "found": found, "s": time.monotonic() - begun, "mib": most}
            os.write(pipe, json.dumps(told).encode() + b"\n")


def run_kind(
    name: str, count: int, seed: int, sound: Sequence[bytes], keep: Path,
    say: Callable[[str], None] = lambda _: None,
) -> Tally:  # fmt: skip
    """`count` cases of a kind; failing inputs are kept in `keep`."""
    cases, at = _Cases(name, seed, sound, keep, Tally(), Counter()), 0
    while at < count:
        at = _run_batch(cases, range(at, min(at + BATCH, count)))
        say(f"{name}: {at} of {count}, {len(cases.tally.failures)} failed")
    return cases.tally


@dataclass(frozen=True, slots=True)
class _Cases:
    """The cases of a kind, what became of them, and how often each failure was seen."""

    name: str
    seed: int
    sound: Sequence[bytes]
    keep: Path
    tally: Tally
    seen: Counter[str]


def _run_batch(cases: _Cases, batch: range) -> int:
    """One process; the number of the first case that it did not come to."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            _batch(cases, batch, writing)
        except BaseException as error:  # told by name: the process ends whatever it is
            ended = f"{type(error).__name__}: {error}"[:_SHOWN]
            os.write(writing, json.dumps({"ended": ended}).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writing)
    begun, done, ended = None, batch.start, ""
    with os.fdopen(reading, "rb") as told:
        for text in told:
            data = json.loads(text)
            if "begins" in data:
                begun = data["begins"]
                continue
            if "ended" in data:
                ended = data["ended"]
                continue
            begun, done = None, data["number"] + 1
            _note(cases, data)
    _, status = os.waitpid(child, 0)
    if begun is not None:
        code = os.waitstatus_to_exitcode(status)
        found = f"the process ended ({ended or code})"
        data = {"number": begun, "found": found, "s": 0.0, "mib": 0}
        _note(cases, data)
        return int(begun) + 1
    return done if done > batch.start else batch.stop


def _note(cases: _Cases, data: dict[str, Any]) -> None:
    name, seed, sound, keep = cases.name, cases.seed, cases.sound, cases.keep
    tally, seen = cases.tally, cases.seen
    tally.slowest_s = max(tally.slowest_s, data["s"])
    tally.largest_mib = max(tally.largest_mib, data["mib"])
    if data["found"].startswith("="):
        tally.refused += data["found"] == "=2"
        tally.answered += data["found"] != "=2"
        return
    # The same failure is kept once: inputs of one cause are many.
    cause = data["found"][:60]
    seen[cause] += 1
    file = f"{name}-{seed}-{data['number']}"
    tally.failures.append((file, data["found"]))
    if seen[cause] == 1:
        keep.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as where:
            line = _case(name, data["number"], seed, sound, Path(where))
            made = Path(where) / f"case{KINDS[name].suffix}"
            (keep / f"{file}{KINDS[name].suffix}").write_bytes(made.read_bytes())
        (keep / f"{file}.txt").write_text(f"{line}\n{data['found']}\n", errors="backslashreplace")
