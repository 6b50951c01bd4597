"""What other jobs measure of kernels is heard of before it is decided what to measure next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from autofuse import spec, trace, xp
from autofuse.plan.types import FusionGroup, LaunchConfig
from autofuse.records import Blame, KernelMeasurement
from autofuse.simplify import normal_form
from autofuse.tuning.bench import KnownKernel
from autofuse.tuning.job.sharing import Turns
from autofuse.tuning.plans import baseline_plan
from autofuse.tuning.search.profiling import Kernels
from tests.support.slow_bench import SlowBench
from tests.support.tuning_records import ENV, WORKLOAD, failed_kernel, kernel
from tuning_db import Store, Unreachable

OTHER_DEVICE = replace(ENV, must=(("isa", "avx512"),))


def sessions_of(store: Store, count: int, workload: str = WORKLOAD) -> list[int]:
    store.add_workload(workload, "graph text", "toy", 3)
    return [store.start_session(ENV, workload, "exact", 0, 60.0) for _ in range(count)]


def test_news_are_what_others_on_the_workload_added_since(store: Store) -> None:
    own, other = sessions_of(store, 2)
    (elsewhere,) = sessions_of(store, 1, "b" * 32)
    assert store.newest_kernel() == 0
    store.add_kernel(other, ENV, kernel("before"))
    begun = store.newest_kernel()
    killed = failed_kernel("killed")
    assert killed.failure is not None
    killed = replace(killed, failure=replace(killed.failure, blame=Blame.MACHINE))
    added: Sequence[KernelMeasurement] = (kernel("g"), killed, failed_kernel("h"))
    for one in added:
        store.add_kernel(other, ENV, one)
    for session, env in ((own, ENV), (elsewhere, ENV), (None, ENV), (other, OTHER_DEVICE)):
        store.add_kernel(session, env, kernel("not told"))
    last, found = store.kernel_news(ENV, WORKLOAD, own, begun)
    assert [one.group for one in found] == ["g", "h"] and found[0] == kernel("g")
    assert store.kernel_news(ENV, WORKLOAD, own, last) == (last, [])


def test_a_job_is_told_once(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = sessions_of(sqlite_store, 2)
    turns = Turns(sqlite_store)
    sqlite_store.add_kernel(other, ENV, kernel("before"))
    assert turns.news(ENV, WORKLOAD, own) == ()
    sqlite_store.add_kernel(other, ENV, kernel("g"))
    assert turns.news(ENV, WORKLOAD, own) == [kernel("g")]
    assert turns.news(ENV, WORKLOAD, own) == []

    def away(*_: object) -> None:
        raise Unreachable("away")

    monkeypatch.setattr(sqlite_store, "kernel_news", away)
    assert turns.news(ENV, WORKLOAD, own) == ()


class NewsBench(SlowBench):
    """Another job has measured kernels under these launches."""

    told: Mapping[str, LaunchConfig] = {}

    def news(self, groups: Mapping[str, FusionGroup]) -> Iterator[KnownKernel]:
        return (KnownKernel(key, launch, 1.0) for key, launch in self.told.items())


def test_no_launch_is_tried_that_another_job_tried() -> None:
    graph = normal_form(trace(lambda x: xp.softmax(xp.exp(x), axis=-1), spec((64, 512))))
    plan = baseline_plan(graph, "unfused")[0]
    keys = {group: str(k) for k, group in enumerate(plan.groups)}

    def tried(told: Mapping[str, LaunchConfig]) -> Mapping[str, LaunchConfig]:
        bench = NewsBench(graph, 60.0, 0.0)
        kernels = Kernels(bench, keys, dict.fromkeys(keys.values(), 1.0))
        assert kernels.profile(plan, {})
        bench.told = told
        (asked,) = kernels.draw_rounds(plan, 1)
        kernels.tune_launches(plan, asked)
        return dict(zip(kernels.keys(bench.tried[-1].plan), bench.tried[-1].launches, strict=True))

    first = tried({})
    assert all(first[key] != launch for key, launch in tried(first).items())
