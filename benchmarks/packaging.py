"""A wheel and an sdist of the checkout, and whether they hold what an installed autofuse needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autofuse.errors import AutofuseError

PACKAGES = ("autofuse", "search_spaces", "tuning_db")
FILES = ("CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml")
WORKLOAD = "zoo:softmax:small"
# Left behind by running from the checkout, and no part of it.
_LITTER = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so")
Say = Callable[[str], None]


class PackagingError(AutofuseError):
    """The packages cannot be built, lack files, or do not work where nothing else is installed."""


@dataclass(frozen=True, slots=True)
class Built:
    """The two files that a release consists of."""

    sdist: Path
    wheel: Path


def check_packages(root: Path, folder: Path, budget_s: float, say: Say) -> Built:
    """Build both from the checkout `root` into `folder`/dist, look into them, and try the wheel in
    an environment that holds nothing else. Needs pip and its index; `folder` gets environments,
    caches and a database too. Raises PackagingError."""
    source = folder / "source"
    copy_source(root, source)
    say("building")
    built = build(source, folder)
    wanted = set(files_of(source))
    complain("the wheel", wheel_files(built.wheel), wanted)
    complain("the sdist", sdist_files(built.sdist), wanted | {"LICENSE", "README.md"})
    say(f"trying {built.wheel.name} where nothing else is installed")
    smoke(built.wheel, folder, budget_s)
    return built


def copy_source(root: Path, target: Path) -> None:
    """Copy what is packaged, without what building and running leave in a checkout."""
    target.mkdir(parents=True)
    for name in PACKAGES:
        shutil.copytree(root / name, target / name, ignore=_LITTER)
    for name in FILES:
        shutil.copy(root / name, target / name)


def files_of(source: Path) -> Iterator[str]:
    """Every file of the packages in a clean copy, as a path inside it."""
    for name in PACKAGES:
        for path in sorted((source / name).rglob("*")):
            if path.is_file():
                yield path.relative_to(source).as_posix()


def build(source: Path, folder: Path) -> Built:
    """Both files, the wheel made from the sdist, so that the sdist is known to be whole."""
    python = environment(folder / "builder", ["build>=1"])
    _run([python, "-m", "build", "--outdir", str(folder / "dist"), str(source)], folder)
    sdists = list((folder / "dist").glob("*.tar.gz"))
    wheels = list((folder / "dist").glob("*.whl"))
    if len(sdists) != 1 or len(wheels) != 1:
        raise PackagingError(f"building gave {len(sdists)} sdists and {len(wheels)} wheels")
    return Built(sdists[0], wheels[0])


def wheel_files(wheel: Path) -> list[str]:
    """Paths of what a wheel installs, its metadata left out."""
    with zipfile.ZipFile(wheel) as archive:
        return [n for n in archive.namelist() if ".dist-info/" not in n]


def sdist_files(sdist: Path) -> list[str]:
    """Paths of what an sdist holds inside its one folder, metadata of the build left out."""
    with tarfile.open(sdist) as archive:
        names = [m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()]
    made = {"PKG-INFO", "setup.cfg", *FILES} - {"LICENSE", "README.md"}
    return [n for n in names if n not in made and ".egg-info/" not in n]


def complain(what: str, found: Iterable[str], wanted: Collection[str]) -> None:
    """Raise PackagingError unless exactly the wanted files are there."""
    there = set(found)
    for said, names in (("lacks", set(wanted) - there), ("should not hold", there - set(wanted))):
        if names:
            shown = ", ".join(sorted(names)[:5])
            raise PackagingError(f"{what} {said} {shown} ({len(names)} files)")


def environment(folder: Path, requirements: Sequence[str]) -> str:
    """The Python of a new virtual environment that holds these packages."""
    _run([sys.executable, "-m", "venv", str(folder)], folder.parent)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*install, *requirements], folder.parent)
    return python


def smoke(wheel: Path, folder: Path, budget_s: float) -> None:
    """Install the wheel alone; tune, query and report with a home and a database of its own."""
    program = Path(environment(folder / "bare", [str(wheel)])).with_name("autofuse")
    database, page = str(folder / "smoke.db"), folder / "report.html"
    tuned = ("tune", WORKLOAD, "--device", "cpu", "--budget", f"{budget_s:g}", "--db", database)
    for arguments in (
        ("--version",),
        tuned,
        ("query", WORKLOAD, "--device", "cpu", "--db", database),
        ("report", "--db", database, "--out", str(page)),
    ):
        _run([str(program), *arguments], folder, bare_variables(os.environ, folder))
    if "</html>" not in page.read_text(encoding="utf-8"):
        raise PackagingError("the report of the installed package is not a whole page")


def bare_variables(variables: Mapping[str, str], folder: Path) -> dict[str, str]:
    """An environment in which no checkout, cache or data of the user's is found."""
    kept = {k: v for k, v in variables.items() if not k.startswith(("PYTHON", "AUTOFUSE", "XDG_"))}
    return {**kept, "HOME": str(folder / "home"), "AUTOFUSE_CACHE": str(folder / "cache")}


def _run(command: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None) -> None:
    """Run one program in `folder`; its words are shown only if it fails."""
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise PackagingError(f"'{' '.join(command)}' ended with {done.returncode}:\n{said}")
