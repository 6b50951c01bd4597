"""What a user of `torch.compile(backend="autofuse")` may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from autofuse.errors import AutofuseError
from autofuse.interop.torch.device import AUTO, ISLAND_DEVICES, island_device
from autofuse.plan.arithmetic import check_math
from autofuse.runtime.request import DEFAULT, DEFAULT_MATH, ERROR
from autofuse.serving.bundle import AnyBundle, Bundle, as_bundle

MAX_AUTOTUNE = "max-autotune"
MODES = ("default", MAX_AUTOTUNE)


@dataclass(frozen=True, slots=True)
class TorchOptions:
    """Options by name: `max_autotune`, whether to tune, as the mode of that name says too (PyTorch
    takes a mode or options); `budget_s`, the seconds of that for one compiled graph; `inductor`,
    whether TorchInductor's program may serve where it turns out to be faster; `freeze`, whether
    parameters are constants, prepared once, where no gradients are taken; `max_memory`, the most
    bytes that a forward graph keeps for its backward graph beside its inputs; `db`, the tuning
    database; `device`, the only one whose plans may be islands ("auto": that of the tensors);
    `bundle`, a bundle that is asked before it, a file or what `open_bundle` gave;
    `on_miss`, "error" where PyTorch is to run what neither of them knows; `math`, "relaxed" where
    arithmetic may be changed, as for `autofuse.compile`."""

    max_autotune: bool = False
    budget_s: float = 60.0
    inductor: bool = False
    freeze: bool = False
    max_memory: int | None = None
    db: str | None = None
    device: str = AUTO
    bundle: AnyBundle | None = None
    on_miss: str = DEFAULT
    math: str = DEFAULT_MATH

    @property
    def source(self) -> PlanSource:
        opened = None if self.bundle is None else as_bundle(self.bundle)
        return PlanSource(self.db, opened, self.on_miss, self.math)


class PlanSource(NamedTuple):
    """Where plans of islands come from."""

    db: str | None = None
    bundle: Bundle | None = None
    on_miss: str = DEFAULT
    math: str = DEFAULT_MATH

    @property
    def key(self) -> tuple[str | None, ...]:
        """Equal for those that know the same plans."""
        told = None if self.bundle is None else self.bundle.digest
        return self.db, told, self.on_miss, self.math


def options_of(mode: str | None, options: Mapping[str, Any] | None) -> TorchOptions:
    """The options that were asked for; raises AutofuseError naming the valid ones."""
    if mode is not None and mode not in MODES:
        raise AutofuseError(f"autofuse has no mode '{mode}' (its modes: {', '.join(MODES)})")
    given = dict(options or {})
    known = {field.name for field in fields(TorchOptions)}
    for name in given:
        if name not in known:
            names = ", ".join(sorted(known))
            raise AutofuseError(f"autofuse has no option '{name}' (its options: {names})")
    chosen = TorchOptions(**given)
    if isinstance(chosen.budget_s, bool) or not isinstance(chosen.budget_s, int | float):
        raise AutofuseError(f"budget_s is a number of seconds, not {chosen.budget_s!r}")
    if not chosen.budget_s > 0:
        raise AutofuseError(f"budget_s must be positive, not {chosen.budget_s}")
    limit = chosen.max_memory
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise AutofuseError(f"max_memory is a number of bytes, not {limit!r}")
    for name in ("freeze", "inductor", "max_autotune"):
        value = getattr(chosen, name)
        if not isinstance(value, bool):
            raise AutofuseError(f"{name} is True or False, not {value!r}")
    if chosen.on_miss not in (DEFAULT, ERROR):
        raise AutofuseError(f"on_miss is {DEFAULT} or {ERROR}, not {chosen.on_miss!r}")
    check_math(chosen.math)
    if chosen.bundle is not None:
        chosen = replace(chosen, bundle=as_bundle(chosen.bundle))
    if chosen.device != AUTO and chosen.device not in ISLAND_DEVICES:
        devices = ", ".join((AUTO, *ISLAND_DEVICES))
        raise AutofuseError(f"device is one of {devices}, not {chosen.device!r}")
    chosen = replace(chosen, max_autotune=chosen.max_autotune or mode == MAX_AUTOTUNE)
    if chosen.max_autotune and chosen.device != AUTO:
        island_device(chosen.device).kind.must_be_timed()
    return chosen
