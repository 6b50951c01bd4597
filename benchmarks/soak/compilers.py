"""The compiler killed in the middle of a build."""

from __future__ import annotations

import shlex
import shutil
import signal
from pathlib import Path
from random import Random

from autofuse.backends.toolchain import find_compiler
from autofuse.errors import AutofuseError
from benchmarks.soak.actors import REFUSED, Crowd
from benchmarks.soak.kills import PATIENCE_S, SOURCES
from benchmarks.soak.types import Round

# Seconds in which a kernel of these workloads compiles, more or less.
LATEST_S = 0.4


def play(folder: Path, seed: int, builds: int = 12) -> Round:
    """A killed compiler is an error of one sentence, or none where it was done already; what it
    left in the cache does no harm: with a compiler that lives the same plan builds and is right."""
    draw = Random(seed)
    killer = folder / "killed-cc"
    problems, done = [], 0
    with Crowd(folder) as crowd:
        for n in range(builds):
            make_killer(killer, draw.uniform(0.01, LATEST_S))
            # Some builds find what others left.
            cache = {"AUTOFUSE_CACHE": str(folder / f"cache{n % 3}")}
            source = draw.choice(SOURCES)
            job = {"do": "build", "source": source, "plan": "unfused", "seed": seed + n}
            crowd.start([{**job, "variables": {**cache, "CC": str(killer)}}])
            codes = crowd.ended(PATIENCE_S)
            done += codes == [REFUSED]
            if codes not in ([0], [REFUSED]):
                problems.append(f"a build whose compiler died ended with {codes}:\n{crowd.words()}")
            crowd.start([{**job, "variables": cache}])
            if (codes := crowd.ended(PATIENCE_S)) != [0]:
                problems.append(f"a build after that one ended with {codes}:\n{crowd.words()}")
    return Round(done, tuple(problems))


def make_killer(path: Path, seconds: float) -> None:
    """A compiler that says what the real one says of itself and is killed after so long."""
    timeout = shutil.which("timeout")
    if timeout is None:
        raise AutofuseError("program 'timeout' is missing (on Debian: apt-get install coreutils)")
    real = shlex.join(find_compiler().command)
    number = int(signal.SIGKILL)
    path.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *--version*) exec {real} "$@";; esac\n'
        f'exec {timeout} -s {number} {seconds:.3f} {real} "$@"\n'
    )
    path.chmod(0o700)
