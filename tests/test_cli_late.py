"""Commands are imported when they are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.main import get_command

from autofuse.commands.app import COMMANDS, app

# What the program's own help and a mistyped command have no use for.
HEAVY = ("numpy", "scipy", "sqlalchemy", "optuna", "rich", "autofuse.devices")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_command_is_the_first_of_its_help(name: str) -> None:
    told = COMMANDS[name].load().help.strip().splitlines()[0]
    assert COMMANDS[name].help == told


def test_the_programs_help_imports_no_command() -> None:
    text = (
        "import sys\nfrom autofuse.cli import main\nsys.argv = ['autofuse', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(end.code)\n"
        f"print(sorted(m for m in {HEAVY} if m in sys.modules))\n"
    )
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert ended.stdout.splitlines()[-2:] == ["0", "[]"], ended.stderr


# What planning and tuning need only when something is solved, learned, sampled or upgraded.
LATER = ("scipy", "optuna", "alembic", "networkx", "jax", "torch", "onnx", "rich")


@pytest.mark.parametrize(
    ("imported", "without"),
    [
        ("autofuse", (*HEAVY, *LATER, "typer", "dataclasses", "subprocess")),
        (
            "autofuse.measure.worker.process",
            (*LATER, "autofuse.cost", "autofuse.backends.cpu.backend", "sqlalchemy"),
        ),
        ("autofuse.commands.tuning, autofuse.tuning.job.tuner", LATER),
    ],
)
def test_nothing_is_imported_before_it_is_needed(imported: str, without: tuple[str, ...]) -> None:
    text = f"import sys\nbefore = {{*sys.modules}}\nimport {imported}\n"
    text += f"print(sorted(m for m in {without} if m in {{*sys.modules}} - before))\n"
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["[]"], ended.stderr


def test_a_command_is_loaded_once_and_only_when_asked_for() -> None:
    commands = get_command(app).commands
    assert list(commands) == list(COMMANDS)
    assert commands["zoo"] is commands["zoo"]
    assert "nothing" not in commands
