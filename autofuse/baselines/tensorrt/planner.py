"""Pattern fusion as in TensorRT (developer guide, "Types of Fusions"): ordered patterns over
layers, each making one kernel. The builder is closed: patterns are those it documents."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from autofuse.baselines.base import BaselineResult
from autofuse.baselines.merging import Fusing, Rules
from autofuse.baselines.tensorrt.patterns import (
    Any,
    FusionPattern,
    Op,
    Scalar,
    matches,
    named,
    op,
    spread,
)
from autofuse.graph.types import Graph
from autofuse.ops.spec import Family

ATTENTION, EPILOGUE, IDIOM = "attention", "contraction-epilogue", "idiom"
POINTWISE, CONCAT, SIBLINGS = "pointwise", "concat-elision", "horizontal"
PADDING = "padding"
# "Limits on the size" is all the guide says; this is our number of ops in one pointwise kernel.
MAX_POINTWISE = 64
ACTIVATIONS = frozenset(("max", "clamp", "tanh", "logistic", "select"))
COMBINES = frozenset(("add", "sub", "mul", "min", "max"))

X = Any("x")


def _mean(of: FusionPattern, how: str) -> Op:
    return op(how, op("reduce_sum", of), Scalar())


def _layer_norms() -> Iterable[tuple[str, Op]]:
    for how in ("mul", "div"):
        centred = named("c", op("sub", X, spread(_mean(X, how))))
        again = Any("c")
        variance = op("add", _mean(op("mul", again, again), how), Scalar())
        for scale in (op("mul", centred, spread(op("rsqrt", variance))),
                      op("div", centred, spread(op("sqrt", variance)))):  # fmt: skip
            affine = op("mul", scale, spread(Any("gamma")))
            yield "layer-norm", op("add", affine, spread(Any("beta")))
            yield "layer-norm", scale


_SHIFTED = named("s", op("sub", X, spread(op("reduce_max", X))))
_RAISED = named("e", op("exp", _SHIFTED))
_SOFTMAX = op("div", _RAISED, spread(op("reduce_sum", Any("e"))))
IDIOMS: tuple[tuple[str, Op], ...] = (
    ("log-softmax", op("log", _SOFTMAX)),
    ("log-softmax", op("sub", _SHIFTED, spread(op("log", op("reduce_sum", op("exp", Any("s"))))))),
    ("softmax", _SOFTMAX),
    *_layer_norms(),
    ("log-sum-exp", op("log", op("reduce_sum", op("exp", X)))),
    ("l2-norm", op("sqrt", op("reduce_sum", op("mul", X, X)))),
    ("sum-of-squares", op("reduce_sum", op("mul", X, X))),
    ("l1-norm", op("reduce_sum", op("abs", X))),
)


def family(state: Fusing, node: int) -> Family:
    return state.graph[node].spec.family


def is_contraction(state: Fusing, node: int) -> bool:
    return family(state, node) is Family.CONTRACTION


def same_shape(state: Fusing, a: int, b: int) -> bool:
    return state.graph[a].types[0].shape == state.graph[b].types[0].shape


# rules


def several_users(state: Fusing, producer: int, consumer: int) -> str | None:
    """What others read stays a result of its own."""
    inside = set(state.group(consumer))
    if producer not in state.outputs and inside.issuperset(state.users[producer]):
        return None
    return f"%{producer} is read outside the kernel"


def no_epilogue(state: Fusing, producer: int, consumer: int) -> str | None:
    """A contraction takes a bias, a scale, an elementwise combination or an activation."""
    n = state.graph[consumer]
    if n.op in ACTIVATIONS | COMBINES and same_shape(state, producer, consumer):
        return None
    return f"%{consumer} {n.op} is no bias, scale, combination or activation"


def not_zero(state: Fusing, producer: int, consumer: int) -> str | None:
    """A convolution pads with zeros."""
    value = state.graph[state.graph[producer].inputs[1].node]
    zero = value.op == "constant" and dict(value.attrs)["value"].scalar == 0
    return None if zero else f"%{producer} pads with another value than zero"


def no_contraction(state: Fusing, producer: int, consumer: int) -> str | None:
    """The pattern starts with a convolution or a matrix product."""
    if any(is_contraction(state, n) for n in state.group(producer)):
        return None
    return f"%{producer} is not part of a contraction's kernel"


def two_contractions(state: Fusing, producer: int, consumer: int) -> str | None:
    """One kernel has one contraction."""
    both = {*state.group(producer), *state.group(consumer)}
    count = sum(is_contraction(state, n) for n in both)
    return "two contractions in one kernel" if count > 1 else None


def not_pointwise(state: Fusing, producer: int, consumer: int) -> str | None:
    """Unary, elementwise, activation and scale layers, and the views they read through."""
    for node in (producer, consumer):
        if not is_pointwise(state, node):
            return f"%{node} {state.graph[node].op} is not a pointwise layer"
        if any(not is_pointwise(state, n) for n in state.group(node)):
            return f"%{node} belongs to another pattern"
    return None


def is_pointwise(state: Fusing, node: int) -> bool:
    n = state.graph[node]
    return n.spec.family is Family.ELEMENTWISE or n.op in ("broadcast", "reshape")


def too_large(state: Fusing, producer: int, consumer: int) -> str | None:
    """The size of one pointwise kernel is limited."""
    count = len(state.group(producer)) + len(state.group(consumer))
    return f"{count} ops (limit {MAX_POINTWISE})" if count > MAX_POINTWISE else None


def not_written_in_place(state: Fusing, producer: int, consumer: int) -> str | None:
    """A part that is an input, or that others read, is copied."""
    parts = {v.node for v in state.graph[consumer].inputs}
    if not parts <= state.home.keys():
        return "a part is no result of a layer"
    loop = next((p for p in sorted(parts) if family(state, p) is Family.CONTROL), None)
    if loop is not None:
        return f"the part %{loop} is a result of a loop"
    other = next((p for p in sorted(parts) if state.user_count(p) > 1), None)
    return None if other is None else f"the part %{other} has other users"


def another_pattern(state: Fusing, producer: int, consumer: int) -> str | None:
    """A layer takes part in one pattern."""
    for node in (producer, consumer):
        if len(state.group(node)) > 1 and not is_contraction(state, node):
            return f"%{node} belongs to another pattern"
    return None


def not_alike(state: Fusing, first: int, second: int) -> str | None:
    """Layers side by side have one kind and one set of parameters."""
    a, b = state.graph[first], state.graph[second]
    alike = (a.op, a.attrs, a.types) == (b.op, b.attrs, b.types)
    return None if alike else f"%{first} {a.op} and %{second} {b.op} are not of one kind"


def dependent(state: Fusing, first: int, second: int) -> str | None:
    """Layers side by side do not need each other."""
    a, b = state.home[first], state.home[second]
    if state.needed_by(a, b) or state.needed_by(b, a):
        return "one needs the other"
    return None


EPILOGUE_RULES: Rules = (
    ("no-contraction", no_contraction),
    ("epilogue", no_epilogue),
    ("users", several_users),
    ("contractions", two_contractions),
)
PADDING_RULES: Rules = (
    ("zero", not_zero),
    ("users", several_users),
)
POINTWISE_RULES: Rules = (
    ("pointwise", not_pointwise),
    ("users", several_users),
    ("size", too_large),
)
CONCAT_RULES: Rules = (("in-place", not_written_in_place),)
SIBLING_RULES: Rules = (
    ("kind", not_alike),
    ("dependence", dependent),
    ("other-pattern", another_pattern),
)


def tensorrt(graph: Graph) -> BaselineResult:
    """The plan pattern fusion makes of a canonical graph; bodies of loops likewise."""
    state = Fusing(graph)
    _attention(state)
    _padding(state)
    _epilogues(state)
    _idioms(state)
    _pointwise(state)
    _concats(state)
    _horizontal(state)
    return state.result(tensorrt)


def _elementwise_above(state: Fusing, at: int) -> tuple[set[int], int]:
    """The chain of elementwise ops of one shape that ends in a node, and what it begins with; -1
    where that is of another shape."""
    chain = set[int]()
    while at in state.home and family(state, at) is Family.ELEMENTWISE:
        chain.add(at)
        at = next((p for p in state.operands[at] if same_shape(state, p, at)), -1)
    return chain, at


def _attention(state: Fusing) -> None:
    """Product, scale and mask, softmax, product: one kernel."""
    graph = state.graph
    for last in state.items:
        if not is_contraction(state, last):
            continue
        root = graph[last].inputs[0].node
        inside = matches(graph, root, _SOFTMAX)
        if inside is None or not _closed(state, inside, root, last):
            continue
        above, at = _elementwise_above(state, graph[min(inside)].inputs[0].node)
        chain = inside | above
        if at not in state.home or not is_contraction(state, at):
            continue
        if _closed(state, frozenset(chain | {at}), root, last):
            _take(state, ATTENTION, [at, *sorted(chain), last], "attention")


def _closed(state: Fusing, inside: frozenset[int], root: int, user: int | None = None) -> bool:
    """Nobody outside reads what the pattern computes on the way to its root."""
    allowed = inside if user is None else inside | {user}
    checked = inside if user is not None else inside - {root}
    return all(n not in state.outputs and allowed.issuperset(state.users[n]) for n in checked)


def _take(state: Fusing, name: str, nodes: list[int], rule: str) -> None:
    """One kernel of all nodes, each merged into what it reads or is read by."""
    inside = set(nodes)
    for node in nodes:
        for producer in state.operands[node]:
            if producer in inside:
                state.try_merge(name, (), producer, node, (rule, f"the pattern {rule}"))


def _padding(state: Fusing) -> None:
    """A convolution pads its image itself."""
    for producer, consumer in state.edges():
        if state.graph[producer].op == "pad" and state.graph[consumer].op == "conv":
            how = "padding", "the convolution pads"
            state.try_merge(PADDING, PADDING_RULES, producer, consumer, how)


def _epilogues(state: Fusing) -> None:
    for producer, consumer in state.edges():
        if family(state, consumer) in (Family.ELEMENTWISE, Family.CONTRACTION):
            near = any(is_contraction(state, n) for n in state.group(producer))
            if near:
                how = "epilogue", "applied to the product as it is written"
                state.try_merge(EPILOGUE, EPILOGUE_RULES, producer, consumer, how)


def _idioms(state: Fusing) -> None:
    for rule, pattern in IDIOMS:
        for node in state.items:
            inside = matches(state.graph, node, pattern)
            if inside is None or any(len(state.group(n)) > 1 for n in inside):
                continue
            if _closed(state, inside, node):
                _take(state, IDIOM, sorted(inside), rule)


def _pointwise(state: Fusing) -> None:
    """Views join the layers that read them; pointwise layers join each other."""
    for producer, consumer in reversed(state.edges()):
        how = "pointwise", "adjacent pointwise layers"
        state.try_merge(POINTWISE, POINTWISE_RULES, producer, consumer, how)


def _concats(state: Fusing) -> None:
    """A concatenation whose parts are written in place is no kernel: it goes with its last part."""
    for node in state.items:
        if state.graph[node].op == "concat" and state.operands[node]:
            last = max(state.operands[node])
            how = "in-place", "the parts are written where they belong"
            state.try_merge(CONCAT, CONCAT_RULES, last, node, how)


def _horizontal(state: Fusing) -> None:
    """Products and reductions of one kind that share an input run side by side."""
    kinds = (Family.CONTRACTION, Family.REDUCTION)
    for value in range(len(state.graph.nodes)):
        users = [
            u for u in state.graph.users[value] if u in state.home and family(state, u) in kinds
        ]
        for first, second in pairwise(users):
            how = "side-by-side", f"both read %{value}"
            state.try_merge(SIBLINGS, SIBLING_RULES, first, second, how)
