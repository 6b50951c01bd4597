"""Measuring on the processor that this process runs on.

Samples are taken on arrays as users have them; a check runs on arrays of its own between forbidden
pages (`guards.py`), with the program loaded once more so that its workspace is guarded too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autofuse.backends.base import Artifact, LaunchError
from autofuse.backends.library import LoadedLibrary, load
from autofuse.measure.check.compare import poison
from autofuse.measure.check.guards import Guards
from autofuse.measure.device import Arrays, CheckedRun, GuardedOutput
from autofuse.measure.timing.evict import Evictor
from autofuse.measure.timing.sampling import (
    ProfileSamples,
    Sampling,
    Stopwatch,
    collect_profile,
    warm_up,
)
from autofuse.ops.types import TensorType


class HostDevice:
    """C libraries on arrays of this process; see `Device`."""

    broken = False

    def __init__(self) -> None:
        self.evictor = Evictor()
        self.inputs: Arrays = ()
        self.outputs: tuple[GuardedOutput, ...] = ()
        self.arrays: Arrays = ()

    def open(self, inputs: Arrays, outputs: Sequence[TensorType]) -> None:
        self.inputs = inputs
        self.outputs = tuple(GuardedOutput(t) for t in outputs)
        self.arrays = tuple(o.array for o in self.outputs)

    def load(self, artifact: Artifact) -> LoadedLibrary:
        loaded = load(artifact)
        loaded.prepare(artifact.binding.chosen(self.inputs))
        return loaded

    def run(self, loaded: LoadedLibrary, *, elsewhere: bool = False) -> CheckedRun:
        artifact, guards = loaded.artifact, Guards(at_start=elsewhere)
        binding = artifact.binding
        with load(artifact, guards.memory, loaded) as checked:
            checked.prepare(binding.chosen(self.inputs))
            places = binding.free(range(len(self.inputs)))
            given = [guards.copy(self.inputs[k], artifact.inputs[k], f"input {k}") for k in places]
            types = enumerate(artifact.outputs)
            outputs = tuple(guards.block(t.nbytes, f"output {k}").array(t) for k, t in types)
            for output in outputs:
                poison(output)
            guards.arm()
            code = checked.bind(given, outputs)()
            guards.disarm()
        if code != 0:
            raise LaunchError(f"the program failed with code {code}")
        seen = list(self.inputs)
        for k, array in zip(places, given, strict=True):
            seen[k] = array
        return CheckedRun(tuple(seen), outputs, not guards.spoiled())

    def left(self) -> CheckedRun:
        intact = all(output.intact() for output in self.outputs)
        return CheckedRun(self.inputs, self.arrays, intact)

    def watch(self, loaded: LoadedLibrary, sampling: Sampling) -> Stopwatch:
        self._arm()
        call = loaded.bind(self._given(loaded), self.arrays)
        return warm_up(call, self._prepare(loaded), sampling)

    def profile(self, loaded: LoadedLibrary, groups: int, sampling: Sampling) -> ProfileSamples:
        self._arm()
        call = loaded.bind_profile(self._given(loaded), self.arrays, groups)
        return collect_profile(call, self._prepare(loaded), sampling)

    def _arm(self) -> None:
        for output in self.outputs:
            output.arm()

    def _given(self, loaded: LoadedLibrary) -> Arrays:
        """What each call is given: inputs that are no constants."""
        return loaded.artifact.binding.free(self.inputs)

    def _prepare(self, loaded: LoadedLibrary) -> Callable[[], None]:
        touched = (*self._given(loaded), *loaded.kept, *self.arrays, loaded.workspace)
        return self.evictor.for_arrays(touched)
