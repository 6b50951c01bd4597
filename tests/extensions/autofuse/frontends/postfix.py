"""Files of postfix words: `x:2x3` is an input, 2.5 a number, other words are functions."""

from pathlib import Path

from autofuse.frontends.errors import FrontendError
from autofuse.graph.composites.activations import gelu, softmax
from autofuse.graph.composites.layers import layer_norm, mean
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter, Operand
from autofuse.ops.dtypes import DType

BINARY = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
COMPOSITES = {"softmax": softmax, "gelu": gelu, "norm": layer_norm, "mean": mean}


def load_postfix(path: str) -> Graph:
    """What is left on the stack are the outputs. Raises FrontendError for words that make no sense,
    GraphError for operands that do not fit."""
    writer, stack = GraphWriter(), list[Operand]()
    for word in Path(path).read_text(encoding="utf-8").split():
        stack.append(_value(writer, stack, word))
    return writer.build([v for v in stack if isinstance(v, Value)])


def _value(writer: GraphWriter, stack: list[Operand], word: str) -> Operand:
    if word in BINARY:
        right, left = _pop(stack, word), _pop(stack, word)
        return writer.map(BINARY[word], left, right)
    if word in COMPOSITES:
        value = _pop(stack, word)
        if not isinstance(value, Value):
            raise FrontendError(f"'{word}' needs an array, not {value}")
        return COMPOSITES[word](writer, value)
    name, colon, shape = word.partition(":")
    if colon and all(n.isdigit() for n in shape.split("x")):
        return writer.input(name, tuple(map(int, shape.split("x"))), DType.F32)
    try:
        return float(word)
    except ValueError:
        raise FrontendError(f"'{word}' is not a word") from None


def _pop(stack: list[Operand], word: str) -> Operand:
    if not stack:
        raise FrontendError(f"the stack is empty at '{word}'")
    return stack.pop()
