"""What each kind of extension takes: one file, in `extensions/`, and lines in files that exist.

The folder shows where in the checkout each file goes. Its packages are added to those of the
project, so that a file is imported under the name it would have.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autofuse.baselines import BASELINES
from autofuse.devices import DEVICES
from autofuse.kernel.ir.instructions import INSTRUCTIONS
from autofuse.ops import spec
from autofuse.plan.parameters import C_LAUNCH, CUDA_LAUNCH
from autofuse.search import SEARCHERS
from autofuse.simplify import RULES
from autofuse.sources import SOURCES
from autofuse.tuning.search.strategies import PLANNERS

ROOT = Path(__file__).parents[2]
HERE = ROOT / "tests" / "extensions"
REGISTRIES: tuple[dict[str, Any], ...] = (
    spec.KNOWN, spec._FAMILIES, C_LAUNCH, CUDA_LAUNCH, DEVICES, BASELINES, SEARCHERS, PLANNERS,
    SOURCES, RULES, INSTRUCTIONS,
)  # fmt: skip


@dataclass(frozen=True)
class Extension:
    """A file that is new, and the lines that are added to the ends of files, as (file, line)."""

    file: str
    lines: tuple[tuple[str, str], ...]


OPS, BASELINES_FILE = "autofuse/ops/__init__.py", "autofuse/baselines/__init__.py"
PARAMETERS, PASSES = "autofuse/plan/parameters.py", "autofuse/kernel/passes/__init__.py"
STRATEGIES, DEVICES_FILE = "autofuse/tuning/search/strategies.py", "autofuse/devices.py"
EXTENSIONS = {
    "An op": Extension(
        "autofuse/ops/square.py",
        ((OPS, 'families("square")'),),
    ),
    "A baseline": Extension(
        "autofuse/baselines/alone.py",
        (
            (BASELINES_FILE, "from autofuse.baselines.alone import alone"),
            (BASELINES_FILE, 'BASELINES["alone"] = alone'),
        ),
    ),
    "A searcher": Extension(
        "autofuse/search/wanderer.py",
        (("autofuse/search/__init__.py", 'SEARCHERS["wanderer"] = _on_demand("wanderer")'),),
    ),
    "A strategy": Extension(
        "autofuse/tuning/greedy.py",
        (
            (STRATEGIES, "from autofuse.tuning.greedy import greedy"),
            (STRATEGIES, 'PLANNERS["greedy"] = lambda wishes: greedy'),
        ),
    ),
    "A simplification": Extension(
        "autofuse/simplify/doubled.py",
        (("autofuse/simplify/__init__.py", "from autofuse.simplify import doubled"),),
    ),
    "A launch parameter": Extension(
        "autofuse/kernel/passes/peeled.py",
        (
            (
                PARAMETERS,
                'C_LAUNCH["peel"] = '
                'LaunchParameter("peel", bool, (False, True), False, "Tails apart.", (ITEM,))',
            ),
            (PASSES, "from autofuse.kernel.passes.peeled import peeled"),
            (PASSES, "C_PASSES = (peeled, *C_PASSES)"),
        ),
    ),
    "An instruction class": Extension(
        "autofuse/kernel/ir/deep.py",
        (
            ("autofuse/kernel/ir/__init__.py", "from autofuse.kernel.ir import deep"),
            (PARAMETERS, 'MMA = replace(MMA, choices=(*MMA.choices, "deep"))'),
            (
                PARAMETERS,
                'CUDA_LAUNCH["mma"] = replace(CUDA_MMA, choices=(*CUDA_MMA.choices, "deep"))',
            ),
        ),
    ),
    "A device kind": Extension(
        "autofuse/backends/toy.py",
        (
            (DEVICES_FILE, "from autofuse.backends import toy"),
            (
                DEVICES_FILE,
                'DEVICES["toy"] = '
                'DeviceKind("toy", toy.BACKEND, toy.launches, C, toy.kernel_text, hardware=HOST)',
            ),
        ),
    ),
    "A front end": Extension(
        "autofuse/frontends/postfix.py",
        (
            ("autofuse/sources.py", "from autofuse.frontends.postfix import load_postfix"),
            ("autofuse/sources.py", 'SOURCES[".postfix"] = load_postfix'),
        ),
    ),
}


def module_of(file: str) -> str:
    """autofuse.ops for autofuse/ops/__init__.py."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


for _folder in {str(Path(extension.file).parent) for extension in EXTENSIONS.values()}:
    import_module(module_of(_folder)).__path__.append(str(HERE / _folder))


@contextmanager
def extended(kind: str) -> Iterator[None]:
    """The project with an extension of a kind added; all is as before afterwards."""
    extension = EXTENSIONS[kind]
    spec.all_specs()  # no family may be loaded, and then forgotten, in between
    before = [(known, dict(known)) for known in REGISTRIES]
    try:
        with pytest.MonkeyPatch.context() as patch:
            for file, line in extension.lines:
                _append(patch, import_module(module_of(file)), line)
            yield
    finally:
        for known, was in before:
            known.clear()
            known.update(was)
        package, _, name = module_of(extension.file).rpartition(".")
        sys.modules.pop(f"{package}.{name}", None)
        vars(sys.modules[package]).pop(name, None)


def _append(patch: pytest.MonkeyPatch, module: ModuleType, line: str) -> None:
    """Run a line at a module's end. A name that it binds anew is bound for all who imported it:
    they would have come later."""
    names = dict(vars(module))
    exec(compile(line, str(module.__file__), "exec"), names)
    for name, value in names.items():
        was = vars(module).get(name)
        if value is was or name == "__builtins__":
            continue
        for other in list(sys.modules.values()):
            if other is module or (was is not None and vars(other).get(name) is was):
                patch.setattr(other, name, value, raising=False)
