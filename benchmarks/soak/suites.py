"""Tests of the checkout that draw cases, run on cases never drawn before."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.soak.types import Round

ROOT = Path(__file__).resolve().parents[2]
FUZZ_CASES = 2000
RANDOM_PLANS = ("tests/test_random_plans.py", "tests/test_emulator_plans.py", "tests/test_graph.py")


def fuzz(folder: Path, seed: int) -> Round:
    """Every fuzzer of the tests, with a seed of its own: always one sentence, never a traceback."""
    files = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests").glob("test_*fuzz*.py"))
    variables = {"AUTOFUSE_FUZZ_SEED": str(seed), "AUTOFUSE_FUZZ_CASES": str(FUZZ_CASES)}
    return _run(folder, files, variables) if files else Round(0)


def explore(folder: Path, seed: int) -> Round:
    """Random graphs under random plans, checked against the reference."""
    return _run(folder, [*RANDOM_PLANS, "--explore", str(seed)], {})


def _run(folder: Path, arguments: Sequence[str], variables: Mapping[str, str]) -> Round:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    (folder / "pytest.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)", done.stdout)}
    problem = f"pytest {' '.join(arguments)} ended with {done.returncode}: see pytest.txt"
    return Round(sum(counts.values()), () if done.returncode == 0 else (problem,))
