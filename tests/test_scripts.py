"""The scripts a newcomer runs: what they say when something is missing, and what they run."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHELL = ("scripts/quickstart", "scripts/test", "scripts/setup.sh", ".ci/run")
# What the scripts use of the system, besides compilers and Python.
TOOLS = ("sh", "bash", "env", "dirname", "basename", "cat", "mktemp", "rm", "chmod")
BROWSER = ("chromium", "chromedriver")
# What a machine of CI finds installed.
THERE = (*BROWSER, "bwrap")


@pytest.fixture
def checkout(tmp_path):
    """A copy of the scripts, and a folder of programs that is the whole PATH."""
    for script in (*SHELL, "pyproject.toml", ".ci/packages.lock"):
        target = tmp_path / "clone" / script
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / script, target)
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in TOOLS:
        (programs / tool).symlink_to(shutil.which(tool))
    for tool in THERE:
        program(programs, tool, "exit 0")
    return tmp_path / "clone", programs


def program(folder, name, text):
    """An executable shell script."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def call(checkout, script, *arguments, **variables):
    clone, programs = checkout
    return subprocess.run(
        [clone / script, *arguments],
        env={"PATH": str(programs), "HOME": str(clone), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def one_sentence(result):
    """The only line a failed script writes."""
    assert result.returncode == 1 and result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


def filled_venv(clone):
    """A virtual environment whose programs write down how they were called."""
    log, folder = clone / "log", clone / ".venv" / "bin"
    python = f'case "$*" in "-c import hashlib"*) exec {sys.executable} "$@";; esac'
    program(folder, "python", f'{python}\necho "python $*" >>{log}')
    for name in ("autofuse", "ruff", "mypy", "pytest"):
        program(folder, name, f'echo "{name} $*" >>{log}')
    return log


@pytest.mark.parametrize("script", SHELL)
def test_shell_scripts_parse(script):
    shell = "bash" if script == ".ci/run" else "sh"
    assert subprocess.run([shell, "-n", ROOT / script], check=False).returncode == 0


@pytest.mark.parametrize("script", ["scripts/quickstart", "scripts/test"])
def test_without_a_compiler(checkout, script):
    line = one_sentence(call(checkout, script))
    assert line.endswith("autofuse needs a C compiler: on Debian run: apt-get install gcc")


def test_a_compiler_that_does_not_work(checkout):
    program(checkout[1], "cc", "exit 1")
    line = one_sentence(call(checkout, "scripts/quickstart"))
    assert "'cc' cannot build OpenMP programs" in line and "libc6-dev" in line


def test_the_compiler_named_by_the_user_comes_first(checkout):
    program(checkout[1], "cc", "exit 0")
    program(checkout[1], "mycc", "exit 1")
    line = one_sentence(call(checkout, "scripts/quickstart", CC="mycc -m64"))
    assert "'mycc -m64' cannot" in line


def test_an_old_python(checkout):
    program(checkout[1], "cc", "exit 0")
    program(checkout[1], "python3", "exit 1")
    assert "needs Python 3.11 or newer" in one_sentence(call(checkout, "scripts/quickstart"))


def test_python_without_venv(checkout):
    program(checkout[1], "cc", "exit 0")
    program(checkout[1], "python3", 'case "$*" in *venv*) exit 1;; esac')
    assert "apt-get install python3-venv" in one_sentence(call(checkout, "scripts/quickstart"))


def test_packages_that_cannot_be_had(checkout):
    program(checkout[1], "cc", "exit 0")
    filled_venv(checkout[0])
    program(
        checkout[0] / ".venv/bin",
        "python",
        f'case "$*" in *install*) exit 1;; "-c import hashlib"*) exec {sys.executable} "$@";; esac',
    )
    result = call(checkout, "scripts/quickstart")
    assert result.returncode == 1 and "installing the packages failed" in result.stderr


def test_quickstart_installs_once_then_tunes_and_reports(checkout):
    program(checkout[1], "cc", "exit 0")
    log = filled_venv(checkout[0])
    result = call(checkout, "scripts/quickstart")
    assert result.returncode == 0, result.stderr
    lines = log.read_text().splitlines()
    assert sum("pip install" in line and line.endswith("--editable .") for line in lines) == 1
    assert [line.split(" --")[0] for line in lines if line.startswith("autofuse")] == [
        "autofuse tune zoo:softmax:small",
        "autofuse tune zoo:cartpole_naive",
        "autofuse report",
    ]
    log.unlink()
    assert call(checkout, "scripts/quickstart").returncode == 0
    assert "pip install" not in log.read_text()
    (checkout[0] / "pyproject.toml").write_text("# changed\n")
    assert call(checkout, "scripts/quickstart").returncode == 0
    assert "pip install" in log.read_text()


@pytest.mark.parametrize("script", ["scripts/test", ".ci/run"])
def test_test_runs_every_check(checkout, script):
    program(checkout[1], "cc", "exit 0")
    log = filled_venv(checkout[0])
    given = ("-k", "toy") if script == "scripts/test" else ()
    result = call(checkout, script, *given, CI="true")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "All checks and tests passed."
    lines = log.read_text().splitlines()
    wanted = "--editable .[test]" if given else "--no-deps --editable ."
    assert any(line.endswith(wanted) for line in lines)
    ran = [line for line in lines if not line.startswith("python")]
    names = [line.split()[0] for line in ran]
    assert names[:2] == ["ruff", "ruff"] and sorted(names[2:]) == ["mypy", "pytest"]
    assert ran[names.index("pytest")].endswith(" ".join(given))


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["lint"], ["ruff check .", "ruff format --check ."]),
        (["types"], ["mypy"]),
        (["tests", "-k", "toy"], ["pytest -n 2 --dist worksteal -q -k toy"]),
        (["slow", "-x"], ["pytest -q -m slow -x"]),
    ],
)
def test_test_runs_a_part_alone(checkout, arguments, wanted):
    program(checkout[1], "cc", "exit 0")
    log = filled_venv(checkout[0])
    result = call(checkout, "scripts/test", *arguments)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"Passed: {arguments[0]}.\n"
    lines = [line.rstrip() for line in log.read_text().splitlines()]
    ran = [line for line in lines if not line.startswith("python")]
    assert [line.partition(" scripts/")[0] for line in ran] == wanted


