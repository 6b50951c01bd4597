"""Names of an ONNX graph while it is written: what each stands for, and its nodes one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autofuse.errors import GraphError
from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.package import (
    DAMAGE,
    MOST_KNOWN,
    Proto,
    defaults_of,
    evaluated,
    onnx_package,
    plain_attribute,
    schema_of,
    standard_name,
    type_proto,
)  # fmt: skip
from autofuse.frontends.onnx.rules import rule_of
from autofuse.frontends.onnx.types import (
    OF_FOUR_BITS,
    Datum,
    OnnxCall,
    OnnxResult,
    UnknownValueError,
    Weight,
)
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter

# Functions that call functions, deeper than any that do not call themselves.
_DEEPEST = 32
# Nodes that a model may be once its functions, branches and loops are written out, beside so many
# for each that it has: what it was made from had no more.
_MOST_WRITTEN, _TIMES_WRITTEN = 10_000, 50
# What a model holds of integers and truth values is known up to this many elements.
_SHAPE_LIKE = 64


@dataclass
class ReadBudget:
    """Nodes that may still be written: a few bytes may stand for any number of them."""

    left: int

    @staticmethod
    def of(model: Proto) -> ReadBudget:
        held = _count(model.graph.node) + sum(_count(f.node) for f in model.functions)
        return ReadBudget(_MOST_WRITTEN + _TIMES_WRITTEN * held)

    def spend(self) -> None:
        """One node, or one body, is written."""
        self.left -= 1
        if self.left < 0:
            reason = "its functions and loops are too many nodes once they are written out"
            raise TooManyNodesError(reason, located=True)


class TooManyNodesError(FrontendError):
    """The budget of nodes is used up: nothing else is tried."""


@dataclass(frozen=True)
class ModelFacts:
    """What all scopes of a model share: its functions, and what makes a weight a value."""

    functions: Mapping[tuple[str, str], Proto]
    read: Callable[[Proto], np.ndarray]
    bind: Callable[[Weight], Value]
    budget: ReadBudget


@dataclass
class Scope:
    """A graph, body or function whose nodes are written with `w`.

    `around` is the scope that it is written in (None: the model's own graph). A body also sees the
    names of `around` (`sees`), a function does not. `capture` brings values of `around` into `w`.
    """

    w: GraphWriter
    facts: ModelFacts
    opsets: Mapping[str, int]
    env: dict[str, Datum | None] = field(default_factory=dict)
    around: Scope | None = None
    sees: bool = False
    capture: Callable[[Value], Value] | None = None
    given: Mapping[str, Proto] = field(default_factory=dict)
    depth: int = 0

    # Names and values

    def lookup(self, name: str) -> Datum | None:
        """What a name stands for; None for no name. Raises FrontendError for an unknown one."""
        if not name or name in self.env:
            return self.env[name] if name else None
        if self.around is None or not self.sees:
            raise FrontendError(f"'{name}' is read before anything gives it")
        found = self.around.lookup(name)
        return self._brought(found) if isinstance(found, Value) else found

    def _brought(self, value: Value) -> Value:
        return value if self.capture is None else self.capture(value)

    def value_of(self, datum: Datum) -> Value:
        """A datum as a value of `w`."""
        if isinstance(datum, Value):
            return datum
        if isinstance(datum, np.ndarray):
            return self.w.constant(datum, OF_FOUR_BITS.get(datum.dtype.name))
        if self.around is None:
            return self.facts.bind(datum)
        return self._brought(self.around.value_of(datum))

    def noted(self, datum: Datum | None) -> Datum | None:
        """A result, as an array where its elements are known."""
        known = self.w.known(datum) if isinstance(datum, Value) else None
        return datum if known is None else known

    def held(self, name: str, array: np.ndarray) -> Datum:
        """What the model holds: single elements and short rows of whole numbers are known, all
        else is a weight."""
        whole = array.dtype in (np.int64, np.int32, np.bool_)
        known = array.size <= (_SHAPE_LIKE if whole else 1)
        return array if known else Weight(name, array)

    # Nodes

    def write_nodes(self, nodes: Sequence[Proto], outputs: Sequence[str]) -> None:
        """Writes the nodes that `outputs` need, in their order."""
        for node, read in _needed(nodes, outputs):
            try:
                found = self._results(node, read)
            except UnknownValueError as error:
                raise error if error.located else _unknown_at(node, error) from error
            except FrontendError as error:
                raise error if error.located else _at(node, error) from error
            except (GraphError, *DAMAGE) as error:
                raise _at(node, error) from error
            self.env.update(zip((n for n in node.output), found, strict=False))

    def _evaluated(
        self, plain: Proto, schema: Any, operands: Sequence[Datum | None]
    ) -> list[np.ndarray] | None:
        """The results of a node of known operands, where the standard's package computes them."""
        arrays = [each for each in operands if each is None or isinstance(each, np.ndarray)]
        if len(arrays) < len(operands) or _has_bodies(plain):
            return None
        return evaluated(plain, schema, self.opsets, arrays)

    def _known(self, node: Proto, arrays: Sequence[np.ndarray]) -> list[Datum | None]:
        return [self.held(n, a) if a.size > MOST_KNOWN else a
                for n, a in zip(node.output, arrays, strict=False)]  # fmt: skip

    def _results(self, node: Proto, read: Sequence[bool]) -> list[Datum | None]:
        self.facts.budget.spend()
        domain = standard_name(node.domain)
        operands = tuple(self.lookup(name) for name in node.input)
        local = self.facts.functions.get((domain, node.op_type))
        if local is not None:
            return self._called(local, node, operands)
        if domain not in self.opsets:
            raise FrontendError(f"the model imports no version of domain '{domain}'")
        if (domain, node.op_type) == ("", "Constant"):
            return [self._constant(node)]
        version = self.opsets[domain]
        schema = schema_of(domain, node.op_type, version)
        plain = self._plain(node)
        known = self._evaluated(plain, schema, operands)
        if known is not None and len(known) >= len(node.output):
            return self._known(node, known)
        since = version if schema is None else schema.since_version
        rule = rule_of(domain, node.op_type, since)
        if rule is None:
            return self._body_of(plain, schema, operands)
        attrs = {**defaults_of(domain, node.op_type, version), **self._attributes(plain)}
        made = rule(OnnxCall(self, since, operands, attrs, tuple(read)))
        return [self.noted(each) for each in _as_list(made)]

    def _constant(self, node: Proto) -> Datum:
        """Any of the ways in which a Constant says its value."""
        plain = self._plain(node)
        if len(plain.attribute) != 1:
            raise FrontendError("it has not one value")
        (attribute,) = plain.attribute
        name = node.output[0]
        if attribute.name == "value":
            return self.held(name, self.facts.read(attribute.t))
        found = plain_attribute(attribute)
        kinds = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32,
                 "value_floats": np.float32}  # fmt: skip
        if attribute.name not in kinds:
            raise FrontendError(f"{attribute.name} is not supported")
        return self.held(name, np.asarray(found, kinds[attribute.name]))

    def _plain(self, node: Proto) -> Proto:
        """The node with the attributes of the function's call in the place of references."""
        if not any(a.ref_attr_name for a in node.attribute):
            return node
        made = onnx_package().NodeProto()
        made.CopyFrom(node)
        del made.attribute[:]
        for attribute in node.attribute:
            named = self.given.get(attribute.ref_attr_name)
            if not attribute.ref_attr_name:
                made.attribute.append(attribute)
            elif named is not None:
                made.attribute.append(named)
                made.attribute[-1].name = attribute.name
        return made

    def _attributes(self, node: Proto) -> dict[str, Any]:
        found = {}
        for attribute in node.attribute:
            plain = plain_attribute(attribute)
            is_body = attribute.type == onnx_package().AttributeProto.GRAPH
            found[attribute.name] = OnnxBody(self, attribute.g) if is_body else plain
        return found

    # Functions

    def _body_of(
        self, node: Proto, schema: Any, operands: Sequence[Datum | None]
    ) -> list[Datum | None]:
        """The body that the standard gives an operator without a rule."""
        function = None
        if schema is None:
            raise FrontendError("it is no operator of the standard in this version")
        if schema.has_function:
            function = schema.function_body
        elif schema.has_context_dependent_function:
            types = [self._type(each).SerializeToString() for each in operands]
            try:
                text = schema.get_context_dependent_function(node.SerializeToString(), types)
            except Exception as error:  # the package raises kinds of its own
                raise FrontendError(f"its body cannot be made: {error}") from error
            function = onnx_package().FunctionProto()
            function.ParseFromString(text)
        if function is None or not function.node:
            raise FrontendError("it has no rule")
        defaults = {
            n: a.default_value for n, a in schema.attributes.items() if a.default_value.type
        }
        return self._called(function, node, operands, defaults)

    def _type(self, datum: Datum | None) -> Proto:
        if datum is None:
            return onnx_package().TypeProto()
        if isinstance(datum, Value):
            type_ = self.w.type_of(datum)
            return type_proto(type_.shape, type_.dtype.numpy)
        array = datum.array if isinstance(datum, Weight) else datum
        return type_proto(array.shape, array.dtype)

    def _called(
        self,
        function: Proto,
        node: Proto,
        operands: Sequence[Datum | None],
        defaults: Mapping[str, Proto] | None = None,
    ) -> list[Datum | None]:
        if self.depth >= _DEEPEST:
            raise FrontendError(f"functions call each other more than {_DEEPEST} deep")
        given = {**(defaults or {}), **{a.name: a for a in function.attribute_proto}}
        given |= {a.name: a for a in node.attribute}
        opsets = {standard_name(o.domain): o.version for o in function.opset_import}
        padded = [*operands, *[None] * (len(function.input) - len(operands))]
        env = dict(zip(function.input, padded, strict=False))
        inner = Scope(
            self.w,
            self.facts,
            {**self.opsets, **opsets},
            env,
            self,
            given=given,
            depth=self.depth + 1,
        )
        inner.write_nodes(function.node, function.output)
        return [inner.env.get(name) for name in function.output]


