"""Which C and C++ compilers there are, and what tells one from another in keys and records.

A path is no identity: `cc` and `gcc` that are one binary are one compiler, and what an upgrade puts
at an old path is another. Content is: of the driver, of the compiler proper that it runs, of files
that arguments name; so are the arguments, and the variables that compilers read. Headers are not
looked at: those of the system come with its libc, whose version is a fact of the machine.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import file_digest
from itertools import takewhile
from pathlib import Path

from autofuse.backends.base import CompilerMissing
from autofuse.backends.cache import BuildCache, CacheError, content_key

MISSING = "no C compiler found: install one (on Debian: apt-get install gcc) or set CC"
MISSING_CXX = "no C++ compiler found: install one (on Debian: apt-get install g++) or set CXX"
# What GCC, its linker and clang read that changes what they make ([GCC manual] "Environment
# Variables", ld(1), clang's Driver.cpp); not SOURCE_DATE_EPOCH, since nothing of ours has a date.
VARIABLES = (
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH",
    "GCC_EXEC_PREFIX", "GCC_SPECS", "LDEMULATION", "GNUTARGET", "LD_RUN_PATH",
    "CCC_OVERRIDE_OPTIONS", "CLANG_CONFIG_FILE_SYSTEM_DIR", "CLANG_CONFIG_FILE_USER_DIR",
)  # fmt: skip
_ANSWER_S = 30.0


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler: the command, the version that it tells people, the arguments that come with it,
    and `identity`, which two compilers share only if they make the same of the same text."""

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    identity: str


def find_compiler() -> Compiler:
    """CC if set, else cc, gcc or clang; raises CompilerMissing."""
    return _find("CC", ("cc", "gcc", "clang"), "cc1", MISSING, _surroundings("CC"))


def find_cxx() -> Compiler:
    """CXX if set, else c++, g++ or clang++; raises CompilerMissing."""
    return _find("CXX", ("c++", "g++", "clang++"), "cc1plus", MISSING_CXX, _surroundings("CXX"))


def forget_compilers() -> None:
    """Look for them anew: they are taken to stay what they are for as long as a process lives."""
    _find.cache_clear()


def _surroundings(variable: str) -> tuple[tuple[str, str], ...]:
    asked = (variable, "PATH", *VARIABLES)
    return tuple((name, os.environ[name]) for name in asked if os.environ.get(name))


@lru_cache(maxsize=8)
def _find(
    variable: str,
    usual: tuple[str, ...],
    proper: str,
    missing: str,
    surroundings: tuple[tuple[str, str], ...],
) -> Compiler:
    around = dict(surroundings)
    named = around.get(variable, "").strip()
    commands = [shlex.split(named)] if named else [[name] for name in usual]
    for command in commands:
        program = shutil.which(command[0])
        if program is not None and (found := _asked([program, *command[1:]], proper, around)):
            return found
    raise CompilerMissing(f"{missing} ({variable}={named} does not run)" if named else missing)


def _asked(command: Sequence[str], proper: str, around: Mapping[str, str]) -> Compiler | None:
    """What a command says of itself; None where it does not run."""
    told = _answer([*command, "--version"])
    if not told:
        return None
    # Who comes before the compiler, such as ccache, is part of it.
    drivers = [command[0], *takewhile(lambda word: word[0] not in "-@", command[1:])]
    inner = _answer([*command, f"-print-prog-name={proper}"])
    flags = tuple(command[len(drivers) :])
    version = version_of(told, command)
    parts = [
        "compiler", version, *_contents([*drivers, inner]), "flags", *flags,
        *_contents(_files(flags)), "variables",
        *(f"{name}={around[name]}" for name in VARIABLES if name in around),
    ]  # fmt: skip
    return Compiler(tuple(command), version, flags, f"{version} #{content_key(parts)}")


def _answer(command: Sequence[str]) -> str:
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_ANSWER_S,
            env={**os.environ, "LC_ALL": "C"}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if answer.returncode == 0:
            return answer.stdout.strip()
    return ""


def version_of(told: str, command: Sequence[str]) -> str:
    """The first line of what `--version` tells, without the name that the compiler was called by:
    GCC begins with it."""
    line = told.splitlines()[0].strip()
    first, _, rest = line.partition(" ")
    called = first in {Path(word).name for word in command}
    return f"GCC {rest}" if called and rest.startswith("(") else line


def _files(flags: Iterable[str]) -> Iterator[str]:
    """What arguments name that may be a file: by itself, after `=`, or as a list of arguments."""
    for flag in flags:
        yield from (flag, flag.partition("=")[2], flag.removeprefix("@"))


def _contents(names: Iterable[str]) -> Iterator[str]:
    """Digests of those that are files, each once."""
    for name in dict.fromkeys(filter(None, names)):
        program = shutil.which(name) or name
        with suppress(OSError):
            if os.path.isfile(program):
                yield _digest_of(os.path.realpath(program))


def _digest_of(path: str) -> str:
    """SHA-256 of a file's content. A compiler has tens of megabytes: it is read once, until its
    number, size or one of its times is another."""
    facts = os.stat(path)
    told = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
    key = content_key(["file", path, *map(str, told)])
    try:
        cache = BuildCache()
        known = cache.find(key, ".sha256")
        if known is not None and len(digest := known[0].read_text(encoding="ascii")) == 64:
            return digest
        digest = _hashed(path)
        cache.put_text(key, ".sha256", digest)
        return digest
    except (CacheError, OSError):  # whoever cannot keep it reads it each time
        return _hashed(path)


def _hashed(path: str) -> str:
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()
