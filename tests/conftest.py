"""Options and settings of the whole test run."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator

import pytest

from autofuse.backends.cpu import onednn, onednn_calls
from autofuse.backends.cuda import driver
from autofuse.baselines import BASELINES
from autofuse.cost.bounds import Calibration
from autofuse.devices import DeviceKind
from autofuse.kernel.ir.types import Kernel
from autofuse.kernel.passes import OBSERVERS, verify
from autofuse.tuning.job import finals
from tests.support import drawing, seeds
from tests.support.databases import databases, postgres, sqlite_store, sqlite_template, store

# Fixtures for all tests.
__all__ = ["databases", "postgres", "sqlite_store", "sqlite_template", "store"]


def pytest_configure(config: pytest.Config) -> None:
    seeds.begin(config)
    _begin_build_cache(config)


def _begin_build_cache(config: pytest.Config) -> None:
    """Builds of the tests stay out of the user's cache; the processes of a run share one of their
    own, which the first makes."""
    if "AUTOFUSE_CACHE" not in os.environ:
        directory = tempfile.TemporaryDirectory(prefix="autofuse-tests-")
        os.environ["AUTOFUSE_CACHE"] = directory.name
        config.add_cleanup(directory.cleanup)
        config.add_cleanup(lambda: os.environ.pop("AUTOFUSE_CACHE"))


def pytest_report_header() -> str:
    return seeds.said()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Said at the end too: a quiet run has no header."""
    if seeds.said():
        terminalreporter.write_line(seeds.said())


@pytest.hookimpl(tryfirst=True)  # marks of ours are there when marks are asked for
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `gpu` are deselected, not skipped: without a GPU there is no gap to see to."""
    seeds.seed_property_tests(items)
    drawing.leave_the_rest(items)
    marked = [item for item in items if item.get_closest_marker("gpu") is not None]
    if marked and driver.why_not() is not None:
        config.hook.pytest_deselected(items=marked)
        items[:] = [item for item in items if item.get_closest_marker("gpu") is None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/goldens from what is generated"
    )
    parser.addoption(
        "--explore",
        nargs="?",
        const=seeds.ANEW,
        metavar="SEED",
        help="try random cases drawn anew, or those of a seed again",
    )


def pytest_collection_finish() -> None:
    """Modules and collected tests live to the end: the garbage collector passes them by."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _own_database() -> Iterator[None]:
    """Commands that name no database leave the user's alone."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", directory)
        yield


@pytest.fixture(scope="session", autouse=True)
def _calibrated_once() -> Iterator[None]:
    """Seconds for each empty database that a test tunes on would be minutes in all."""
    measured, known = DeviceKind.calibrate, dict[tuple[object, object], Calibration]()

    def calibrate(kind: DeviceKind) -> Calibration:
        key = (kind.hardware, kind.backend.target)
        if key not in known:
            known[key] = measured(kind)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeviceKind, "calibrate", calibrate)
        yield


@pytest.fixture(scope="session", autouse=True)
def _short_comparisons() -> Iterator[None]:
    """Which of a test's small plans is the fastest is not what is tested: the last comparison takes
    a tenth of the samples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finals, "MAX_ROUNDS", 2)
        yield


@pytest.fixture(scope="session", autouse=True)
def _verified_kernels() -> Iterator[None]:
    """Every kernel that a test lowers is verified after every pass that changes it."""
    last: Kernel | None = None

    def observe(step: str, kernel: Kernel) -> None:
        nonlocal last
        if kernel == last:
            return
        last = kernel
        try:
            verify(kernel)
        except AssertionError as error:
            raise AssertionError(f"after {step}: {error}\n{kernel}") from error

    OBSERVERS.append(observe)
    yield
    OBSERVERS.remove(observe)


@pytest.fixture(autouse=True)
def _no_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU passes the same tests: only those marked `gpu` may see it."""
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(driver, "why_not", lambda: "no CUDA driver was found")


@pytest.fixture
def two_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the simplest baseline and the default one, for tests that count what is measured."""
    for name in [name for name in BASELINES if name not in ("unfused", "xla-2022")]:
        monkeypatch.delitem(BASELINES, name)


@pytest.fixture
def no_onednn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without oneDNN."""

    def forget() -> None:
        onednn.look_again()
        onednn_calls.does.cache_clear()

    monkeypatch.setattr(onednn, "PACKAGE", "no-such-package")
    monkeypatch.setattr(onednn, "SONAME", "libnosuchlibrary.so.3")
    forget()
    yield
    monkeypatch.undo()
    forget()
