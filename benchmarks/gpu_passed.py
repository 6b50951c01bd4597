"""A plugin for pytest: writes what becomes of each test to the file that VERDICTS names, and leaves
out the tests that it says have passed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# The variable of the environment that names the file.
VERDICTS = "AUTOFUSE_TEST_VERDICTS"


def read_verdicts(text: str) -> dict[str, str]:
    """What became of tests, by their names: passed, failed or skipped."""
    return {name: word for name, _, word in (line.rpartition(" ") for line in text.splitlines())}


def pytest_configure(config: pytest.Config) -> None:
    # Workers of pytest-xdist tell the process that started them, which is a witness itself.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Witness(Path(os.environ[VERDICTS])))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = read_verdicts(Path(os.environ[VERDICTS]).read_text("utf-8"))
    left_out = [item for item in items if known.get(item.nodeid) == "passed"]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


class Witness:
    """Writes verdicts as they come; the last one of a test counts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{report.nodeid} {report.outcome}\n")
