"""Measuring under bubblewrap: what a candidate does beside computing goes nowhere."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from autofuse.backends.base import Artifact, Program, Source
from autofuse.backends.cache import BuildCache
from autofuse.backends.ccompiler import compile_program
from autofuse.measure.timing.sampling import MeasureError, Sampling
from autofuse.measure.worker import sandbox
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload
from autofuse.records import FailureKind
from tests.support.worker_bodies import BODIES, N, graph

QUICK = Sampling(warmup_s=0.0, minimum=4, maximum=8, wall_s=0.2)
HEAD = """
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
int32_t run(void **b, void *ws, void **blas) {
  float *x = b[0], *y = b[1], *z = b[2];
"""
ADD = f"for (int i = 0; i < {N}; i++) z[i] = x[i] + y[i];"


def built(folder: Path, body: str) -> Artifact:
    types = graph().input_types
    text = f"{HEAD}{body}\nreturn 0; }}"
    program = Program((Source("u", text, ("-O1",)),), "run", types, types[:1])
    return compile_program(program, BuildCache(folder)).artifact


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Worker:
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path / "user"))
    monkeypatch.setenv(sandbox.SANDBOX_VARIABLE, "bwrap")
    return Worker(Workload(graph(), seed=3), limit_s=30)


def test_a_sandboxed_candidate_is_timed_and_its_crash_is_told(
    worker: Worker, tmp_path: Path
) -> None:
    with worker:
        reply = worker.measure(built(tmp_path / "build", ADD), QUICK)
        assert reply.failure is None and reply.timing is not None
        crashed = worker.measure(built(tmp_path / "build", BODIES["segfaults"]), QUICK)
        assert crashed.failure is not None and crashed.failure.kind is FailureKind.CRASH
        assert "SIGSEGV" in crashed.failure.message


def test_nothing_outside_is_written_and_nobody_is_called(worker: Worker, tmp_path: Path) -> None:
    file = tmp_path / "written"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        body = f"""{ADD}
          int f = open("{file}", O_WRONLY | O_CREAT, 0600);
          int s = socket(AF_INET, SOCK_STREAM, 0);
          struct sockaddr_in to = {{AF_INET, htons({server.getsockname()[1]}), {{0}}, {{0}}}};
          inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
          int c = connect(s, (struct sockaddr *)&to, sizeof to);
          if (f < 0 && c < 0) return 7;"""
        artifact = built(tmp_path / "build", body)
        with worker:
            reply = worker.measure(artifact, QUICK)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert reply.failure is not None and "code 7" in reply.failure.message
    assert not file.exists()


def test_what_cannot_be_sandboxed_is_not_run(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with worker, pytest.raises(MeasureError, match="apt-get install bubblewrap"):
        worker.start()
    monkeypatch.setenv(sandbox.SANDBOX_VARIABLE, "maybe")
    with worker, pytest.raises(MeasureError, match="'maybe', which is not 'bwrap'"):
        worker.start()
