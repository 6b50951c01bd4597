"""The names a program gets from `import autofuse`."""

from __future__ import annotations

import inspect
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse
from tests.support.cli_tools import toy

PUBLIC = [
    "trace",
    "spec",
    "xp",
    "load",
    "save",
    "from_jax",
    "from_torch",
    "jax_jit",
    "tune",
    "TuneOptions",
    "best_plan",
    "compile",
    "compare",
    "open_bundle",
    "plan_to_networkx",
    "to_networkx",
    "__version__",
]


@pytest.fixture(scope="module", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert name in autofuse.__all__ and name in dir(autofuse)
    value = getattr(autofuse, name)
    if callable(value):
        assert inspect.getdoc(value)
        hints = inspect.signature(value)
        assert hints.return_annotation is not inspect.Signature.empty


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = autofuse.nothing


def test_importing_loads_nothing_heavy() -> None:
    code = (
        "import sys, autofuse\n"
        "heavy = 'numpy scipy optuna jax torch sqlalchemy networkx rich typer jinja2'.split()\n"
        "print([m for m in heavy if m in sys.modules])\n"
        "autofuse.trace, autofuse.load, autofuse.xp\n"
        "print([m for m in heavy[2:] if m in sys.modules])\n"
        "autofuse.compile, autofuse.tune, autofuse.jax_jit, autofuse.from_torch\n"
        "print([m for m in ('optuna', 'jax', 'torch') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]", "[]"]


def test_the_version_is_said_in_one_place_and_in_the_changelog() -> None:
    root = Path(__file__).parent.parent
    built = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in built["project"]["dynamic"] and "version" not in built["project"]
    assert built["tool"]["setuptools"]["dynamic"]["version"] == {
        "attr": "autofuse.version.__version__"
    }
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    released = [line for line in changes.splitlines() if line.startswith("## [")]
    assert released[0] == "## [Unreleased]"
    assert released[1].startswith(f"## [{autofuse.__version__}]")


def test_trace_save_load_compile_run(tmp_path: Path) -> None:
    graph = toy()
    autofuse.save(graph, tmp_path / "g.json")
    loaded = autofuse.load(tmp_path / "g.json")
    assert loaded == graph
    db = str(tmp_path / "t.db")
    assert autofuse.best_plan(loaded, db=db) is None
    compiled = autofuse.compile(loaded, device="cpu", db=db)
    assert compiled.origin == "untuned: expected"
    x, bias = (np.random.default_rng(3).random(t.shape, np.float32) for t in graph.input_types)
    scaled, top = compiled(x, bias)
    wanted = np.exp(x) + bias
    np.testing.assert_allclose(scaled, wanted / wanted.sum(axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(top, x.max(axis=1))


def test_tune_then_compile_uses_the_best_known(tmp_path: Path) -> None:
    db, seen = str(tmp_path / "t.db"), []
    result = autofuse.tune(
        toy(), name="toy", db=db, budget_s=1.0, strategy="random", progress=seen.append
    )
    assert result.verified and seen
    known = autofuse.best_plan(toy(), db=db)
    assert known is not None and known.to_json()["time_us"] > 0
    compiled = autofuse.compile(toy(), db=db)
    assert compiled.origin.startswith("best") and compiled.candidate == known.candidate


def test_from_jax_gives_a_graph_that_compiles(tmp_path: Path) -> None:
    import jax.numpy as jnp

    def fn(x: Any) -> Any:
        return jnp.tanh(x) * 2.0

    graph = autofuse.from_jax(fn, np.linspace(-1, 1, 12, dtype=np.float32))
    (found,) = autofuse.compile(graph, db=str(tmp_path / "t.db"))(np.full(12, 0.5, np.float32))
    np.testing.assert_allclose(found, np.tanh(0.5) * 2, rtol=1e-6)


def test_errors_are_autofuse_errors(tmp_path: Path) -> None:
    with pytest.raises(autofuse.AutofuseError, match="unknown device"):
        autofuse.compile(toy(), device="abacus")
    with pytest.raises(autofuse.AutofuseError, match="unknown plan"):
        autofuse.compile(toy(), db=str(tmp_path / "t.db"), plan="magic")
