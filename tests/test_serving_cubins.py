"""Kernels of a GPU in a bundle: made without one, served without a compiler, on a fake driver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import autofuse
from autofuse import devices
from autofuse.backends.base import CompilerMissing
from autofuse.backends.cuda.build import CudaArtifact
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.cuda.launch import CudaPlan
from autofuse.backends.registry import emulated_backend
from autofuse.devices import device_named
from autofuse.records import Environment
from autofuse.serving.bundle import open_bundle
from autofuse.serving.cubins import target_of_facts
from autofuse.tuning import plan_named
from autofuse.tuning.evaluate import code_of
from tests.support.bundles import GRAPH, SECRET, bundle_at, remember
from tests.support.cli_tools import toy
from tests.support.fake_cuda import FakeDriver

MUST = (("arch", "sm_90"), ("model", "NVIDIA H100 80GB HBM3"), ("sms", "132"))


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> devices.DeviceKind:
    """Device "cuda" as it is on a host with an H100 and without a compiler."""

    def refuse(*_: object, **__: object) -> Any:
        raise CompilerMissing("there is no compiler here")

    backend = replace(
        emulated_backend(TARGETS["H100"]),
        name="cuda",
        build=refuse,
        environment=lambda: Environment("cuda", MUST),
        ready=lambda: None,
        load=lambda artifact, mode: CudaPlan(artifact, FakeDriver()),
    )
    found = replace(devices.device_named("cuda-emulated"), name="cuda", backend=backend)
    monkeypatch.setattr(devices, "device_named", lambda *_: found)
    return found


def test_cubins_are_made_anywhere_and_served_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: devices.DeviceKind
) -> None:
    plan = plan_named(GRAPH, "unfused", device_named("auto", "sm_90:H100"), simplify=False)
    env, code = Environment("cuda", MUST), code_of(kind.backend, GRAPH, plan)
    path = bundle_at(tmp_path / "b", remember(tmp_path / "t.db", plan, env, code))
    (tmp_path / "key").write_bytes(SECRET)
    (tmp_path / "key").chmod(0o600)
    with open_bundle(path, key=tmp_path / "key") as bundle:
        assert bundle.verify() == 1
        served = autofuse.compile(toy(), device="cuda", bundle=bundle, on_miss="error")
        assert (served.origin, served.candidate, served.notes) == ("bundle (unfused)", plan, ())
        assert isinstance(served.artifact, CudaArtifact) and len(served.artifact.cubins) > 1
        assert all(p.read_bytes().startswith(b"\x7fELF") for _, p in served.artifact.cubins)
    with open_bundle(path) as bundle, pytest.raises(CompilerMissing, match="no compiler"):
        autofuse.compile(toy(), device="cuda", bundle=bundle, on_miss="error")


def test_only_gpus_of_the_table_are_known_without_being_here() -> None:
    must = dict(MUST)
    assert target_of_facts(must) == TARGETS["H100"]
    assert target_of_facts({**must, "model": "NVIDIA H200"}) == TARGETS["H200"]
    assert target_of_facts({**must, "sms": "114"}) is None
