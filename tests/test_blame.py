"""What the machine does to a candidate is not held against it; what it does itself is."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import autofuse.frontends.array_api as xp
from autofuse.backends import toolchain
from autofuse.backends.base import Artifact, CompileError, Program, Source
from autofuse.backends.cache import BuildCache, CacheError
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cuda import nvrtc
from autofuse.backends.registry import CPU_BACKEND, Backend
from autofuse.frontends import spec, trace
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.measure.timing.sampling import MeasureError
from autofuse.measure.worker.lock import measurement_lock
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload
from autofuse.plan.types import Candidate
from autofuse.records import Blame, Failure, FailureKind
from autofuse.tuning.evaluate import build
from autofuse.tuning.plans import baseline_candidate
from search_spaces import CpuLaunchSpace
from tests.support.tuning_records import ENV, WORKLOAD, failed, failed_kernel, kernel, measurement
from tuning_db import Store

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
MACHINE = Failure(FailureKind.CRASH, "killed by SIGKILL", Blame.MACHINE)


def traced() -> Graph:
    return canonical(trace(xp.exp, spec(1000)))


def candidate() -> Candidate:
    return baseline_candidate(traced(), "unfused", CpuLaunchSpace())[0]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path / "cache"))
    toolchain.forget_compilers()
    yield
    toolchain.forget_compilers()


def failure_of_build(backend: Backend = CPU_BACKEND) -> Failure:
    made = build(backend, traced(), candidate())
    assert made.artifact is None and made.failure is not None
    return made.failure


def compiler_that(does: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that names itself like the usual one, and then `does` something else."""
    usual = shutil.which("cc") or shutil.which("gcc")
    script = folder / "compiler"
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {usual} --version\n{does}\n')
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setenv("USUAL", str(usual))
    return script


# --- the compiler ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("does", "blame", "text"),
    [
        ("kill -9 $$", Blame.MACHINE, "killed by SIGKILL"),
        ("kill -15 $$", Blame.MACHINE, "killed by SIGTERM"),
        ('exec $USUAL "$@" -o /dev/full', Blame.MACHINE, "No space left on device"),
        (
            "echo 'gcc: fatal error: Killed signal terminated program cc1'; exit 1",
            Blame.MACHINE,
            "Killed signal",
        ),
        (
            "echo 'cc1: out of memory allocating 65536 bytes'; exit 1",
            Blame.MACHINE,
            "out of memory",
        ),
        ('exec $USUAL "$@" -DKERNEL -Dvoid=oops', Blame.CANDIDATE, "oops"),
        (
            "echo 'internal compiler error: Segmentation fault'; exit 4",
            Blame.CANDIDATE,
            "internal compiler error",
        ),
    ],
)
def test_a_compiler_that_the_machine_stops_is_the_machines_fault(
    does: str, blame: Blame, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler_that(does, tmp_path, monkeypatch)
    failure = failure_of_build()
    assert failure.kind is FailureKind.COMPILE and failure.blame is blame
    assert text in failure.message


def test_a_compiler_that_takes_too_long_may_be_a_stalled_machine() -> None:
    source = Source("unit", "int f(void) { return 0; }")
    with pytest.raises(CompileError, match=r"took more than|no time was left") as caught:
        compile_program(Program((source,), "f", (), ()), timeout_s=0.0001)
    assert caught.value.blame is Blame.MACHINE


def test_a_compiler_that_is_gone_is_the_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = compiler_that('exec $USUAL "$@"', tmp_path, monkeypatch)
    toolchain.find_compiler()
    script.unlink()
    failure = failure_of_build()
    assert failure.blame is Blame.MACHINE and f"{script} is gone" in failure.message
    toolchain.forget_compilers()
    failure = failure_of_build()
    assert failure.blame is Blame.MACHINE and "no C compiler found" in failure.message


@pytest.mark.parametrize("write", ["write_text", "write_bytes"])
def test_a_full_disk_is_the_machines_fault_and_leaves_nothing(
    write: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *_: object, **__: object) -> None:
        raise FULL

    with monkeypatch.context() as patch:
        patch.setattr(Path, write, full)
        failure = failure_of_build()
    assert failure.kind is FailureKind.COMPILE and failure.blame is Blame.MACHINE
    assert failure.message == "the program could not be built: No space left on device"
    left = [p for p in BuildCache(tmp_path / "cache").root.iterdir() if p.name.startswith("tmp-")]
    assert left == []
    assert build(CPU_BACKEND, traced(), candidate()).failure is None


def test_running_out_of_memory_is_the_machines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*_: object) -> None:
        raise MemoryError

    rendering = failure_of_build(replace(CPU_BACKEND, program=greedy))
    monkeypatch.setattr(BuildCache, "temporary", greedy)
    building = failure_of_build()
    assert rendering.kind is FailureKind.UNSUPPORTED and building.kind is FailureKind.COMPILE
    for failure in (rendering, building):
        assert failure.blame is Blame.MACHINE and "out of host memory" in failure.message


def test_a_plan_that_cannot_be_lowered_is_its_own_fault() -> None:
    other = canonical(trace(lambda x, y: xp.exp(x) + y, spec(10), spec(10)))
    made = build(CPU_BACKEND, other, candidate())
    assert made.failure is not None and made.failure.kind is FailureKind.UNSUPPORTED
    assert made.failure.blame is Blame.CANDIDATE


