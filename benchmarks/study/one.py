"""One row in a process of its own: what crashes, hangs or takes all memory ends only itself."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

from benchmarks.kept import Row
from benchmarks.run import sentence, write_json
from benchmarks.study.price import price_row
from benchmarks.study.programs import study_programs


def main(arguments: list[str]) -> int:
    """`arguments`: a file that says what is asked and gets the answer."""
    path = Path(arguments[0])
    asked = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, answer(asked["program"], asked["size"], asked["planners"]))
    return 0


def answer(name: str, size: str, planners: list[str]) -> Row:
    """The row, or under `error` why there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = study_programs()[name].make(size)
        return price_row(name, graph, planners)
    except Exception as error:  # of a package or of ours: the table names it
        return {"program": name, "error": sentence(error)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
