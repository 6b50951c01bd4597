"""A plugin for pytest: leaves out the tests named in the file that PASSED_FILE names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.gpu_children import PASSED_FILE


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    passed = set(Path(os.environ[PASSED_FILE]).read_text("utf-8").splitlines())
    left_out = [item for item in items if item.nodeid in passed]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid not in passed]
