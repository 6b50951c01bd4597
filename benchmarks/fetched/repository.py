"""A repository whose programs are taken: where it is had, and how it is fetched."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from autofuse.peers.types import BenchError

# No part of the checkout: git ignores it.
PLACE = Path(__file__).resolve().parent.parent.parent / ".programs"
SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Repository:
    """One commit of a repository of somebody else's. `licence` is an SPDX name."""

    name: str
    url: str
    commit: str
    licence: str

    @property
    def folder(self) -> Path:
        """Where its files are once fetched: all of them, for they are moved there at the end."""
        return PLACE / f"{self.name}-{self.commit[:12]}"


def fetch(repository: Repository) -> bool:
    """Its files in its folder; False where they are there already. A commit's name is a digest of
    its files, so what is fetched is what was read. Raises BenchError when git cannot."""
    if repository.folder.exists():
        return False
    PLACE.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=PLACE) as scratch:
        place = Path(scratch) / "files"
        _git("init", "--quiet", str(place))
        _git(
            "-C", str(place), "fetch", "--quiet", "--depth", "1", repository.url, repository.commit
        )
        _git("-C", str(place), "checkout", "--quiet", repository.commit)
        place.rename(repository.folder)
    return True


def _git(*arguments: str) -> None:
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, timeout=SECONDS
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"git {arguments[-1]}: {error}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        raise BenchError(f"git {arguments[-1]}: {last}")


def file_module(path: Path) -> ModuleType:
    """The module that a file holds, under a name of its own."""
    name = f"fetched_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BenchError(f"{path.name} is no Python file")
    found = module_from_spec(spec)
    sys.modules[name] = found  # dataclasses of it look there
    spec.loader.exec_module(found)
    return found
