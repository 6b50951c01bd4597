"""What the build cache trusts: where it lies, what it holds, and who may read a key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autofuse.backends.base import LaunchError, Program, Source
from autofuse.backends.cache import BuildCache, CacheError, private_directory
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.library import load
from autofuse.backends.sealed import load_checked, load_kept
from autofuse.serving.keys import BundleError, Secret, make_key, read_key

TEXT = "#include <stdint.h>\nint32_t run(void **b, void *ws, void **blas) { return 0; }\n"
PROGRAM = Program((Source("unit", TEXT),), "run", (), ())


def test_a_directory_is_private_also_where_it_was_not(tmp_path: Path) -> None:
    found = private_directory(tmp_path / "a" / "b")
    assert found.stat().st_mode & 0o777 == 0o700
    found.chmod(0o755)
    assert private_directory(found).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_an_ancestor_that_others_may_write_is_refused(mode: int, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    with pytest.raises(CacheError, match="others may write"):
        private_directory(tmp_path / "open" / "cache")
    (tmp_path / "open").chmod(mode | 0o1000)
    private_directory(tmp_path / "open" / "cache")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to other users")
@pytest.mark.parametrize("name", ["folder", "link"])
def test_what_another_user_made_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "own")
    os.chown(tmp_path / name, 12345, 12345, follow_symlinks=False)
    with pytest.raises(CacheError, match="another user"):
        private_directory(tmp_path / name / "cache")


def test_own_links_lead_on_and_circles_end(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    private_directory(tmp_path / "link" / "cache")
    assert (tmp_path / "real" / "cache").is_dir()
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(CacheError, match="circles"):
        private_directory(tmp_path / "circle" / "cache")


def test_a_changed_library_is_built_again_and_never_loaded(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    built = compile_program(PROGRAM, cache)
    path = built.artifact.path
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(LaunchError, match="not what was compiled"):
        load(built.artifact)
    path.unlink()
    (tmp_path / "elsewhere").write_bytes(b"")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LaunchError, match="cannot load"):
        load(built.artifact)
    with load(compile_program(PROGRAM, cache).artifact) as library:
        library.run(())
    assert not path.is_symlink()


def test_a_changed_object_is_compiled_again(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    compile_program(PROGRAM, cache)
    for path in cache.root.glob("*.o"):
        path.write_bytes(b"no object")
    for path in cache.root.glob("*.so"):
        path.unlink()
    with load(compile_program(PROGRAM, cache).artifact) as library:
        library.run(())


def test_libraries_are_told_apart_when_descriptors_are_used_again(tmp_path: Path) -> None:
    cache, found = BuildCache(tmp_path), []
    for value in (0, 3):
        text = TEXT.replace("return 0", f"return {value}")
        found.append(
            load(compile_program(Program((Source("u", text),), "run", (), ()), cache).artifact)
        )
    found[0].run(())
    with pytest.raises(LaunchError, match="code 3"):
        found[1].run(())


def test_a_key_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    make_key(path)
    key = read_key(path)
    assert isinstance(key, Secret)
    assert path.stat().st_mode & 0o777 == 0o600 and len(key.secret) == 32
    with pytest.raises(BundleError, match="File exists"):
        make_key(path)
    path.chmod(0o640)
    with pytest.raises(BundleError, match="others may read the key"):
        read_key(path)


def test_what_is_never_closed_stays_at_its_addresses(tmp_path: Path) -> None:
    """JAX takes a handler at another address for another handler."""
    one = compile_program(PROGRAM, BuildCache(tmp_path)).artifact
    kept = [load_kept(one.path, one.digest) for _ in range(2)]
    assert kept[0] is kept[1]
    assert load_checked(one.path, one.digest)._handle != kept[0]._handle
