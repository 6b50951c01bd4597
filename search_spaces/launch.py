"""What a launch space is: for each kernel, the rows of a table of launch parameters that matter to
it, their options, and which come first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from autofuse.graph.types import Graph
from autofuse.kernel.library.gemm import library_product, library_solver, library_transform
from autofuse.kernel.text.dialects import Dialect
from autofuse.ops.control import is_counted
from autofuse.ops.spec import Motion
from autofuse.plan.fusion.groups import host_loop
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.parameters import (
    BODY,
    GEMM,
    ITEM,
    LOOP,
    MATH,
    PRODUCT,
    RELAXED,
    SOLVER,
    TRANSFORM,
    LaunchParameter,
    LaunchTable,
)
from autofuse.plan.schedules.forms import Form
from autofuse.plan.schedules.tiles import tiles_of
from autofuse.plan.types import FusionGroup, LaunchConfig, Setting

# Where more kernels are asked about at once they share one set of choices for each kind: a sampler
# would not learn what each wants.
OWN_CHOICES = 8
Chooser = Callable[[str, tuple[Setting, ...]], Setting]
Chosen = Mapping[str, Any]
# The options of a parameter given what is chosen already, the likely best first; none where it does
# not matter.
Offer = Callable[[LaunchParameter[Any], Chosen], tuple[Setting, ...]]


class LaunchSpace(Protocol):
    """The launch parameters of one backend."""

    def kind(self, graph: Graph, group: FusionGroup) -> str:
        """Which parameters apply: "item", "row", "loop", "gemm", "product", "transform",
        "solver" or "body" (a loop that the host runs)."""
        ...

    def default(self, graph: Graph, group: FusionGroup) -> LaunchConfig:
        """The configuration used when nothing has been searched."""
        ...

    def ruled(
        self, graph: Graph, group: FusionGroup, threads: int, items: int, strided: bool
    ) -> LaunchConfig:
        """The configuration nearest to a GPU's loop kernel with blocks of so many threads, `items`
        neighbouring elements each, that go on a grid further when `strided`; the default for other
        kernels, and on devices of which a GPU's launch says nothing (those without a rule of their
        own)."""
        return self.default(graph, group)

    def choose(
        self, graph: Graph, group: FusionGroup, chooser: Chooser, prefix: str
    ) -> LaunchConfig:
        """A configuration from a chooser, canonical: settings that cannot matter are fixed."""
        ...


def kernel_kind(graph: Graph, group: FusionGroup, dialect: Dialect) -> str:
    """See `LaunchSpace.kind`; a dialect says what its library multiplies."""
    if group.body is not None:
        return BODY
    if library_product(graph, group, dialect) is not None:
        return GEMM
    if library_transform(graph, group) is not None:
        return TRANSFORM
    if library_solver(graph, group) is not None:
        return SOLVER
    form = widest_form(graph, group)
    if form is not None and form.carries:
        return LOOP
    if form is not None and tiles_of(graph, form) is not None:
        return PRODUCT
    return ITEM if form is None else form.kind


def widest_form(graph: Graph, group: FusionGroup) -> Form | None:
    """The form of a group's segment with most items; None where it is not one kernel."""
    verdict = check_group(graph, group.nodes, group.outputs)
    if isinstance(verdict, Refusal):
        return None
    return max(verdict, key=lambda f: f.items)


def loop_iterations(graph: Graph, group: FusionGroup) -> tuple[int, ...]:
    """The iterations of each counted loop of a group; any number divides those of the others."""
    calls = (graph.call(n) for n in group.nodes if is_counted(graph[n].op))
    return tuple(int(call["trip"]) for call in calls)


def permutes(graph: Graph, group: FusionGroup) -> bool:
    """Some axes of a group change places, so that something may be read against the grain."""
    return any(graph[n].spec.motion is Motion.PERMUTE for n in group.nodes)


def choose_settings(
    table: LaunchTable, kind: str, offer: Offer, chooser: Chooser, prefix: str
) -> dict[str, Setting]:
    """A setting of every row that matters to a kernel of this kind, in the table's order.

    A question is called PREFIX.KIND.PARAMETER.OPTIONS, so that one name always has the same
    options; where there is but one, nothing is asked."""
    made: dict[str, Setting] = {}
    for name, row in table.items():
        options = offer(row, made) if kind in row.kinds else ()
        if len(options) > 1:
            text = "/".join(map(str, options))
            made[name] = chooser(f"{prefix}.{kind}.{name}.{text}", options)
        elif options:
            made[name] = options[0]
    return made


def chosen_inside(
    space: LaunchSpace, graph: Graph, group: FusionGroup, chooser: Chooser, prefix: str
) -> tuple[LaunchConfig, ...]:
    """The configurations of the groups of a host loop's body, each asked for by itself unless they
    are many; none of any other group."""
    if group.body is None:
        return ()
    body, _ = host_loop(graph, group)
    own = len(group.body.groups) <= OWN_CHOICES
    return tuple(
        space.choose(body, each, chooser, f"{prefix}{k}" if own else prefix)
        for k, each in enumerate(group.body.groups)
    )


def first_option(_: str, options: tuple[Setting, ...]) -> Setting:
    """The chooser of defaults."""
    return options[0]


def ordered(first: Setting, options: tuple[Setting, ...]) -> tuple[Setting, ...]:
    """`first`, then the other options."""
    return (first, *(o for o in options if o != first))


def only(wanted: LaunchParameter[Any], options: tuple[Setting, ...]) -> Offer:
    """Options of one parameter alone."""
    return lambda row, made: options if row is wanted else ()


def as_written(offer: Offer) -> Offer:
    """What is offered where arithmetic must stay as it is written."""

    def kept(row: LaunchParameter[Any], made: Chosen) -> tuple[Setting, ...]:
        options = offer(row, made)
        return tuple(o for o in options if o != RELAXED) if row.name == MATH.name else options

    return kept


def divisors(choices: tuple[Any, ...], iterations: tuple[int, ...]) -> tuple[Setting, ...]:
    """The choices that divide the iterations of every loop."""
    return tuple(c for c in choices if all(n % c == 0 for n in iterations))
