"""Options and settings of the whole test run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Equal runs try equal examples; compiling has no place under a deadline.
settings.register_profile("autofuse", derandomize=True, deadline=None, database=None)
settings.load_profile("autofuse")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/goldens from what is generated"
    )


@pytest.fixture(scope="session", autouse=True)
def _own_build_cache() -> Iterator[None]:
    """Builds of the tests stay out of the user's cache."""
    if "AUTOFUSE_CACHE" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory() as directory:
        os.environ["AUTOFUSE_CACHE"] = directory
        yield
        del os.environ["AUTOFUSE_CACHE"]
