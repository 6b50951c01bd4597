"""Measuring on the processor that this process runs on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autofuse.backends.base import Artifact, LaunchError
from autofuse.backends.library import LoadedLibrary, load
from autofuse.measure.device import Arrays, GuardedOutput
from autofuse.measure.evict import Evictor
from autofuse.measure.timing import Sampling, Stopwatch, collect_profile, warm_up
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

    def run(self, loaded: LoadedLibrary) -> tuple[Arrays, Arrays, bool]:
        for output in self.outputs:
            output.arm()
        code = loaded.bind(self._given(loaded), self.arrays)()
        if code != 0:
            raise LaunchError(f"the program failed with code {code}")
        return self.inputs, self.arrays, all(output.intact() for output in self.outputs)

    def watch(self, loaded: LoadedLibrary, sampling: Sampling) -> Stopwatch:
        call = loaded.bind(self._given(loaded), self.arrays)
        return warm_up(call, self._prepare(loaded), sampling)

    def profile(
        self, loaded: LoadedLibrary, groups: int, sampling: Sampling
    ) -> tuple[np.ndarray, str]:
        call = loaded.bind_profile(self._given(loaded), self.arrays, groups)
        return collect_profile(call, self._prepare(loaded), sampling), "call"

    def _given(self, loaded: LoadedLibrary) -> Arrays:
        """What each call is given: inputs that are no constants."""
        return loaded.artifact.binding.free(self.inputs)

    def _prepare(self, loaded: LoadedLibrary) -> Callable[[], None]:
        touched = (*self._given(loaded), *loaded.kept, *self.arrays, loaded.workspace)
        return self.evictor.for_arrays(touched)
