"""`jax_jit`: a JAX function served by the best plan known, as a part of JAX programs."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, update_wrapper, wraps
from types import MethodType
from typing import Any, overload

from autofuse.devices import device_named
from autofuse.errors import AutofuseError
from autofuse.frontends.jax.types import is_as_graph, plain_jit
from autofuse.graph.canonical import canonical, digest
from autofuse.graph.types import Graph
from autofuse.interop.jax.flat import FlatCall, flat_call, type_of
from autofuse.interop.jax.served import Served
from autofuse.plan.arithmetic import check_math
from autofuse.runtime.compiled import CompiledPlan
from autofuse.runtime.request import DEFAULT, DEFAULT_MATH, TUNE, check_on_miss
from autofuse.serving.bundle import AnyBundle, Bundle, as_bundle
from autofuse.serving.compiling import compile
from autofuse.simplify import normal_form
from autofuse.tuning import best_plan, tune

_HERE = "cpu"
Statics = int | str | Sequence[int] | Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Serving:
    """Where plans come from, and what is done with what cannot become a graph."""

    tune_s: float | None
    db: str | None
    fallback: bool
    bundle: Bundle | None = None
    on_miss: str = DEFAULT
    math: str = DEFAULT_MATH

    def plan(self, graph: Graph, name: str) -> CompiledPlan:
        """The best plan known for a graph, tuned for first where none is and that was asked."""
        if self.tune_s is not None and not self._is_known(graph):
            tune(
                graph, name=name, device=_HERE, db=self.db, budget_s=self.tune_s, math=self.math
            )  # fmt: skip
        return compile(
            graph, device=_HERE, db=self.db, bundle=self.bundle, on_miss=self.on_miss,
            math=self.math,
        )  # fmt: skip

    def _is_known(self, graph: Graph) -> bool:
        if self.bundle is not None and self.bundle.has(digest(normal_form(graph))):
            return True
        return best_plan(graph, device=_HERE, db=self.db, math=self.math) is not None


class JaxFunction:
    """What `jax_jit` makes of a function: call it as you would call `jax.jit(fn)`."""

    def __init__(self, fn: Callable[..., Any], serving: Serving, **jit_options: Any) -> None:
        jit = plain_jit()
        update_wrapper(self, fn)
        self._fn, self._serving = fn, serving
        self._jit = partial(jit, **jit_options)
        self._name = getattr(fn, "__name__", type(fn).__name__)
        self._plans: dict[str, CompiledPlan] = {}
        self._planning = threading.Lock()
        # JAX traces it once for all arguments of one kind, and calls what became of it after that.
        self._jitted = self._jit(self._on_call(self._program))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's results, as jax arrays; raises AutofuseError where no plan can serve."""
        function = self._fn if is_as_graph() else self._jitted
        return function(*args, **kwargs)

    def __get__(self, owner: Any, _: type | None = None) -> Any:
        return self if owner is None else MethodType(self, owner)

    def plan_of(self, *args: Any, **kwargs: Any) -> CompiledPlan:
        """The plan that serves such arguments (arrays, or `jax.ShapeDtypeStruct`s); it is made, and
        tuned for where that was asked, if this is the first time. Raises AutofuseError."""
        found: list[CompiledPlan] = []

        def look(call: FlatCall) -> None:
            found.append(self._plan(call.graph()))

        self._jit(self._on_call(look)).eval_shape(*args, **kwargs)
        return found[0]

    def origin(self, *args: Any, **kwargs: Any) -> str:
        """Where the plan for such arguments came from: "best ..." or the name of a rule."""
        return self.plan_of(*args, **kwargs).origin

    def _on_call(self, then: Callable[[FlatCall], Any]) -> Callable[..., Any]:
        """A function with the parameters of the original that hands on its calls."""

        @wraps(self._fn)
        def traced(*args: Any, **kwargs: Any) -> Any:
            return then(flat_call(self._fn, args, kwargs))

        return traced

    def _program(self, call: FlatCall) -> Any:
        """What stands in a JAX program for a call."""
        try:
            graph = self._graph(call)
        except AutofuseError as error:
            self._leave(error)
            return call.whole(call.flat(*call.arrays))
        types = tuple(map(type_of, call.arrays))
        served = Served(call.flat, types, call.results, self._named_plan, self._name, graph)
        return call.whole(served(*call.arrays))

    def _graph(self, call: FlatCall) -> Graph:
        """The graph that is to be served; raises AutofuseError where none can be."""
        return call.graph()

    def _leave(self, error: AutofuseError) -> None:
        """JAX runs what no plan can serve, if that was asked for; else raises the error."""
        if not self._serving.fallback:
            raise error
        text = f"'{self._name}' is left to jax.jit, without autofuse: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=1)

    def _plan(self, graph: Graph) -> CompiledPlan:
        return self._named_plan(graph, self._name)

    def _named_plan(self, graph: Graph, name: str) -> CompiledPlan:
        graph = canonical(graph)
        key = digest(graph)
        with self._planning:
            if key not in self._plans:
                self._plans[key] = self._serving.plan(graph, name)
            return self._plans[key]


