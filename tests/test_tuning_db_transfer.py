"""Tuning databases carried elsewhere: export, import as a union, live copies."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.support.databases import Databases
from tests.support.tuning_records import ENV, WORKLOAD, event, filled, kernel, measurement, result
from tuning_db import DatabaseError, Store
from tuning_db.transfer import export_lines, import_lines

NEWER_DRIVER = replace(ENV, stale=(("driver", "6"), ("power", "90")))


def test_export_and_import_are_inverse(store: Store, databases: Databases) -> None:
    filled(store)
    store.start_session(NEWER_DRIVER, WORKLOAD, "optuna", 1, 5.0)
    exported = list(export_lines(store))
    with Store.open(databases("copy")) as copy:
        added = import_lines(copy, [f"{line}\n" for line in exported])
        assert list(export_lines(copy)) == exported
        assert copy.best(ENV, WORKLOAD) == store.best(ENV, WORKLOAD)
        assert copy.counts() == store.counts()
        assert added["measurement"] == 5 and added["session"] == 2 and added["group"] == 5
        assert added["kernel"] == 2
        assert copy.kernels(ENV, ["g-good", "g-broken"]) == store.kernels(
            ENV, ["g-good", "g-broken"]
        )
        assert set(import_lines(copy, exported).values()) == {0}
        assert list(export_lines(copy)) == exported
    assert all(json.loads(line) for line in exported)


def test_import_is_a_union(databases: Databases) -> None:
    with Store.open(databases("one")) as one, Store.open(databases("two")) as two:
        for store, name in ((one, "left"), (two, "right")):
            filled(store)
            store.add_measurement(None, ENV, measurement(name, 5.0))
        two.set_calibration(ENV, {"copy_gb_s": 1.0})
        added = import_lines(one, export_lines(two))
        assert added["measurement"] == 6 and added["session"] == 1
        assert added["candidate"] == 1 and added["workload"] == 0 and added["environment"] == 0
        assert len(one.measurements(WORKLOAD)) == 12
        assert {"left", "right"} <= set(one.measured(ENV, WORKLOAD))
        assert one.calibration(ENV) == {"copy_gb_s": 123.5}
        import_lines(two, export_lines(one))
        differ = [line for line in export_lines(two) if line not in list(export_lines(one))]
        assert [json.loads(line)["kind"] for line in differ] == ["calibration"]


def test_import_takes_the_rest_of_a_session(databases: Databases) -> None:
    with Store.open(databases("one")) as one, Store.open(databases("two")) as two:
        one.add_workload(WORKLOAD, "graph text", "toy", 3)
        session = one.start_session(ENV, WORKLOAD, "random", 7, 60.0)
        one.add_measurement(session, ENV, measurement("good"))
        one.add_event(session, event("good", 10.0))
        import_lines(two, export_lines(one))
        one.add_event(session, event("good", 10.0, trial=9))
        one.finish_session(session, result("good"))
        assert import_lines(two, export_lines(one))["session"] == 0
        assert list(export_lines(two)) == list(export_lines(one))


def malformed(exported: list[str]) -> list[tuple[int, str]]:
    """Line numbers and what to put there."""
    kinds = [json.loads(line).get("kind") for line in exported]
    last = len(exported)

    def changed(kind: str, **fields: object) -> tuple[int, str]:
        number = kinds.index(kind)
        return number + 1, json.dumps({**json.loads(exported[number]), **fields})

    return [
        (3, "{"),
        (3, "[]"),
        (3, '{"kind": "weather"}'),
        (3, "[" * 100_000),
        (last, '{"kind": "calibration", "environment": "x", "name": "x", "value": NaN}'),
        (1, '{"format": "autofuse-tuning-db", "schema": "9999"}'),
        (1, exported[1]),
        changed("environment", digest="0" * 32),
        changed("workload", nodes="three"),
        changed("workload", nodes=True),
        changed("workload", name="\ud800"),
        changed("candidate", kernels=2**63),
        changed("candidate", workload="unknown"),
        changed("candidate", extra=1),
        changed("session", result=None),
        changed("measurement", session="unknown"),
        changed("measurement", environment="unknown"),
        changed("measurement", failure={"kind": "boredom", "message": ""}),
        changed("measurement", timing=None),
        changed("measurement", stage="guess"),
        changed("kernel", session="unknown"),
        changed("kernel", environment="unknown"),
        changed("kernel", kernel={}),
        changed("kernel", kernel=asdict(replace(kernel("g"), cache="warm"))),
        changed("kernel", kernel=asdict(replace(kernel("g"), facts=(("x", math.inf),)))),
    ]


def test_a_malformed_line_imports_nothing(store: Store, databases: Databases) -> None:
    filled(store)
    exported = list(export_lines(store))
    with Store.open(databases("copy")) as copy:
        for number, line in malformed(exported):
            texts = [*exported[: number - 1], line, *exported[number:]]
            with pytest.raises(DatabaseError, match=f"^line {number}: ") as caught:
                import_lines(copy, texts)
            assert "\n" not in str(caught.value)
            assert not any(copy.counts().values())
        with pytest.raises(DatabaseError, match="line 1: the export is empty"):
            import_lines(copy, [])


def test_sessions_of_a_strategy_that_is_gone_are_read(tmp_path: Path) -> None:
    """Those of the model strategy, with the features that it stored of kernels."""
    with Store.open(tmp_path / "one.db") as one, Store.open(tmp_path / "two.db") as two:
        one.add_workload(WORKLOAD, "graph text", "toy", 3)
        session = one.start_session(ENV, WORKLOAD, "model", 7, 60.0)
        one.add_measurement(session, ENV, measurement("good"))
        features = (("bound", 3.0), ("read", 12.5), ("registers", 40.0))
        one.add_kernel(session, ENV, replace(kernel("g"), facts=features, bound_us=5.0))
        import_lines(two, export_lines(one))
        for store in (one, two):
            (found,) = store.sessions(WORKLOAD)
            assert found.strategy == "model"
            (known,) = store.kernels(ENV, {"g"}).values()
            assert known.facts == features