@pytest.mark.parametrize(
    ("code", "blame"),
    [("NVRTC_ERROR_OUT_OF_MEMORY", Blame.MACHINE), ("NVRTC_ERROR_COMPILATION", Blame.CANDIDATE)],
)
def test_nvrtc_without_memory_is_the_machines_fault(
    code: str, blame: Blame, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NVRTCError(Exception):
        pass

    def refuse(*_: object) -> None:
        raise NVRTCError(code)

    fake = SimpleNamespace(
        NVRTCError=NVRTCError,
        createProgram=lambda *_: None,
        destroyProgram=lambda _: None,
        getProgramLog=lambda _: "",
        compileProgram=refuse,
    )
    monkeypatch.setattr(nvrtc, "_nvrtc", lambda: fake)
    with pytest.raises(CompileError, match=code) as caught:
        nvrtc.compile_cubin("")
    assert caught.value.blame is blame


# --- the worker -----------------------------------------------------------------------------

N = 100


def artifact(body: str, workspace: int = 0) -> Artifact:
    types = canonical(trace(xp.exp, spec(N))).input_types
    text = "#include <stdint.h>\n#include <stdio.h>\n#include <unistd.h>\n#include <math.h>\n"
    text += "#include <signal.h>\n#include <stdlib.h>\n"
    text += "int32_t run(void **b, void *ws, void **blas) {\n"
    text += f"float *x = b[0], *z = b[1]; {body}\nreturn 0; }}"
    program = Program((Source("planted", text),), "run", types, types, workspace=workspace)
    return compile_program(program).artifact


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(Workload(canonical(trace(xp.exp, spec(N))))) as started:
        yield started


GOOD = f"for (int i = 0; i < {N}; i++) z[i] = expf(x[i]);"


def good(worker: Worker) -> bool:
    reply = worker.measure(artifact(GOOD), None)
    return reply.failure is None and reply.max_rel_error is not None


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_killed_from_outside_in_the_middle_of_a_job(
    sent: signal.Signals, worker: Worker, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pid")
    tell = f'FILE *f = fopen("{tmp_path}/pid", "w"); fprintf(f, "%d", getpid()); fclose(f);'
    hanging = artifact(f"{tell} for (volatile int k = 0;; k++);")
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(worker.measure, hanging, None)
        os.kill(int((tmp_path / "pid").read_text()), sent)
        failure = reply.result().failure
    assert failure is not None and failure.kind is FailureKind.CRASH
    assert failure.blame is Blame.MACHINE and failure.message == f"killed by {sent.name}"
    assert good(worker)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT"])
def test_a_worker_killed_by_what_the_candidate_did(name: str, worker: Worker) -> None:
    reply = worker.measure(artifact(f"kill(getpid(), {getattr(signal, name).value});"), None)
    assert reply.failure is not None and reply.failure.blame is Blame.CANDIDATE
    assert reply.failure.kind is FailureKind.CRASH and name in reply.failure.message


def test_a_worker_without_memory_goes_on(worker: Worker) -> None:
    reply = worker.measure(artifact(GOOD, workspace=1 << 60), None)
    assert reply.failure is not None and reply.failure.blame is Blame.MACHINE
    assert reply.failure.message == "the measuring process ran out of host memory"
    assert good(worker) and worker.starts == 1


def test_a_library_that_was_evicted_is_the_machines_fault(worker: Worker, tmp_path: Path) -> None:
    made = artifact(GOOD)
    gone = replace(made, path=tmp_path / "gone.so")
    broken = replace(made, path=tmp_path / "broken.so")
    broken.path.write_bytes(b"not a library")
    for one, blame in ((gone, Blame.MACHINE), (broken, Blame.CANDIDATE)):
        reply = worker.measure(one, None)
        assert reply.failure is not None and reply.failure.kind is FailureKind.LAUNCH
        assert reply.failure.blame is blame


def test_a_worker_that_cannot_start(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nonexistent/python")
        with pytest.raises(MeasureError, match="could not start: No such file"):
            worker.start()
    assert good(worker)
    crash = artifact("*(volatile int *)8 = 1;")
    assert worker.measure(crash, None).failure is not None
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nonexistent/python")
        reply = worker.measure(artifact(GOOD), None)
        assert reply.failure is not None and reply.failure.blame is Blame.MACHINE
        assert "could not start: No such file" in reply.failure.message
    assert good(worker)


def test_a_full_disk_when_measuring_begins_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise FULL

    workload = Workload(canonical(trace(xp.exp, spec(N))))
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "TemporaryDirectory", full)
        with pytest.raises(MeasureError, match="could not start: No space left on device"):
            Worker(workload)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(CacheError, match="No space left on device"), measurement_lock("cpu"):
            pass


# --- the database ---------------------------------------------------------------------------


def test_what_the_machine_made_fail_is_tried_again(tmp_path: Path) -> None:
    with Store.open(tmp_path / "tuning.db") as store:
        store.add_workload(WORKLOAD, "graph text", "toy", 3)
        for name in ("timed", "broken", "unlucky"):
            if name != "unlucky":
                store.add_measurement(
                    None, ENV, measurement(name) if name == "timed" else failed(name)
                )
                store.add_kernel(
                    None, ENV, kernel(name) if name == "timed" else failed_kernel(name)
                )
            store.add_measurement(None, ENV, replace(failed(name), failure=MACHINE))
            store.add_kernel(None, ENV, replace(failed_kernel(name), failure=MACHINE))
        known = store.measured(ENV, WORKLOAD)
        assert set(known) == {"timed", "broken"} and known["timed"] == measurement("timed")
        kernels = {
            key[0]: one for key, one in store.kernels(ENV, ["timed", "broken", "unlucky"]).items()
        }
        assert set(kernels) == {"timed", "broken"} and kernels["timed"] == kernel("timed")
        all_ = [m.failure for m in store.measurements(WORKLOAD)]
        assert len(all_) == 5 and all_.count(MACHINE) == 3
        best = store.best(ENV, WORKLOAD)
        assert best is not None and best.measurement == measurement("timed")
