"""Planted kernels through the real worker: each has its typed failure, and the worker goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autofuse.backends.base import Artifact, Program, Source
from autofuse.backends.cache import BuildCache
from autofuse.backends.ccompiler import compile_program
from autofuse.measure.timing.sampling import MeasureError, Sampling
from autofuse.measure.worker.lock import DeviceBusy, measurement_lock
from autofuse.measure.worker.protocol import Comparison, ComparisonFailure
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload
from autofuse.records import Blame, FailureKind
from tests.support.worker_bodies import BODIES, N, graph

QUICK = Sampling(warmup_s=0.0, minimum=4, maximum=8, wall_s=0.2)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    cache = BuildCache(tmp_path_factory.mktemp("cache"))
    types = graph().input_types
    head = "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
    found = {}
    for name, body in BODIES.items():
        text = f"{head}int32_t run(void **b, void *ws, void **blas) {{\n"
        text += f"float *x = b[0], *y = b[1], *z = b[2]; {body}\nreturn 0; }}"
        program = Program((Source(name, text, ("-O1",)),), "run", types, types[:1])
        found[name] = compile_program(program, cache).artifact
    return found


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    before = os.environ.get("AUTOFUSE_CACHE")
    os.environ["AUTOFUSE_CACHE"] = str(tmp_path_factory.mktemp("user"))
    with Worker(Workload(graph(), seed=3), limit_s=20) as started:
        yield started
    if before is None:
        del os.environ["AUTOFUSE_CACHE"]
    else:
        os.environ["AUTOFUSE_CACHE"] = before


def test_good_kernel_is_timed_cold_and_warm(worker: Worker, built: dict[str, Artifact]) -> None:
    for mode in ("cold", "warm"):
        sampling = Sampling(mode, warmup_s=0.0, minimum=4, maximum=8)
        reply = worker.measure(built["good"], sampling)
        assert reply.failure is None and reply.timing is not None
        assert reply.timing.cache == mode and 4 <= reply.timing.n <= 8
        assert 0 < reply.timing.min_us <= reply.timing.median_us
        assert reply.max_rel_error is not None and reply.max_rel_error < 1e-6
    only_checked = worker.measure(built["good"], None)
    assert only_checked.failure is None and only_checked.timing is None


@pytest.mark.parametrize(
    ("name", "kind", "text", "limit_s"),
    [
        ("hangs", FailureKind.TIMEOUT, "within 0.5 s", 0.5),
        ("segfaults", FailureKind.CRASH, "SIGSEGV", None),
        ("aborts", FailureKind.CRASH, "SIGABRT", None),
        ("exits", FailureKind.CRASH, "code 3: about to leave", None),
        ("wrong", FailureKind.WRONG_RESULT, "1 of 5000 elements differ, first at [77]", None),
        ("unwritten", FailureKind.WRONG_RESULT, "non-finite element at [4999]: nan", None),
        ("code", FailureKind.LAUNCH, "code 5", None),
        ("overruns", FailureKind.WRONG_RESULT, "outside its outputs", None),
        ("later", FailureKind.WRONG_RESULT, "1 of 5000 elements differ, first at [7]", None),
        ("stops", FailureKind.WRONG_RESULT, "in a later run: output 0", None),
        ("spoils later", FailureKind.WRONG_RESULT, ": the program changed its inputs", None),
        ("reads on", FailureKind.CRASH, "SIGSEGV: an access beyond the end of input 0", None),
        ("reads before", FailureKind.CRASH, "access before the start of input 0", None),
        ("writes on", FailureKind.CRASH, "SIGSEGV: an access beyond the end of output 0", None),
        ("workspace", FailureKind.CRASH, "of the program's own memory", None),
        ("ones", FailureKind.WRONG_RESULT, "last element large: output 0:", None),
        ("spoils", FailureKind.WRONG_RESULT, "changed its inputs", None),
        ("swaps", FailureKind.WRONG_RESULT, "changed its inputs", None),
    ],
)
def test_bad_kernel_costs_one_failure(
    worker: Worker,
    built: dict[str, Artifact],
    name: str,
    kind: FailureKind,
    text: str,
    limit_s: float | None,
) -> None:
    failed = worker.measure(built[name], QUICK, limit_s)
    assert failed.timing is None and failed.failure is not None
    assert failed.failure.kind is kind
    # A time-out may be a stalled machine: only a second one, alone, is held against a candidate.
    stalled = kind is FailureKind.TIMEOUT
    assert failed.failure.blame is (Blame.MACHINE if stalled else Blame.CANDIDATE)
    assert text in failed.failure.message
    after = worker.measure(built["good"], QUICK)
    assert after.failure is None and after.timing is not None


def test_unloadable_library_and_foreign_program_are_launch_failures(
    worker: Worker, built: dict[str, Artifact], tmp_path: Path
) -> None:
    good = built["good"]
    bad = tmp_path / "bad.so"
    bad.write_bytes(b"not a library")
    for artifact in (
        Artifact(bad, "run", good.inputs, good.outputs, (), 0),
        Artifact(good.path, "absent", good.inputs, good.outputs, (), 0),
        Artifact(good.path, "run", good.inputs[:1], good.outputs, (), 0),
    ):
        reply = worker.measure(artifact, QUICK)
        assert reply.failure is not None and reply.failure.kind is FailureKind.LAUNCH


def test_comparison_interleaves_and_names_the_failing_one(
    worker: Worker, built: dict[str, Artifact]
) -> None:
    result = worker.compare([built["good"], built["slower"]], 3, 4, QUICK)
    assert isinstance(result, Comparison)
    assert [[len(block) for block in blocks] for blocks in result.samples] == [[4, 4, 4]] * 2
    bad = worker.compare([built["good"], built["wrong"]], 3, 4, QUICK)
    assert isinstance(bad, ComparisonFailure) and bad.index == 1
    assert bad.failure.kind is FailureKind.WRONG_RESULT
    crash = worker.compare([built["good"], built["segfaults"]], 3, 4, QUICK)
    assert isinstance(crash, ComparisonFailure) and crash.failure.kind is FailureKind.CRASH
    for name in ("spoils later", "overruns later"):
        spoiled = worker.compare([built[name], built["good"]], 3, 4, QUICK)
        assert isinstance(spoiled, ComparisonFailure) and spoiled.index is None
        assert "while all were timed" in spoiled.failure.message
    assert isinstance(worker.compare([built["good"]], 3, 4, QUICK), Comparison)
    with pytest.raises(MeasureError, match="3 blocks"):
        worker.compare([built["good"]], 2)


def test_worker_is_started_again_only_when_lost(built: dict[str, Artifact]) -> None:
    inputs = tuple(np.linspace(1, 2, N, dtype=np.float32) for _ in range(2))
    with Worker(Workload(graph(), arrays=inputs)) as fresh:
        for name in ("good", "wrong", "code", "good"):
            fresh.measure(built[name], None)
        assert fresh.starts == 1
        fresh.measure(built["segfaults"], None)
        fresh.measure(built["good"], None)
        assert fresh.starts == 2


def test_a_workload_longer_than_a_pipe_holds_is_given_while_something_else_is_done(
    built: dict[str, Artifact],
) -> None:
    long = replace(graph(), nodes=tuple(replace(n, name="n" * 200_000) for n in graph().nodes))
    with Worker(Workload(long, seed=3), limit_s=20) as begun:
        begun.begin()
        begun.begin()
        assert begun.starts == 0
        begun.start()
        assert begun.measure(built["good"], None).failure is None and begun.starts == 1
        begun.use(Workload(graph(), seed=4))
        assert begun.measure(built["good"], None).failure is None and begun.starts == 1
    with Worker(Workload(graph(), seed=3), limit_s=20) as other:
        other.begin()
        other.use(Workload(graph(), seed=4))  # before it was heard of the first one
        assert other.measure(built["good"], None).failure is None and other.starts == 1


def test_workload_that_does_not_fit_is_said_at_once() -> None:
    with pytest.raises(MeasureError, match="takes 2 inputs, not 1"):
        Workload(graph(), arrays=(np.zeros(N, np.float32),))
    with pytest.raises(MeasureError, match="input 'y' must be f32"):
        Workload(graph(), arrays=(np.zeros(N, np.float32), np.zeros(3, np.float32)))


def test_device_is_measured_on_by_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path))
    with measurement_lock("cpu"):
        with pytest.raises(DeviceBusy), measurement_lock("cpu", wait_s=0.0):
            pass
        with measurement_lock("another", wait_s=0.0):
            pass
    with measurement_lock("cpu", wait_s=0.0):
        pass


SCRIPT = """
import sys
from tests.support.worker_bodies import graph
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload
worker = Worker(Workload(graph()))
worker.start()
print(worker._child._process.pid, flush=True)
sys.stdin.readline()
"""


def test_unguarded_script_may_measure_and_its_death_ends_the_worker(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    root = str(Path(__file__).parent.parent)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": root},
    )
    assert process.stdout is not None and process.stdin is not None
    child = int(process.stdout.readline())
    watcher = os.pidfd_open(child)
    process.kill()
    process.wait()
    import select

    poller = select.poll()
    poller.register(watcher, select.POLLIN)  # readable once the process has ended
    assert poller.poll(20_000)
    os.close(watcher)
    process.stdin.close()
    process.stdout.close()


def test_a_reference_that_takes_too_long_is_one_sentence() -> None:
    with (
        Worker(Workload(graph()), setup_s=lambda: 0.0) as hurried,
        pytest.raises(MeasureError, match=r"reference .* not computed in 0 s: .* larger budget$"),
    ):
        hurried.start()
