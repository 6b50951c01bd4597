"""What a wheel and an sdist hold; `slow`: they are built and tried in a bare environment."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from benchmarks.packaging import (
    PackagingError,
    bare_variables,
    complain,
    copy_source,
    files_of,
    sdist_files,
    wheel_files,
)

ROOT = Path(__file__).parent.parent


def packaged_data(source: Path) -> set[str]:
    """The files that pyproject.toml names as data of the packages."""
    built = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))
    return {
        path.relative_to(source).as_posix()
        for name, patterns in built["tool"]["setuptools"]["package-data"].items()
        for pattern in patterns
        for path in (source / name).glob(pattern)
        if path.is_file()
    }


def test_every_file_that_is_no_python_is_named_as_data(tmp_path: Path) -> None:
    copy_source(ROOT, tmp_path / "source")
    data = {name for name in files_of(tmp_path / "source") if not name.endswith(".py")}
    assert data == packaged_data(tmp_path / "source")
    for name in (
        "autofuse/py.typed",
        "autofuse/backends/cpu/pool.c",
        "autofuse/kernel/text/prelude/c.h",
    ):
        assert name in data


def test_what_is_missing_and_what_is_too_much_is_named() -> None:
    complain("the wheel", ["a", "b"], {"a", "b"})
    with pytest.raises(PackagingError, match=r"the wheel lacks b \(1 files\)"):
        complain("the wheel", ["a"], {"a", "b"})
    with pytest.raises(PackagingError, match=r"should not hold benchmarks/run\.py"):
        complain("the wheel", ["a", "benchmarks/run.py"], {"a"})


def test_metadata_is_no_content(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.writestr("autofuse/a.py", "")
        archive.writestr("autofuse-1.dist-info/RECORD", "")
    assert wheel_files(tmp_path / "a.whl") == ["autofuse/a.py"]
    (tmp_path / "f").write_text("")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for name in ("PKG-INFO", "LICENSE", "autofuse.egg-info/SOURCES.txt", "autofuse/a.py"):
            archive.add(tmp_path / "f", f"autofuse-1/{name}")
    assert sdist_files(tmp_path / "a.tar.gz") == ["LICENSE", "autofuse/a.py"]


def test_nothing_of_the_users_is_found_in_a_bare_environment(tmp_path: Path) -> None:
    given = {"PATH": "/bin", "PYTHONPATH": "x", "AUTOFUSE_CACHE": "y", "XDG_DATA_HOME": "z"}
    found = bare_variables(given, tmp_path)
    assert found["PATH"] == "/bin" and found["AUTOFUSE_CACHE"] == str(tmp_path / "cache")
    assert set(found) == {"PATH", "HOME", "AUTOFUSE_CACHE"}


@pytest.mark.slow
def test_the_packages_work_where_nothing_else_is_installed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "check_wheel", "--out", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".gz", ".whl"]