@dataclass(frozen=True, slots=True)
class OnnxBody:
    """A graph attribute of a node in `scope`; a `Subgraph` of onnx_types."""

    scope: Scope
    graph: Proto

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.graph.input)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.graph.output)

    def write(
        self,
        w: GraphWriter,
        given: Sequence[Datum],
        capture: Callable[[Value], Value] | None = None,
    ) -> list[Datum]:
        scope = self.scope
        scope.facts.budget.spend()
        if len(given) != len(self.inputs):
            raise FrontendError(f"its body takes {len(self.inputs)} inputs, not {len(given)}")
        inner = Scope(
            w, scope.facts, scope.opsets, around=scope, sees=True, capture=capture,
            given=scope.given, depth=scope.depth,
        )  # fmt: skip
        for tensor in self.graph.initializer:
            inner.env[tensor.name] = scope.held(tensor.name, scope.facts.read(tensor))
        inner.env.update(zip(self.inputs, map(inner.noted, given), strict=True))
        inner.write_nodes(self.graph.node, self.outputs)
        found = [inner.lookup(name) for name in self.outputs]
        if any(each is None for each in found):
            raise FrontendError("an output of its body is missing")
        return [each for each in found if each is not None]


def _count(nodes: Sequence[Proto]) -> int:
    """Nodes, with those of bodies."""
    bodies = (g for n in nodes for a in n.attribute for g in (a.g, *a.graphs) if g.node)
    return len(nodes) + sum(_count(body.node) for body in bodies)


