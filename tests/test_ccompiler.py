"""The C tool chain: building, caching, loading, calling."""

from __future__ import annotations

import gc
import os
import stat
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autofuse.backends import aligned, ccompiler, toolchain
from autofuse.backends.base import CompileError, CompilerMissing, LaunchError, Program, Source
from autofuse.backends.cache import BuildCache, CacheError, private_directory
from autofuse.backends.ccompiler import BuildStep, compile_objects, compile_program
from autofuse.backends.cpu.fingerprint import cpu_environment
from autofuse.backends.library import ArrayError, load
from autofuse.backends.machine import last_level_cache_bytes
from autofuse.ops.dtypes import DType
from autofuse.ops.types import Literal, TensorType
from autofuse.records import Blame

N = 1000
VECTOR = TensorType((N,), DType.F32)
HEAD = "#include <stdint.h>\n#define ENTRY int32_t run(void **b, void *ws, void **blas)\n"
ADD = f"""{HEAD}
void add(const float *x, const float *y, float *z);
ENTRY {{ add(b[0], b[1], b[2]); return 0; }}
"""
ADD_BODY = f"""
void add(const float *x, const float *y, float *z) {{
    #pragma omp parallel for
    for (int i = 0; i < {N}; i++) z[i] = x[i] + y[i];
}}
"""


def program(*texts: str, flags: tuple[str, ...] = ("-O2",), **facts: Any) -> Program:
    sources = tuple(Source(f"unit{i}", text, flags) for i, text in enumerate(texts))
    return Program(sources, "run", **facts)


def adder(flags: tuple[str, ...] = ("-O2",)) -> Program:
    return program(ADD, ADD_BODY, flags=flags, inputs=(VECTOR, VECTOR), outputs=(VECTOR,))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> BuildCache:
    return BuildCache(tmp_path_factory.mktemp("cache"))


def vectors() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    return draw.normal(size=N).astype(np.float32), draw.normal(size=N).astype(np.float32)


def test_two_units_become_one_library(cache: BuildCache) -> None:
    x, y = vectors()
    with load(compile_program(adder(), cache).artifact) as library:
        (z,) = library.run((x, y))
        np.testing.assert_array_equal(z, x + y)
        assert z.ctypes.data % 64 == 0


