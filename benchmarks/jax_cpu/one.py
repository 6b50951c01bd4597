"""One row in a process of its own: what crashes, hangs or takes all memory ends only itself."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

from benchmarks.jax_cpu.programs import PROGRAMS
from benchmarks.jax_cpu.row import LoopAsked, loop_row
from benchmarks.run import sentence, write_json


def main(arguments: list[str]) -> int:
    """`arguments`: a program's name, what is asked of it, and the file that says how and gets the
    row."""
    name, what, path = arguments[0], arguments[1], Path(arguments[2])
    asked = LoopAsked(**json.loads(path.read_text(encoding="utf-8")))
    warnings.simplefilter("ignore")
    try:
        row = loop_row(PROGRAMS[name], what, asked)
    except Exception as error:  # of the program's packages: the table names it
        row = {"error": f"the program could not be made: {sentence(error)}"}
    write_json(path, row)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
