"""A program under the JAX of another environment: a process that takes a sample when it is told to.

It is started there with a row's program, what is asked of it, and a file for its results. Neither
it nor what it imports uses autofuse, which that environment does not have.
"""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np

from benchmarks.jax_cpu.calls import prepared, sample_us, set_wide
from benchmarks.jax_cpu.programs import PROGRAMS
from benchmarks.jax_cpu.types import asked_for, module


def main(arguments: list[str]) -> int:
    name, what, path = arguments
    program, jax = PROGRAMS[name], module("jax")
    warnings.simplefilter("ignore")
    set_wide(program.wide)
    case = program.make(program.dtype)
    ready = prepared(jax.jit(asked_for(case, what)), case.arguments)
    np.savez(path, *ready.found)
    print(json.dumps({"version": jax.__version__, "first_s": ready.first_s}), flush=True)
    for _ in sys.stdin:
        print(sample_us(ready.call), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
