"""A model of PyTorch compiled and run, and what that took: in a test, or as its own process."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from autofuse.backends import ccompiler
from autofuse.interop.torch import choice as torch_choice
from autofuse.interop.torch import plans as torch_plans
from autofuse.tuning.serve import kept

_COUNTED = {
    "compiled": (ccompiler, "_run"),
    "measured": (torch_choice, "_ratios"),
    "searched": (kept, "untuned_candidate"),
}


def _counting(found: Counter[str], key: str, function: Callable[..., Any], *args: Any) -> Any:
    found[key] += 1
    return function(*args)


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """How often a compiler was run, a call timed, and a plan looked for."""
    found: Counter[str] = Counter()
    with ExitStack() as stack:
        for key, (module, name) in _COUNTED.items():
            counting = partial(_counting, found, key, getattr(module, name))
            stack.enter_context(patch.object(module, name, counting))
        # Nothing is found by tuning, so that every process has to choose by itself.
        stack.enter_context(patch.object(torch_plans, "tune", lambda *_, **__: None))
        yield found


def compiled_and_run(db: str) -> dict[str, int]:
    """The counts of a process that needs the model."""
    torch._dynamo.reset()
    torch_plans._plans.clear()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)).eval()
    x = torch.rand(4, 6)
    options = {"max_autotune": True, "db": db}
    with counted() as found, torch.no_grad():
        compiled = torch.compile(model, backend="autofuse", options=options)
        torch.testing.assert_close(compiled(x), model(x))
    return dict(found)


if __name__ == "__main__":
    print(json.dumps(compiled_and_run(sys.argv[1])))