def _as_list(made: OnnxResult) -> list[Datum | None]:
    return [made] if isinstance(made, Value | np.ndarray | Weight) else list(made)


def _has_bodies(node: Proto) -> bool:
    return any(a.HasField("g") or len(a.graphs) for a in node.attribute)


def _label(node: Proto) -> str:
    name = f"node '{node.name}'" if node.name else f"the node of '{', '.join(node.output)}'"
    return f"{name}: {node.domain + '.' if node.domain else ''}{node.op_type}"


def _at(node: Proto, error: Exception) -> FrontendError:
    return FrontendError(f"{_label(node)}: {error}", located=True)


def _unknown_at(node: Proto, error: UnknownValueError) -> UnknownValueError:
    return UnknownValueError(error.value, error.w, f"{_label(node)}: {error}", located=True)


def _needed(nodes: Sequence[Proto], outputs: Sequence[str]) -> list[tuple[Proto, tuple[bool, ...]]]:
    """The nodes that outputs depend on, in order, and which of their results are read."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        read = tuple(bool(name) and name in wanted for name in node.output)
        if any(read):
            wanted.update(_read_by(node))
            kept.append((node, read))
    return kept[::-1]


def _read_by(node: Proto) -> Iterator[str]:
    """Names that a node reads, also inside the bodies that it has."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else ():
            yield from (each.name for each in graph.output)
            for inner in graph.node:
                yield from _read_by(inner)