@overload
def jax_jit(fn: Callable[..., Any]) -> JaxFunction: ...


@overload
def jax_jit(
    fn: None = None,
    *,
    tune: float | None = None,
    device: str = "auto",
    db: str | None = None,
    bundle: AnyBundle | None = None,
    on_miss: str = DEFAULT,
    math: str = DEFAULT_MATH,
    fallback: bool = False,
    static_argnums: Statics = None,
    static_argnames: Statics = None,
) -> Callable[[Callable[..., Any]], JaxFunction]: ...


def jax_jit(
    fn: Callable[..., Any] | None = None,
    *,
    tune: float | None = None,
    device: str = "auto",
    db: str | None = None,
    bundle: AnyBundle | None = None,
    on_miss: str = DEFAULT,
    math: str = DEFAULT_MATH,
    fallback: bool = False,
    static_argnums: Statics = None,
    static_argnames: Statics = None,
) -> JaxFunction | Callable[[Callable[..., Any]], JaxFunction]:
    """`fn` as `jax.jit` would take it, computed by autofuse: `jax_jit(fn)`, `@jax_jit` or
    `@jax_jit(tune=20)`.

    For each tuple of shapes and dtypes (and pytrees, and static arguments) the function is traced
    once, and served by the best plan known from then on. Where none is, `tune` seconds are spent on
    finding one at the first call; without `tune` a plan by rules serves. Plans of `bundle` (a file,
    or what `open_bundle` gave) go before those of the database `db`; with `on_miss="error"` a
    function that neither of them knows is an AutofuseError; `math` is as for `autofuse.compile`.
    The result is called on its own or inside `jax.jit`, `jax.grad`, `jax.lax.scan` and the like;
    inside another such function it is what it was made of. Derivatives of both modes and any
    order, and batches by `jax.vmap`, are computed by plans of their own; what of them cannot become
    a graph JAX computes, and a RuntimeWarning says so. `.plan_of(*args)` and `.origin(*args)` say
    what serves.

    What cannot become a graph is an AutofuseError that names the primitive and its line; with
    `fallback` jax.jit runs it, and a RuntimeWarning says so. Raises AutofuseError where jax is
    missing, and for a device other than "cpu", which is where JAX must run."""
    check_math(math)
    if device != "auto" and device_named(device).name != _HERE:
        raise AutofuseError(
            f"jax_jit runs plans on device '{_HERE}', not on '{device}': "
            f"autofuse.compile(autofuse.from_jax(fn, *args), device='{device}') takes jax arrays"
        )
    check_on_miss(on_miss)
    if on_miss == TUNE:
        raise AutofuseError("jax_jit tunes for so many seconds: jax_jit(tune=20)")
    opened = None if bundle is None else as_bundle(bundle)
    serving = Serving(tune, db, fallback, opened, on_miss, math)

    def decorate(fn: Callable[..., Any]) -> JaxFunction:
        if not callable(fn):
            raise AutofuseError(f"jax_jit takes a function, not a {type(fn).__name__}")
        statics = {"static_argnums": static_argnums, "static_argnames": static_argnames}
        return JaxFunction(fn, serving, **statics)

    return decorate if fn is None else decorate(fn)
