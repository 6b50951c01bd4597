"""One row, or a part of one, in a process of its own: what crashes, hangs or takes all memory ends
only itself."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autofuse.study.prices import price_row
from benchmarks.kept import Row
from benchmarks.run import sentence, write_json
from benchmarks.study.dials import dials_of, first_call, in_turns
from benchmarks.study.programs import study_programs
from benchmarks.study.split import split_row
from benchmarks.study.travel import travel_row
from benchmarks.unseen.types import Made

Asked = Mapping[str, Any]


def _prices(made: Made, asked: Asked) -> Row:
    return price_row(asked["program"], made.graph, asked["planners"])


def _dials(made: Made, asked: Asked) -> Row:
    return {"dials": [dial.name for dial in dials_of(made)], "nodes": len(made.graph.nodes)}


def _first(made: Made, asked: Asked) -> Row:
    return first_call(made, asked["dial"], Path(asked["folder"]), asked["peaks"])


def _turns(made: Made, asked: Asked) -> Row:
    return {"turns": in_turns(made, asked["dials"], Path(asked["folder"]))}


def _split(made: Made, asked: Asked) -> Row:
    return split_row(made, asked["seconds"], asked["peaks"])


def _travel(made: Made, asked: Asked) -> Row:
    return travel_row(asked["program"], asked["seconds"], asked["peaks"])


# What can be asked of a program, by name.
PARTS: Mapping[str, Callable[[Made, Asked], Row]] = {
    "prices": _prices, "dials": _dials, "first": _first, "turns": _turns,
    "split": _split, "travel": _travel,
}  # fmt: skip


def main(arguments: list[str]) -> int:
    """`arguments`: a file that says what is asked and gets the answer."""
    path = Path(arguments[0])
    write_json(path, answer(json.loads(path.read_text(encoding="utf-8"))))
    return 0


def answer(asked: Asked) -> Row:
    """What `asked` names under "part" of its "program" and "size", or under `error` why there is
    none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = study_programs()[asked["program"]].make(asked["size"])
        return PARTS[asked["part"]](made, asked)
    except Exception as error:  # of a package or of ours: the table names it
        return {"program": asked["program"], "error": sentence(error)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
