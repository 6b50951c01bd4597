"""The device's peaks: measured once for each machine, before any job's budget begins, then kept.

What is kept belongs to environments of equal must pairs. Jobs that share a database calibrate one
at a time: who comes second waits and reads what the first one has measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from autofuse.cost.bounds import Calibration
from autofuse.devices import DeviceKind
from autofuse.measure.worker.lock import measurement_lock
from autofuse.tuning.job.sharing import Turns
from tuning_db import Store
from tuning_db.rows import fingerprint

CALIBRATING = "calibrating this machine, once: 5 s"


@dataclass(frozen=True, slots=True)
class Peaks:
    """What a device can do at best. `before`: what was known when the job began (None: nothing);
    `seconds`: what finding it out, or waiting for who did, took then."""

    found: Calibration | None
    before: Calibration | None
    seconds: float = 0.0

    @property
    def notes(self) -> tuple[str, ...]:
        """What should be said."""
        if self.seconds <= 0 or self.found is None:
            return ()
        return (f"this machine was calibrated first, once: {self.seconds:.1f} s beside the budget",)


def kept_peaks(kind: DeviceKind, store: Store) -> Calibration | None:
    """What was measured before, by this edition."""
    return Calibration.kept(store.calibration(kind.backend.environment()))


def calibrated(
    kind: DeviceKind, store: Store, say: Callable[[str], None], stop: Callable[[], bool]
) -> Peaks:
    """The peaks that are kept; where there are none they are measured now, or waited for until the
    user wants to `stop`. `say` is told before that begins.

    Raises what `DeviceKind.calibrate` raises."""
    known = kept_peaks(kind, store)
    if known is not None and not kind.lacks(known):
        return Peaks(known, known)
    say(CALIBRATING)
    begun = time.perf_counter()
    found = _calibrated_by_one(kind, store, stop)
    return Peaks(found, known, time.perf_counter() - begun)


def _calibrated_by_one(
    kind: DeviceKind, store: Store, stop: Callable[[], bool]
) -> Calibration | None:
    environment = kind.backend.environment()

    def whole() -> Calibration | None:
        kept = kept_peaks(kind, store)
        return None if kept is None or kind.lacks(kept) else kept

    with Turns(store) as turns:
        known = turns.turn(f"calibration:{fingerprint(environment)}", whole, stop)
        if known is not None or turns.is_elsewhere:
            return known
        before = kept_peaks(kind, store)
        with measurement_lock(kind.timer.unit):
            measured = kind.calibrate() if before is None else kind.completed(before)
        kept = {} if before is None else before.to_mapping()
        store.set_calibration(environment, dict(measured.to_mapping().items() - kept.items()))
        return measured
