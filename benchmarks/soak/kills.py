"""kill -9 of a tuning process at random moments, again and again on one database."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from random import Random

from benchmarks.soak.actors import Crowd
from benchmarks.soak.ledger import damage, lost, measured_twice
from benchmarks.soak.types import Round

SOURCES = (
    "zoo:softmax:small",
    "zoo:rms_norm_residual:small",
    "zoo:layer_norm_gelu:small",
    "zoo:cartpole_norng:small",
)
# Seconds after its start at which a process is killed: from the first statement on.
LATEST_S = 2.0
BUDGET_S = 3.0
# The end of a process that nobody kills, and of what killed ones left behind.
PATIENCE_S = 120.0


def play(folder: Path, seed: int, kills: int = 20) -> Round:
    """Kill and start again; after every kill nothing acknowledged is lost and the database is
    whole. The last one is left alone: it ends well, nothing was measured twice, and nothing that
    a killed one started lives on."""
    draw = Random(seed)
    db, log = folder / "tuning.db", folder / "acknowledged.jsonl"
    job = {
        "do": "tune", "db": str(db), "log": str(log), "source": draw.choice(SOURCES),
        "budget_s": BUDGET_S, "seed": seed,
    }  # fmt: skip
    done, problems = 0, []
    with Crowd(folder) as crowd:
        for _ in range(kills):
            (pid,) = crowd.start([job])
            codes = crowd.ended(draw.uniform(0.0, LATEST_S))
            if codes is None:
                os.kill(pid, signal.SIGKILL)
                codes = crowd.ended(PATIENCE_S)
                done += codes == [-signal.SIGKILL]
            if codes not in ([0], [-signal.SIGKILL]):
                problems.append(f"a tune ended with {codes} before it was killed:\n{crowd.words()}")
            problems += [*damage(db), *lost(db, log)]
        crowd.start([job])
        if (codes := crowd.ended(PATIENCE_S)) != [0]:
            problems.append(f"the tune that nobody killed ended with {codes}:\n{crowd.words()}")
        problems += [*damage(db), *lost(db, log), *measured_twice(db)]
        if not crowd.is_alone(PATIENCE_S):
            problems.append("something that a killed tune had started lives on")
    return Round(done, tuple(problems))
