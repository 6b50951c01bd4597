"""One row in a process of its own: what crashes, hangs or takes all memory ends only itself."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

from autofuse.errors import AutofuseError
from benchmarks.run import sentence, write_json
from benchmarks.unseen.row import Asked, row
from benchmarks.unseen.table import PROGRAMS
from benchmarks.unseen.types import Program


def main(arguments: list[str]) -> int:
    """`arguments`: a program's name, and the file that says what is asked and gets the answer."""
    name, path = arguments[0], Path(arguments[1])
    asked = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, answer(PROGRAMS[name], Asked(**{**asked, "peers": tuple(asked["peers"])})))
    return 0


def answer(program: Program, asked: Asked) -> dict[str, object]:
    """The row, or under `error` why there is none, and under `stage` where it ended: "making" what
    the program's packages and our front end do, "tuning" all that follows."""
    stage, begun = "making", time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = program.make()
        making_s = time.perf_counter() - begun
        stage = "tuning"
        return {"making_s": making_s, **row(made, program.name, asked)}
    except AutofuseError as error:
        return {"stage": stage, "error": f"refused: {error}"}
    except Exception as error:  # of a package or of ours: the table names it
        return {"stage": stage, "error": f"crashed: {sentence(error)}"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
