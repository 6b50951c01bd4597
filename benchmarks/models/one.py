"""One network in a process of its own: what crashes, hangs or takes all memory ends only itself."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

from benchmarks.models.row import NetworkAsked, network_row
from benchmarks.models.table import NETWORKS
from benchmarks.run import sentence, write_json


def main(arguments: list[str]) -> int:
    """`arguments`: a network's name, and the file that says what is asked and gets the answer."""
    name, path = arguments[0], Path(arguments[1])
    asked = json.loads(path.read_text(encoding="utf-8"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = network_row(NETWORKS[name], NetworkAsked(**asked))
        except Exception as error:  # of a package or of ours: the table names it
            found = {"error": sentence(error)}
    write_json(path, found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
