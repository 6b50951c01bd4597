"""A plan that is loaded, as callers see it; it needs no graph."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from autofuse.backends.base import ArrayType, Runnable
from autofuse.errors import AutofuseError
from autofuse.records import CHECKED, UNVERIFIED, Trust

# Names of constants that a sentence has room for.
NAMED = 5


class Signature(NamedTuple):
    """The inputs of a plan: their keys, types, and the positions of those that are constants; and
    the types of its outputs."""

    names: tuple[str, ...]
    types: tuple[ArrayType, ...]
    fixed: tuple[int, ...]
    outputs: tuple[ArrayType, ...]

    @property
    def free(self) -> tuple[str, ...]:
        """Keys of the inputs that are given to each call."""
        fixed = frozenset(self.fixed)
        return tuple(n for k, n in enumerate(self.names) if k not in fixed)

    def _no_constant(self, name: str, wanted: list[str]) -> str:
        known = f"its constants: {_some(wanted)}" if wanted else "it declares none"
        what = "given to each call" if name in self.names else "no input of the graph"
        return f"'{name}' is no constant, it is {what} ({known})"

    def chosen(self, given: Mapping[str, Any] | None) -> tuple[Any, ...]:
        """The arrays for the constants, in the order of the inputs.

        Raises AutofuseError naming a constant that is missing, unknown, or of another type."""
        found = dict(given or {})
        wanted = {self.names[p]: self.types[p] for p in self.fixed}
        missing = [name for name in wanted if name not in found]
        if missing:
            raise AutofuseError(
                f"the graph declares constants that were not given: {_some(missing)} "
                "(give them as constants={name: array})"
            )
        for name in found:
            if name not in wanted:
                raise AutofuseError(self._no_constant(name, list(wanted)))
        for name, type_ in wanted.items():
            _check_constant(name, found[name], type_)
        return tuple(found[name] for name in wanted)


def _some(names: Sequence[str]) -> str:
    """The first names, and how many others there are: a network has hundreds."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _check_constant(name: str, array: Any, type_: ArrayType) -> None:
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise AutofuseError(f"constant '{name}' is a {type(array).__name__}, not an array")
    kind = str(array.dtype).removeprefix("torch.")
    if tuple(array.shape) != type_.shape or kind != str(type_.dtype.numpy):
        text = f"{kind}[{','.join(map(str, array.shape))}]"
        raise AutofuseError(f"constant '{name}' must be {type_}, not {text}")


class LoadedPlan:
    """A plan that runs: call it with arrays in the order of its inputs, without the constants.

    On the CPU these are NumPy arrays, or others in host memory that share it by DLPack (PyTorch's,
    JAX's), and results are NumPy arrays, which all of them take by DLPack. On CUDA they may be
    CuPy's, PyTorch's or JAX's, which are used in place on the current stream (the results are then
    CuPy arrays, which all of them take by DLPack), or NumPy's. `origin` says where the plan came
    from, `device` where it runs. Results are tuples of arrays whose memory is used again once the
    caller has let go of them. `notes` are sentences about better plans that are not served here,
    and why. `trust` says whether the program was checked against the reference, `check_s` how
    many seconds that took now.

    Constants are copied and prepared when it is made, which took `prepare_s` seconds and keeps
    `prepared_bytes`; what becomes of the caller's arrays afterwards changes nothing."""

    def __init__(
        self, loaded: Runnable, signature: Signature, device: str, origin: str,
        notes: tuple[str, ...] = (), constants: Mapping[str, Any] | None = None,
        trust: Trust | None = None,
    ) -> None:  # fmt: skip
        fixed = signature.chosen(constants)
        self.trust = trust or Trust(UNVERIFIED, "nobody has said that it was")
        self.signature, self.device, self.origin, self.notes = signature, device, origin, notes
        self._loaded, self._names = loaded, signature.free
        begun = time.perf_counter()
        if fixed:
            loaded.prepare(fixed)
        self.prepare_s = time.perf_counter() - begun if fixed else 0.0
        self.prepared_bytes = loaded.prepared_bytes

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The plan's outputs; raises AutofuseError for arrays that do not fit."""
        names = self._names
        if len(inputs) != len(names):
            bound = " besides its constants" if self.signature.fixed else ""
            raise AutofuseError(f"the plan takes {len(names)} arrays ({', '.join(names)}){bound}")
        return self._loaded.run(inputs)

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Like calling, but writes into given arrays."""
        self._loaded.run(inputs, outputs)

    @property
    def checked(self) -> bool:
        """Whether this very program was found to give what the reference gives."""
        return self.trust.state == CHECKED

    @property
    def check_s(self) -> float:
        """Seconds that the check took now; none where its verdict was known."""
        return self.trust.check_s

    @property
    def loaded(self) -> Runnable:
        """What runs it, for callers with arrays of another kind."""
        return self._loaded

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.origin} on {self.device}>"
