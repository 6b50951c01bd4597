"""Libraries that are compiled for another host: flags, bytes, and what is refused."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autofuse.backends.base import CompileError, Program, Source
from autofuse.backends.cache import BuildCache
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cpu import parcels
from autofuse.backends.cpu.backend import FLAGS
from autofuse.backends.cpu.parcels import (
    Parcel,
    cpu_target_here,
    feature_flags,
    native_flags,
    pack_program,
    unpack_parcel,
)
from autofuse.backends.cpu.target import NATIVE
from autofuse.backends.library import load
from autofuse.backends.machine import instruction_flags, isa_digest
from autofuse.backends.toolchain import find_compiler
from autofuse.errors import Blame
from autofuse.fleet.engine import SliceResult
from tests.support.fleet_work import build_anywhere, ray_engine, task

TEXT = """
int run(void **buffers, void *workspace, void **blas) {
  float *x = buffers[0];
  for (int i = 0; i < 1000; i++) x[i] = x[i] * 3.0f + 1.0f;
  return 0;
}
"""
PROGRAM = Program((Source("k", TEXT, FLAGS),), "run", (), ())
SPOKEN = """Using built-in specs.
 /usr/lib/gcc/x86_64-linux-gnu/12/cc1 -E -quiet -v -imultiarch x86_64-linux-gnu - -march=znver3 -mavx2 -mno-avx512f --param l1-cache-size=32 -mtune=znver3 -dumpbase -
#include "..." search starts here:
"""  # noqa: E501 - as the compiler prints it


@pytest.fixture(scope="module")
def parcel(tmp_path_factory: pytest.TempPathFactory) -> Parcel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOFUSE_CACHE", str(tmp_path_factory.mktemp("elsewhere")))
        return pack_program(PROGRAM, cpu_target_here(), 60.0)


def test_what_gcc_says_of_a_processor() -> None:
    assert native_flags(SPOKEN) == (
        "-march=znver3", "-mavx2", "-mno-avx512f", "--param", "l1-cache-size=32", "-mtune=znver3",
    )  # fmt: skip
    assert native_flags("clang version 19\n") == ()


def test_what_a_processor_says_of_itself() -> None:
    named = feature_flags("x86_64", ("avx2", "pni", "avx512_vnni", "hypervisor"))
    assert named == ("-march=x86-64", "-msse3", "-mavx512vnni", "-mavx2")
    assert feature_flags("aarch64", ("asimd", "sve", "atomics")) == ("-march=armv8-a+lse+sve",)
    with pytest.raises(CompileError, match="processor 'riscv64'") as refused:
        feature_flags("riscv64", ())
    assert refused.value.blame is Blame.MACHINE


def test_explicit_flags_make_the_very_code_of_native(tmp_path: Path) -> None:
    """So that a time that was taken of one is a time of the other."""
    if not native_flags(parcels._spoken(find_compiler())):
        pytest.skip("only GCC says what native means")
    text = tmp_path / "k.c"
    text.write_text(TEXT)

    def code(flags: Sequence[str]) -> str:
        command = [*find_compiler().command, *flags, "-S", "-o", "-", str(text)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    explicit = cpu_target_here().explicit(FLAGS)
    assert NATIVE in FLAGS and NATIVE not in explicit
    assert code(FLAGS) == code(explicit) != code([f for f in FLAGS if f != NATIVE])


def test_the_features_of_this_processor_are_flags_that_compile(tmp_path: Path) -> None:
    flags = feature_flags(platform.machine(), instruction_flags())
    target = replace(cpu_target_here(), flags=flags)
    built = compile_program(PROGRAM, BuildCache(tmp_path), target=target)
    assert built.artifact.path.stat().st_size > 0


def test_a_parcel_runs_where_it_was_made_for(parcel: Parcel, tmp_path: Path) -> None:
    built = unpack_parcel(parcel, BuildCache(tmp_path))
    assert built.artifact.path.is_relative_to(tmp_path) and built.compile_s > 0
    with load(built.artifact):
        pass
    assert unpack_parcel(parcel, BuildCache(tmp_path)).artifact == built.artifact


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"isa": "0" * 16}, "compiled for another processor"),
        ({"interface": 0}, "called by interface 0"),
        ({"content": b"\x7fELF"}, "not what was compiled"),
    ],
)
def test_what_would_not_run_is_refused(
    parcel: Parcel, tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    with pytest.raises(CompileError, match=reason) as refused:
        unpack_parcel(replace(parcel, **change), BuildCache(tmp_path))
    assert refused.value.blame is Blame.MACHINE
    assert parcel.isa == isa_digest()


def test_another_compiler_makes_no_library(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="the library is to be one of gcc 1") as refused:
        pack_program(PROGRAM, replace(cpu_target_here(), compiler="gcc 1"), 60.0)
    assert refused.value.blame is Blame.MACHINE


@pytest.mark.slow
def test_any_host_of_a_cluster_compiles() -> None:
    with closing(ray_engine(1, build_anywhere)) as engine:
        (unit,) = engine.units
        for body, error in (("return 0;", ""), ("return nothing;", "compiling k failed")):
            engine.start(unit, task(body))
            found: dict[str, SliceResult] = {}
            while not found:
                found |= engine.wait(30.0)
            assert error in found[unit].error and bool(found[unit].error) == bool(error)
