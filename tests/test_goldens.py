"""Generated text, kept: a change of what is generated shows as a change of these files.

`pytest tests/test_goldens.py --update-golden` writes them anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autofuse.kernel.render import render_c, render_cuda
from autofuse.zoo import zoo_graph
from tests.support.cuda_settings_cases import GOLDEN
from tests.support.cuda_texts import whole_kernel
from tests.support.one_kernel import one_kernel

GOLDENS = Path(__file__).parent / "goldens"
WORKLOADS = ("softmax", "layer_norm_gelu", "cartpole_naive")
RENDER = {"c": render_c, "cu": render_cuda}


TEXTS = [*((w, s) for w in WORKLOADS for s in RENDER), *((name, "cu") for name in GOLDEN)]


def generated(workload: str, suffix: str) -> str:
    """The whole workload (small) as one kernel, without the prelude; or a case of its own, under
    launch settings."""
    if workload in GOLDEN:
        return render_cuda(one_kernel(GOLDEN[workload][0], workload, GOLDEN[workload][1]).kernel)
    return RENDER[suffix](whole_kernel(zoo_graph(workload, "small"), workload))


@pytest.mark.parametrize(("workload", "suffix"), TEXTS)
def test_text_is_the_golden_one(workload: str, suffix: str, request: pytest.FixtureRequest) -> None:
    text, path = generated(workload, suffix), GOLDENS / f"{workload}.{suffix}"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    hint = f"{path.name} is out of date: see the difference, then run with --update-golden"
    assert path.read_text(encoding="utf-8") == text, hint


def test_text_does_not_depend_on_the_process() -> None:
    """Equal text when rendered again, and in processes that hash differently."""
    here = "".join(generated(*text) for text in TEXTS)
    assert here == "".join(generated(*text) for text in TEXTS)
    script = (
        "import sys\n"
        "from tests.test_goldens import TEXTS, generated\n"
        "sys.stdout.write(''.join(generated(*text) for text in TEXTS))\n"
    )
    for seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True, text=True, check=True, cwd=Path(__file__).parent,
        )  # fmt: skip
        assert there.stdout == here
