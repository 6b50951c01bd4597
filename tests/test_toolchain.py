"""What tells one compiler from another: content, arguments and variables, never a path."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from autofuse.backends import toolchain
from autofuse.backends.base import Program, Source
from autofuse.backends.cache import BuildCache
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cpu.fingerprint import cpu_environment
from autofuse.backends.cuda import build
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.library import load
from autofuse.backends.toolchain import Compiler, find_compiler, find_cxx, version_of
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType

VECTOR = TensorType((4,), DType.F64)
# (x + y) - x, which only relaxed arithmetic takes for y.
TEXT = """#include <stdint.h>
int32_t run(void **b, void *ws, void **blas) {
    const double *x = b[0], *y = b[1]; double *z = b[2];
    for (int i = 0; i < 4; i++) z[i] = (x[i] + y[i]) - x[i];
    return 0;
}
"""
PROGRAM = Program((Source("unit", TEXT, ("-O2",)),), "run", (VECTOR, VECTOR), (VECTOR,))


@pytest.fixture(autouse=True)
def _anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path / "cache"))
    for name in ("CC", "CXX", *toolchain.VARIABLES):
        monkeypatch.delenv(name, raising=False)
    toolchain.forget_compilers()
    yield
    toolchain.forget_compilers()


def named(command: str | Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    monkeypatch.setenv("CC", str(command))
    return find_compiler()


def script(path: Path, more: str = "") -> Path:
    path.write_text(f'#!/bin/sh\n{more}\nexec {find_compiler().command[0]} "$@"\n')
    path.chmod(0o755)
    return path


def test_what_one_set_of_arguments_made_is_not_served_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, usual = BuildCache(tmp_path / "own"), " ".join(find_compiler().command)
    x, y = np.full(4, 1e20), np.ones(4)
    found, musts = [], []
    for arguments in ("-ffast-math -O3", ""):
        named(f"{usual} {arguments}", monkeypatch)
        built = compile_program(PROGRAM, cache)
        assert built.cached_objects == 0
        with load(built.artifact) as library:
            found.append(library.run((x, y))[0][0])
        musts.append(cpu_environment().must)
    assert found == [1.0, 0.0]
    assert musts[0] != musts[1] and ("flags", "-ffast-math -O3") in musts[0]


def test_without_arguments_a_fingerprint_is_what_it_was() -> None:
    assert [key for key, _ in cpu_environment().must] == ["cores", "isa", "model", "word"]


def test_one_binary_is_one_compiler_by_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = find_compiler()
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    one, other = (script(tmp_path / folder / "cc") for folder in ("here", "there"))
    link = tmp_path / "gcc"
    link.symlink_to(usual.command[0])
    assert named(link, monkeypatch).identity == usual.identity
    assert named(one, monkeypatch).identity == named(other, monkeypatch).identity
    assert named(one, monkeypatch).identity != usual.identity


@pytest.mark.skipif(shutil.which("cc") is None, reason="no cc")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_cc_and_gcc_are_one_where_they_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [os.path.realpath(str(shutil.which(name))) for name in ("cc", "gcc")]
    found = [named(name, monkeypatch).identity for name in ("cc", "gcc")]
    assert (paths[0] == paths[1]) == (found[0] == found[1])


def test_another_binary_at_the_same_place_is_another_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cc"
    first = named(script(path, "# a"), monkeypatch)
    facts = path.stat()
    path.write_text(path.read_text().replace("# a", "# b"))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    toolchain.forget_compilers()
    second = named(path, monkeypatch)
    assert first.version == second.version and first.identity != second.identity


@pytest.mark.parametrize("variable", toolchain.VARIABLES)
def test_variables_that_compilers_read_are_part_of_it(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable == "GCC_EXEC_PREFIX":
        monkeypatch.setattr(toolchain, "_answer", lambda command: "a compiler")
        toolchain.forget_compilers()
    usual = find_compiler()
    monkeypatch.setenv(variable, "/nonexistent")
    assert find_compiler().identity != usual.identity
    monkeypatch.delenv(variable)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    assert find_compiler().identity == usual.identity


def test_a_file_that_arguments_name_is_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, options = find_compiler().command[0], tmp_path / "options"
    identities = set()
    for words in ("-O2", "-ffast-math"):
        options.write_text(words)
        toolchain.forget_compilers()
        identities.add(named(f"{usual} @{options}", monkeypatch).identity)
    assert len(identities) == 2


def test_a_compiler_is_read_once_for_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    hashed = toolchain._hashed

    def told(path: str) -> str:
        read.append(path)
        return hashed(path)

    monkeypatch.setattr(toolchain, "_hashed", told)
    first = find_compiler(), find_cxx()
    assert len(read) == len(set(read)) >= 2
    toolchain.forget_compilers()
    assert (find_compiler(), find_cxx()) == first and len(read) == len(set(read))


def test_a_version_is_told_without_the_name_that_was_called() -> None:
    told = "(Debian 12.2.0-14) 12.2.0"
    assert version_of(f"cc {told}\nCopyright", ("/usr/bin/cc",)) == f"GCC {told}"
    assert version_of(f"gcc {told}", ("/usr/bin/ccache", "gcc")) == f"GCC {told}"
    assert version_of("Debian clang version 14", ("/usr/bin/clang",)) == "Debian clang version 14"


def test_nvrtc_is_in_the_key_of_what_it_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    target, source = next(iter(TARGETS.values())), Source("unit", "text")
    keys = set()
    for version in ("13.0", "13.1"):
        monkeypatch.setattr(build, "nvrtc_version", lambda version=version: version)
        keys.add(build.cubin_key(source, target))
    assert len(keys) == 2
