"""The measuring process in a sandbox, for graphs that nobody vouches for.

With AUTOFUSE_SANDBOX=bwrap the worker runs under bubblewrap: it sees no network and no other
process, and all files are read-only to it but those of its own folder, where its build cache then
is too. What a candidate writes by a fault of ours, or of an op's, goes nowhere. Times are as
without: nothing stands between the worker and its processor.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from autofuse.measure.timing.sampling import MeasureError

SANDBOX_VARIABLE = "AUTOFUSE_SANDBOX"
_BUBBLEWRAP = "bwrap"
# A process that a signal has ended is told by bubblewrap as shells do.
_BY_SIGNAL = 128


def is_asked_for() -> bool:
    """Whether measuring processes are to be sandboxed. Raises MeasureError for a value that means
    nothing."""
    named = os.environ.get(SANDBOX_VARIABLE, "")
    if named not in ("", _BUBBLEWRAP):
        raise MeasureError(f"{SANDBOX_VARIABLE} is '{named}', which is not '{_BUBBLEWRAP}'")
    return bool(named)


def sandboxed(command: Sequence[str], folder: Path) -> list[str]:
    """`command` in a sandbox that may write in `folder` alone. Raises MeasureError where there is
    no bubblewrap: nothing is run without what was asked for."""
    found = shutil.which(_BUBBLEWRAP)
    if found is None:
        raise MeasureError(
            f"{SANDBOX_VARIABLE} asks for {_BUBBLEWRAP}, which is not here: "
            "on Debian run: apt-get install bubblewrap"
        )
    own = str(folder)
    return [
        found, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev",
        "--proc", "/proc", "--bind", own, own, "--chdir", own, "--", *command,
    ]  # fmt: skip


def sandbox_environment(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """`environment` with temporary files and the build cache in `folder`."""
    return {**environment, "TMPDIR": str(folder), "AUTOFUSE_CACHE": str(folder / "cache")}


def ended_by(code: int) -> int:
    """The code of what bubblewrap ran, negative for a signal, as `Popen.wait` gives it."""
    return _BY_SIGNAL - code if code > _BY_SIGNAL else code
