"""The same under sanitizers: kernels report what they read or write beyond arrays, and undefined
behaviour. It is a process of its own, whose allocator has to be the sanitizer's from the start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from autofuse import faults
from autofuse.backends.toolchain import find_compiler
from benchmarks.fuzz.run import Total, run_fuzz
from benchmarks.fuzz.trial import Building, Found

FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
RUNTIMES = ("libasan.so", "libubsan.so")
ROOT = Path(__file__).resolve().parent.parent.parent


def runtimes() -> str:
    """The sanitizers' libraries, as the loader wants them."""
    compiler = find_compiler().command
    found = [
        subprocess.run([*compiler, f"-print-file-name={name}"], capture_output=True, text=True)
        for name in RUNTIMES
    ]
    return " ".join(one.stdout.strip() for one in found)


def run_sanitized(
    seeds: Sequence[int], jobs: int, tell: Callable[[Found], None] = lambda found: None
) -> Total:
    """Try graphs with kernels under address and undefined-behaviour sanitizers."""
    asked = [str(seeds[0]), str(len(seeds)), str(jobs)]
    env = {
        **os.environ,
        "LD_PRELOAD": runtimes(),
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "benchmarks.fuzz.sanitized", *asked]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as child:
        total = Total()
        assert child.stdout is not None
        for line in child.stdout:
            said = json.loads(line)
            if "graphs" in said:
                total.graphs = said["graphs"]
            else:
                total.found.append(Found(**said))
                tell(total.found[-1])
    if child.returncode:
        lost = Found(seeds[0], "crashed", "sanitized", f"the process ended by {child.returncode}")
        total.found.append(lost)
    return total


def main() -> int:
    os.environ.pop("LD_PRELOAD", None)  # compilers need none
    first, count, jobs = map(int, sys.argv[1:])
    with faults.strict():
        total = run_fuzz(
            range(first, first + count), jobs, Building(flags=FLAGS),
            tell=lambda found: print(json.dumps(found.to_json()), flush=True),
        )  # fmt: skip
    print(json.dumps({"graphs": total.graphs}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