@pytest.mark.parametrize("part", ["lint", "types"])
def test_parts_without_pytest_take_no_arguments(checkout, part):
    filled_venv(checkout[0])
    line = one_sentence(call(checkout, "scripts/test", part, "-x"))
    assert line.startswith(f"test: '{part}' takes no arguments")


def test_hooks_and_workflow_call_parts_that_exist():
    """Every command of both files is a script of the checkout, and its part one of scripts/test."""
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    workflow = (ROOT / ".github/workflows/test.yml").read_text()
    parts = re.findall(r"scripts/test (\w+)", hooks + workflow)
    parts += re.findall(r"part: (\w+)", workflow)
    script = (ROOT / "scripts/test").read_text()
    known = re.search(r"^  (.+)\)\n    part=\$1", script, re.M)[1].split(" | ")
    assert set(parts) == set(known)
    for name in re.findall(r"scripts/\w+", hooks + workflow):
        assert os.access(ROOT / name, os.X_OK), name
    assert "/work" not in hooks + workflow and "/home" not in hooks + workflow


def test_ci_installs_what_is_locked_and_nothing_else(checkout):
    program(checkout[1], "cc", "exit 0")
    log = filled_venv(checkout[0])
    assert call(checkout, ".ci/run").returncode == 0
    packages, itself = (line for line in log.read_text().splitlines() if "pip install" in line)
    assert packages.endswith("--require-hashes --requirement .ci/packages.lock")
    assert itself.endswith("--no-deps --editable .")


def test_the_lock_names_every_package_of_the_tests_by_hash():
    lines = (ROOT / ".ci/packages.lock").read_text().splitlines()
    locked = [line for line in lines if not line.startswith("#")]
    form = r"([a-z0-9.-]+)==[^ ]+( --hash=sha256:[0-9a-f]{64})+"
    names = {re.fullmatch(form, line)[1] for line in locked}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = project["dependencies"] + project["optional-dependencies"]["test"]
    plain = {re.match(r"[\w.-]+", one)[0].lower().replace("_", "-") for one in asked}
    assert plain <= names and len(names) == len(locked)
    for action in re.findall(r"uses: (.+)", (ROOT / ".github/workflows/test.yml").read_text()):
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", action), action


@pytest.mark.parametrize("missing", BROWSER)
def test_ci_installs_the_browser_or_fails(checkout, missing):
    (checkout[1] / missing).unlink()
    program(checkout[1], "cc", "exit 0")
    filled_venv(checkout[0])
    log = checkout[0] / "apt.log"
    program(checkout[1], "apt-get", f'echo "$@" >>{log}')
    assert call(checkout, ".ci/run").returncode == 0
    assert "chromium chromium-driver" in log.read_text().splitlines()[-1]
    program(checkout[1], "apt-get", "exit 100")
    result = call(checkout, ".ci/run")
    assert result.returncode == 1 and "Chromium cannot be installed" in result.stderr


@pytest.mark.parametrize("failing", ["ruff", "mypy", "pytest"])
def test_a_failing_check_fails_the_run(checkout, failing):
    program(checkout[1], "cc", "exit 0")
    filled_venv(checkout[0])
    program(checkout[0] / ".venv/bin", failing, "exit 3")
    result = call(checkout, ".ci/run")
    assert result.returncode == 1 and f"{failing} found something" in result.stderr
    assert "passed" not in result.stdout


def test_python_scripts_hold_no_logic():
    names = [
        p for p in (ROOT / "scripts").iterdir() if p.read_text().startswith("#!/usr/bin/env p")
    ]
    assert names
    for path in names:
        body = ast.parse(path.read_text()).body
        functions = [node.name for node in body if isinstance(node, ast.FunctionDef)]
        assert functions == ["main"] and len(path.read_text().splitlines()) <= 60


def test_bench_peers_refuses_what_it_does_not_know():
    result = subprocess.run(
        [sys.executable, ROOT / "scripts/bench_peers", "--workloads", "nonsense"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("bench_peers: unknown workload 'nonsense' (known: softmax,")