def test_second_build_is_a_hit_that_still_knows_the_cost(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    first = compile_program(adder(), cache)
    second = compile_program(adder(), BuildCache(tmp_path))
    assert (first.cached_objects, second.cached_objects) == (0, 3)
    assert second.artifact == first.artifact
    assert second.compile_s == pytest.approx(first.compile_s)
    assert second.spent_s < second.compile_s


def test_other_flags_or_text_are_a_miss_and_a_shared_unit_a_hit(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    compile_program(adder(), cache)
    assert compile_program(adder(("-O1",)), cache).cached_objects == 0
    changed = program(ADD, ADD_BODY + "\n/* */\n", inputs=(VECTOR, VECTOR), outputs=(VECTOR,))
    assert compile_program(changed, cache).cached_objects == 1


def parts(*numbers: int) -> Program:
    """A program that returns the sum of functions that were compiled together."""
    texts = {f"f{n}": f"int f{n}(void) {{ return {n}; }}" for n in numbers}
    declared = "".join(f"int {name}(void);" for name in texts)
    entry = f"{HEAD}{declared}ENTRY {{ return {' + '.join(f'{name}()' for name in texts)}; }}"
    sources = [Source(name, text, ("-O1",), "/* of all */") for name, text in texts.items()]
    return Program((*sources, Source("entry", entry)), "run", (), ())


def test_parts_are_compiled_once_whatever_they_are_compiled_with(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    first = compile_program(parts(1, 2, 3, 4), cache, parallel=1)
    units = {p.name for p in cache.root.glob("*.o")}
    assert first.cached_objects == 0 and len(units) == 2, "all parts are one unit"
    other = compile_program(parts(2, 3, 5), cache)
    assert other.cached_objects == 2, "the new part, the entry and the library are made"
    assert load(other.artifact).bind((), ())() == 10
    assert compile_program(parts(5, 3, 2), cache).cached_objects == 3
    for name in units:
        (cache.root / name).unlink()
    assert load(compile_program(parts(1, 3), cache).artifact).bind((), ())() == 4


def test_parts_of_several_programs_are_compiled_together(tmp_path: Path) -> None:
    cache, rounds = BuildCache(tmp_path), [parts(1, 2), parts(1, 3), parts(1, 4)]
    compile_objects(rounds, parallel=1, cache=cache)
    objects = len([*cache.root.glob("*.o")])
    assert objects == 1 + len(rounds), "one unit of all parts, and an entry each"
    for each, wanted in zip(rounds, (3, 4, 5), strict=True):
        built = compile_program(each, cache)
        assert built.cached_objects == 3, "only the library is made"
        assert load(built.artifact).bind((), ())() == wanted
    assert len([*cache.root.glob("*.o")]) == objects


def test_a_part_that_does_not_compile_is_told_by_its_own_program(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    broken = program(ADD, "void add(", inputs=(VECTOR, VECTOR), outputs=(VECTOR,))
    compile_objects([parts(1, 2), broken], cache=cache)
    assert load(compile_program(parts(1, 2), cache).artifact).bind((), ())() == 3
    with pytest.raises(CompileError):
        compile_program(broken, cache)


def test_what_is_compiled_by_itself_begins_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, make = list[str](), ccompiler.make_file

    def told(*args: Any) -> BuildStep:
        begun.append(args[4])
        return make(*args)

    monkeypatch.setattr(ccompiler, "make_file", told)
    compile_program(parts(1, 2, 3), BuildCache(tmp_path), parallel=1)
    assert begun[0] == "entry", "the longest text of a large program has no other worker at the end"


def test_eviction_drops_what_was_used_longest_ago(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path, cap_bytes=1000)
    for position, key in enumerate(("aaaa", "bbbb", "cccc")):
        path = cache.put_text(key, ".o", "x" * 300)
        os.utime(path, (position, position))
    assert cache.find("aaaa", ".o") is not None  # used now, so bbbb is the oldest
    cache.put_text("dddd", ".o", "x" * 300)
    assert cache.find("bbbb", ".o") is None
    assert cache.find("aaaa", ".o") is not None and cache.find("dddd", ".o") is not None
    assert cache.size_bytes() <= 1000


def test_cache_is_private_and_left_clean(cache: BuildCache) -> None:
    compile_program(adder(), cache)
    assert stat.S_IMODE(cache.root.stat().st_mode) == 0o700
    assert not [p for p in cache.root.iterdir() if p.name.startswith("tmp-")]


def test_unusable_cache_directory_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="cannot use"):
        private_directory(tmp_path / "file" / "cache")


def test_compile_error_quotes_the_log(cache: BuildCache) -> None:
    bad = program(HEAD + "ENTRY { return undeclared; }", inputs=(), outputs=())
    with pytest.raises(CompileError, match=r"unit0 failed.*undeclared") as caught:
        compile_program(bad, cache)
    assert str(cache.root) not in str(caught.value)  # what is kept of it is read elsewhere
    unresolved = program(
        HEAD + "int32_t missing(void);\nENTRY { return missing(); }",
        flags=("-O2",),
        inputs=(),
        outputs=(),
    )
    with pytest.raises(LaunchError, match="missing"):
        load(compile_program(unresolved, cache).artifact)


def test_compile_timeout(cache: BuildCache) -> None:
    with pytest.raises(CompileError, match=r"took more than 0\.00\d* s|no time was left"):
        compile_program(adder(("-O3",)), cache, timeout_s=0.001)


def test_missing_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CompilerMissing, match="apt-get install gcc"):
        toolchain.find_compiler()
    monkeypatch.setenv("CC", "/nonexistent/cc")
    with pytest.raises(CompilerMissing, match="/nonexistent/cc"):
        toolchain.find_compiler()


def test_entry_name_cannot_smuggle_text() -> None:
    with pytest.raises(CompileError, match="not a C identifier"):
        Program((), "run; system", (), ())


def test_arguments_are_checked_and_made_contiguous(cache: BuildCache) -> None:
    x, y = vectors()
    with load(compile_program(adder(), cache).artifact) as library:
        (z,) = library.run((x[::-1], y))
        np.testing.assert_array_equal(z, x[::-1] + y)
        with pytest.raises(ArrayError, match="2 inputs, not 1"):
            library.run((x,))
        with pytest.raises(ArrayError, match=r"input 1 must be f32\[1000\], not float64\[1000\]"):
            library.run((x, y.astype(np.float64)))
        with pytest.raises(ArrayError, match="shares memory"):
            library.run((x, y), (x,))
        with pytest.raises(ArrayError, match="contiguous"):
            library.run((x, y), (np.empty(2 * N, np.float32)[::2],))


def test_results_are_recycled_only_when_let_go(
    cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aligned, "POOLED_BYTES", 0)
    x, y = vectors()
    with load(compile_program(adder(), cache).artifact) as library:
        (first,) = library.run((x, y))
        (second,) = library.run((y, y))
        np.testing.assert_array_equal(first, x + y)
        address, view = second.ctypes.data, second[5:]
        del second
        (third,) = library.run((x, x))
        assert third.ctypes.data != address
        np.testing.assert_array_equal(view, (y + y)[5:])
        del view
        gc.collect()
        assert library.run((x, y))[0].ctypes.data == address


def test_every_dtype_constants_workspace_and_blas(cache: BuildCache) -> None:
    types = tuple(TensorType((3,), d) for d in (DType.BF16, DType.BOOL, DType.I64))
    text = f"""{HEAD}
#include <string.h>
typedef void gemm(char*, char*, int*, int*, int*, float*, float*, int*, float*, int*, float*,
                  float*, int*);
ENTRY {{
    if (((uintptr_t)ws & 63) || ((uintptr_t)b[3] & 63)) return 7;
    memset(ws, 1, 4096);
    memcpy(b[4], b[0], 6); memcpy(b[5], b[1], 3);
    int64_t *out = b[6]; const int64_t *in = b[2], *k = b[3];
    for (int i = 0; i < 3; i++) out[i] = in[i] * k[i];
    int n = 1; float one = 1, two = 2, three = 3, zero = 0, r = 0; char t = 'N';
    ((gemm*)blas[0])(&t, &t, &n, &n, &n, &one, &two, &n, &three, &n, &zero, &r, &n);
    return r == 6 ? 0 : 8;
}}"""
    k = Literal.of(np.array([1, 2, 3]), DType.I64)
    built = compile_program(
        program(text, inputs=types, outputs=types, constants=(k,), workspace=4096), cache
    )
    half = np.array([1.5, -2, 3], ml_dtypes.bfloat16)
    flags, count = np.array([True, False, True]), np.array([1 << 40, -5, 7])
    with load(built.artifact) as library:
        got = library.run((half, flags, count))
    np.testing.assert_array_equal(got[0], half)
    np.testing.assert_array_equal(got[1], flags)
    np.testing.assert_array_equal(got[2], count * [1, 2, 3])


def test_nonzero_code_and_unloaded_library_raise(cache: BuildCache) -> None:
    built = compile_program(program(HEAD + "ENTRY { return 3; }", inputs=(), outputs=()), cache)
    library = load(built.artifact)
    with pytest.raises(LaunchError, match="code 3"):
        library.run(())
    library.close()
    with pytest.raises(LaunchError, match="unloaded"):
        library.run(())


def test_environment_is_stable_and_complete() -> None:
    found = cpu_environment()
    assert found == cpu_environment() and found.device == "cpu"
    assert [key for key, _ in found.must] == ["cores", "isa", "model", "word"]
    assert all(value for _, value in found.must + found.stale)
    assert last_level_cache_bytes() >= 1 << 18


def test_all_units_share_one_limit_and_what_is_built_needs_none(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    with pytest.raises(CompileError, match="no time was left to compile") as caught:
        compile_program(adder(), cache, timeout_s=0.0)
    assert caught.value.blame is Blame.MACHINE
    compile_program(adder(), cache)
    compiled = compile_program(adder(), cache, timeout_s=0.0)
    assert compiled.cached_objects == len(adder().sources) + 1
