"""Bundles of a remembered plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import autofuse
from autofuse.backends.registry import CPU_BACKEND
from autofuse.graph.canonical import digest, text
from autofuse.plan.types import Candidate
from autofuse.records import Cost, Environment, Measurement
from autofuse.serving.keys import Secret
from autofuse.serving.make import Contents, make_bundle
from autofuse.simplify import normal_form
from autofuse.tuning.evaluate import code_of
from tests.support.cli_tools import toy
from tests.support.tuning_records import result, timing
from tuning_db import Store

SECRET = b"s" * 32
GRAPH = normal_form(toy())


def remember(path: Path, plan: Candidate, env: Environment, code: str | None = None) -> str:
    """A database that has `plan` as the best on a device."""
    own = code_of(CPU_BACKEND, GRAPH, plan) if code is None else code
    one = Measurement(
        digest(GRAPH), plan.to_json(), plan.digest, "unfused", 3, (), timing(), None, 1e-7,
        Cost(), "final", own,
    )  # fmt: skip
    with Store.open(path) as store:
        store.add_workload(digest(GRAPH), text(GRAPH), "toy", len(GRAPH.nodes))
        session = store.start_session(env, digest(GRAPH), "random", 0, 1.0)
        store.add_measurement(session, env, one)
        store.finish_session(session, replace(result(plan.digest), verdicts=(), failed=()))
    return str(path)


def bundle_at(path: Path, db: str, **options: bool) -> Path:
    contents = Contents(autofuse.__version__, "2026-01-01T00:00:00+00:00")
    with Store.open(db) as store:
        make_bundle(contents, store, {"toy": toy()}, **options)
    path.write_bytes(contents.finished(Secret(SECRET)))
    return path
