"""How near to the bandwidth of a copy a kernel may come, predicted from its machine code alone.

A multiprocessor holds some teams at once, which run the text of the kernel again and again: blocks
where its threads meet at barriers, else warps. For one round of all of them,

    memory  = bytes they move / bytes a clock
    issue   = instructions of their warps / 4 a clock
    latency = waits for memory in the text * 1000 clocks
    time    = the longest of the three + the others / teams
    share   = memory / time

The longest of the three alone is the bound of an ideal overlap, and where it is the latency, the
share is Little's law: bytes in flight / (bandwidth * latency). Of what is shorter, the first team
waits for before anything overlaps, as at the start of a pipeline of that many teams.

Bandwidth, clock and what is resident are those of the target (`backends/cuda/devices.py`). A
multiprocessor has four schedulers of one instruction a clock each (NVIDIA, "H100 Tensor Core GPU
Architecture"). Published latencies of device memory are 400 to 1000 clocks; the longest is taken,
because memory is busy here. Left out are the rates of functions and of shared memory, and how often
loops run: they are counted once, so no share is told of a kernel that is one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autofuse.backends.cuda.devices import Target

SCHEDULERS, LATENCY = 4, 1000


@dataclass(frozen=True, slots=True)
class Round:
    """One run of a kernel's text by all teams that a multiprocessor holds: how many teams and
    warps, and of one warp the bytes it moves to and from memory, the bytes it loads, those in
    flight when it waits, and its instructions."""

    teams: int
    warps: int
    moved: float
    loaded: int
    in_flight: int
    instructions: int


def predicted_share(target: Target, run: Round) -> float:
    """Of the bandwidth that a copy has, 0 to 1; 0 for a kernel that does not fit or moves
    nothing."""
    if not run.teams or not run.moved:
        return 0.0
    a_clock = target.bandwidth / (target.sms * target.clock_ghz)
    waits = math.ceil(run.loaded / run.in_flight) if run.in_flight else 0
    memory = run.warps * run.moved / a_clock
    times = (memory, run.warps * run.instructions / SCHEDULERS, waits * LATENCY)
    longest = max(times)
    return memory / (longest + (sum(times) - longest) / run.teams)


def moved_bytes(accessed: int, stored: int, arrays: int, results: int) -> float:
    """Bytes that the text moves to and from memory, of `accessed` that it loads and stores: results
    are stored once and every array of the kernel crosses once, so its stores stand for as many
    bytes more as all `arrays` are larger than the `results`. Others are found in a cache."""
    return min(float(accessed), stored * arrays / results)
