"""`jax_patch`: what other people's code gives to `jax.jit` is served by plans, where plans can."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from autofuse.errors import AutofuseError
from autofuse.frontends.jax.types import jax_module, plain_jit
from autofuse.graph.types import Graph
from autofuse.interop.jax.flat import FlatCall
from autofuse.interop.jax.jit import JaxFunction, Serving
from autofuse.plan.arithmetic import check_math
from autofuse.runtime.request import DEFAULT_MATH

# What a plan can keep to of the options of `jax.jit`. Of the others, which say where arrays lie or
# what XLA does, only JAX knows the meaning.
KEPT_OPTIONS = frozenset(
    {"static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "keep_unused",
     "inline"}
)  # fmt: skip
PLAN, JAX = "plan", "jax.jit"


@dataclass(frozen=True, slots=True)
class PatchedCall:
    """Who serves one function for one kind of arguments."""

    name: str
    """Of the function."""
    by: str
    """PLAN or JAX."""
    why: str
    """The plan's origin, or why JAX serves: one sentence."""


class JaxPatch:
    """While it is entered, `jax.jit` is ours. `calls` tells who serves what, in order."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self._of_jax: Callable[..., Any] | None = None
        self._lock = threading.Lock()
        self._calls: list[PatchedCall] = []

    @property
    def calls(self) -> tuple[PatchedCall, ...]:
        with self._lock:
            return tuple(self._calls)

    def note(self, call: PatchedCall) -> None:
        """Keep what became of a call."""
        with self._lock:
            self._calls.append(call)

    def __enter__(self) -> JaxPatch:
        """Raises AutofuseError where a patch is there already."""
        jax = jax_module()
        if plain_jit() is not jax.jit:
            raise AutofuseError("jax.jit is patched already: leave that patch first")
        self._of_jax, patched = jax.jit, partial(_jit, self)
        patched.of_jax = jax.jit  # type: ignore[attr-defined]  # an attribute of our own
        jax.jit = patched
        return self

    def __exit__(self, *_: object) -> None:
        jax_module().jit = self._of_jax

    def __str__(self) -> str:
        """A line for each call."""
        return "\n".join(f"{one.name}: {one.by} ({one.why})" for one in self.calls)


@dataclass(slots=True)
class PatchedFunction:
    """What `jax.jit` gives while it is patched: served by a plan when it is called, and otherwise
    what JAX makes of it (`lower`, `trace`, `eval_shape` and the like)."""

    served: _ServedHere
    of_jax: Any
    __wrapped__: Callable[..., Any] = field(init=False)

    def __post_init__(self) -> None:
        self.__wrapped__ = self.of_jax.__wrapped__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.served(*args, **kwargs)

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self if owner is None else partial(self, owner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of_jax, name)


class _ServedHere(JaxFunction):
    """As `jax_jit` makes it; it leaves to JAX what cannot be served, and tells the patch."""

    def __init__(self, fn: Callable[..., Any], patch: JaxPatch, **jit_options: Any) -> None:
        super().__init__(fn, patch.serving, **jit_options)
        self._patch = patch

    def _graph(self, call: FlatCall) -> Graph:
        graph = super()._graph(call)
        # Planned at once: what has no plan is left to JAX while that can still be done.
        self._patch.note(PatchedCall(self._name, PLAN, self._plan(graph).origin))
        return graph

    def _leave(self, error: AutofuseError) -> None:
        self._patch.note(PatchedCall(self._name, JAX, str(error)))


def _jit(patch: JaxPatch, fun: Any = None, /, **options: Any) -> Any:
    """In the place of `jax.jit`, which may also be given its options alone."""
    if fun is None:
        return partial(_jit, patch, **options)
    jitted = plain_jit()(fun, **options)
    asked = {name for name, value in options.items() if _says_something(value)} - KEPT_OPTIONS
    if asked:
        name, why = getattr(fun, "__name__", type(fun).__name__), f"options {sorted(asked)}"
        patch.note(PatchedCall(name, JAX, why))
        return jitted
    kept = {name: value for name, value in options.items() if name in KEPT_OPTIONS}
    return PatchedFunction(_ServedHere(fun, patch, **kept), jitted)


def _says_something(value: Any) -> bool:
    """Whether an option asks for anything: flax gives shardings that are tuples of None."""
    return bool(jax_module().tree_util.tree_leaves(value))


def jax_patch(
    *, tune: float | None = None, db: str | None = None, math: str = DEFAULT_MATH
) -> JaxPatch:
    """A context in which `jax.jit` serves functions by plans, in libraries too that the caller does
    not own:

        with autofuse.jax_patch(tune=20) as patch:
            import their_library
            their_library.run()
        print(patch)

    Functions that are given to `jax.jit` inside of it are served as `jax_jit` would serve them, by
    the best plan known, tuned for `tune` seconds at the first call where that is asked. They stay
    so when it ends. What cannot become a graph, or asks `jax.jit` for a device, a sharding or
    options of XLA, is left to JAX; `patch.calls` says who serves what, and why. What was given to
    `jax.jit` before is not changed: enter the patch before a library is imported. `db` and `math`
    are as for `jax_jit`. Raises AutofuseError where jax is missing, for an unknown `math`, and
    where a patch is there already."""
    check_math(math)
    jax_module()
    return JaxPatch(Serving(tune, db, fallback=True, math=math))
