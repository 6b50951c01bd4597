"""What `scripts/bench_torch` measures alone, by the name of its option."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.torch_bench import call_costs
from benchmarks.torch_capture import capture_costs
from benchmarks.torch_first import FIRST, first_call


@dataclass(frozen=True, slots=True)
class BenchPart:
    """What `--help` says of a part, and its lines on a device, each as soon as it is known."""

    doc: str
    lines: Callable[[str], Iterator[str]]


def _calls(device: str) -> Iterator[str]:
    for count, us in call_costs(device=device).items():
        yield (
            f"{count} tensors: bound {us['bound']:.2f} us, call {us['call']:.2f} us at the least; "
            f"the call's own {us['beside']:.2f} us in the median round"
        )


def _capture(_device: str) -> Iterator[str]:
    yield from map(str, capture_costs())


def _first(_device: str) -> Iterator[str]:
    yield from (str(first_call(name)) for name in FIRST)


PARTS = {
    "calls": BenchPart("only what a call costs", _calls),
    "capture": BenchPart("only what 3,000 nodes cost", _capture),
    "first": BenchPart("only what first calls cost", _first),
}
