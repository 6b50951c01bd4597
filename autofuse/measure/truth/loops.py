"""C text of the loops of a reference, and of all its kernels together.

A loop is `int64_t name(truth *t, char **cur, char **alt, char *const *inv, char *const *stacks,
char *arena, int64_t from, int64_t to)`: iterations `from` up to `to` or to where a `while` ends,
which it returns (-1 where one inside is endless). Each state has two buffers: an iteration reads
`cur` and leaves the next in `alt`, then they change places. What is updated window by window stays
where it is if nothing reads it any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from autofuse.graph.reference import MOST_TRIPS
from autofuse.graph.types import Graph, Node, Value
from autofuse.measure.truth.plan import (
    ByNumPy,
    TruthItem,
    TruthKernel,
    TruthLoop,
    is_light,
    items,
    loads,
    trips,
)
from autofuse.measure.truth.prelude import prelude
from autofuse.measure.truth.text import KernelText, kernel_text, stored, window_text
from autofuse.ops.control import is_counted
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType

_ALIGNED = 64
_HELPERS = """
static inline void truth_mask(char *new, const char *old, const uint8_t *go, int64_t places,
                              int64_t bytes)
{
  for (int64_t i = 0; i < places; i++)
    if (!go[i]) memcpy(new + i * bytes, old + i * bytes, (size_t)bytes);
}
"""
_ARGUMENTS = (
    "truth *t, char **cur, char **alt, char *const *inv, char *const *stacks, char *arena, "
    "int64_t from, int64_t to"
)


def nbytes(type_: TensorType) -> int:
    """Bytes of a value as the reference holds it."""
    return type_.size * stored(type_.dtype).itemsize


@dataclass
class LoopUnit:
    """One translation unit under construction."""

    kernels: dict[str, str] = field(default_factory=dict)  # text under NAME -> name
    exported: dict[str, None] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    constants: list[np.ndarray] = field(default_factory=list)

    def kernel(self, text: KernelText, export: bool = False) -> str:
        name = self.kernels.setdefault(text.body, f"truth_k{len(self.kernels)}")
        if export:
            self.exported[name] = None
        return name

    def loop(self, node: Node) -> tuple[str, int]:
        """The name of a loop's function, and the bytes of its arena."""
        body = dict(node.attrs)["body"]
        writer = _Body(self, body, node)
        name = f"truth_loop{len(self.functions)}"
        self.functions.append("")
        place = len(self.functions) - 1
        self.functions[place] = writer.text(name)
        return name, writer.arena.size

    def constant(self, node: Node) -> str:
        value = dict(node.attrs)["value"]
        array = np.ascontiguousarray(value.array().astype(value.type.dtype.reference))
        self.constants.append(array)
        return f"((char *)t->constants[{len(self.constants) - 1}])"

    def text(self) -> str:
        bodies = []
        for body, name in self.kernels.items():
            own = body.replace("NAME", name, 1)
            bodies.append(own.replace("static ", "", 1) if name in self.exported else own)
        # An inner loop is begun after the loop around it, so it comes first.
        return "\n".join([prelude(), _HELPERS, *bodies, *reversed(self.functions)])


@dataclass
class _Arena:
    """Memory of one iteration, by lifetime."""

    size: int = 0
    free: list[tuple[int, int]] = field(default_factory=list)

    def take(self, count: int) -> tuple[int, int]:
        """A block: where it begins, and its bytes."""
        wanted = -(-max(count, 1) // _ALIGNED) * _ALIGNED
        fits = sorted((n, at) for at, n in self.free if wanted <= n <= 2 * wanted)
        if fits:
            n, at = fits[0]
            self.free.remove((at, n))
            return at, n
        at, self.size = self.size, self.size + wanted
        return at, wanted


class _Body:
    def __init__(self, unit: LoopUnit, body: Graph, node: Node) -> None:
        self.unit, self.body, self.node = unit, body, node
        self.carries = int(dict(node.attrs)["carries"])
        self.items = items(body, True)
        self.counted = is_counted(node.op)
        go = body.type_of(body.outputs[0]) if not self.counted else TensorType((), DType.BOOL)
        self.masked = not self.counted and go.shape != ()
        self.places = go.size
        self.arena = _Arena()
        self.where: dict[Value, str] = {}
        self.blocks: dict[Value, tuple[int, int]] = {}
        self.root: dict[Value, Value] = {}
        self.lines: list[str] = []
        self.last = self._last_uses()

    def _root(self, value: Value) -> Value:
        while value in self.root:
            value = self.root[value]
        return value

    def _last_uses(self) -> dict[Value, int]:
        """The last item that reads each value in memory; reshapes are what they reshape."""
        for item in self.items:
            if isinstance(item, ByNumPy):
                self.root[Value(item.node)] = item.reads[0]
        last: dict[Value, int] = {}
        for at, item in enumerate(self.items):
            if not isinstance(item, ByNumPy):
                last.update((self._root(v), at) for v in item.reads)
        last.update((self._root(v), len(self.items)) for v in self.body.outputs)
        return last

    def text(self, name: str) -> str:
        self._inputs()
        for at, item in enumerate(self.items):
            self._emit(at, item)
            for value in [v for v in self.blocks if self.last.get(v, -1) <= at]:
                self.arena.free.append(self.blocks.pop(value))
        self._end()
        body = "\n".join(f"    {line}" for line in self.lines)
        test = ""
        if not self.counted:
            test = (
                f"    bool any = false;\n    for (int64_t i = 0; i < {self.places}; i++) "
                "any |= cur[0][i] != 0;\n    if (!any) return step;\n"
                f"    if (step == {MOST_TRIPS}) return -1;\n"
            )
        return (
            f"int64_t {name}({_ARGUMENTS})\n{{\n"
            "  for (int64_t step = from; step < to; step++) {\n"
            f"{test}    int32_t counter = (int32_t)step;\n{body}\n  }}\n  return to;\n}}\n"
        )

    def _inputs(self) -> None:
        for position, i in enumerate(self.body.inputs):
            if position == 0:
                place = "((char *)&counter)"
            elif position <= self.carries:
                place = f"cur[{position - 1}]"
            else:
                place = f"inv[{position - 1 - self.carries}]"
            self.where[Value(i)] = place
        for i, node in enumerate(self.body.nodes):
            if node.op == "constant" and (not is_light(self.body, i) or self._in_memory(i)):
                self.where[Value(i)] = self.unit.constant(node)

    def _in_memory(self, i: int) -> bool:
        """Whether a number is read as an array."""
        readers = (k for k in self.items if not isinstance(k, TruthKernel))
        return Value(i) in self.body.outputs or any(Value(i) in k.reads for k in readers)

    def _emit(self, at: int, item: TruthItem) -> None:
        match item:
            case ByNumPy(node, reads):
                self.where[Value(node)] = self.where[reads[0]]
            case TruthLoop(node):
                self._loop(node)
            case TruthKernel():
                if self.body[item.nodes[0]].op == "dynamic_update_slice":
                    self._update(at, item)
                else:
                    for value in item.outs:
                        self._place(value)
                    self._call(item, kernel_text(self.body, item))

    def _place(self, value: Value) -> None:
        """Memory for a result: where an output belongs, or in the arena."""
        size = nbytes(self.body.type_of(value))
        for position, out in enumerate(self.body.outputs):
            if out == value:
                if position < self.carries:
                    self.where[value] = f"alt[{position}]"
                else:
                    self.where[value] = f"(stacks[{position - self.carries}] + step * {size})"
                return
        block = self.arena.take(size)
        self.blocks[value] = block
        self.where[value] = f"(arena + {block[0]})"

    def _call(self, item: TruthKernel, text: KernelText) -> None:
        name = self.unit.kernel(text)
        count = text.rounded
        values = [*(self.where[v] for v in item.reads), *(self.where[v] for v in item.outs)]
        arguments = ", ".join([*values, "(char *)t->noise", "(char *)starts"])
        self.lines.append(
            f"{{ int64_t starts[{max(1, count)}]; void *a[] = {{{arguments}}}; "
            f"truth_run(t, {name}, a, starts, {count}, {text.rows}, {text.size}); }}"
        )

    def _update(self, at: int, item: TruthKernel) -> None:
        """The array as it is, moved unless this is its last use, and the window written into it."""
        (i,) = item.nodes
        array, result = self.body[i].inputs[0], Value(i)
        if is_light(self.body, array.node):
            self._place(result)
            self._call(item, kernel_text(self.body, item))
            return
        base = self._root(array)
        others = self.body[i].inputs[1:]
        alone = all(self._root(v) != base for v in loads(self.body, others))
        ours = self.where[base].startswith(("(arena", "alt[", "c")) and not (
            self.masked and self.where[base].startswith("cur[")
        )
        # A window that others take from the array later is taken from what it was.
        if alone and ours and self.last.get(base) == at:
            self.where[result] = self.where[array]
            if base in self.blocks:
                self.blocks[result] = self.blocks.pop(base)
        else:
            self._place(result)
            size = nbytes(self.body.type_of(result))
            self.lines.append(f"memcpy({self.where[result]}, {self.where[array]}, {size});")
        reads = tuple(v for v in loads(self.body, others))
        self._call(TruthKernel(item.nodes, (result,), reads), window_text(
            self.body, TruthKernel(item.nodes, (result,), reads)))  # fmt: skip

    def _loop(self, i: int) -> None:
        node = self.body[i]
        name, arena = self.unit.loop(node)
        carries = int(dict(node.attrs)["carries"])
        sizes = [nbytes(t) for t in node.types]
        for k in range(carries):
            block = self.arena.take(2 * -(-max(1, sizes[k]) // _ALIGNED) * _ALIGNED)
            self.blocks[Value(i, k)] = block
            self.where[Value(i, k)] = f"c{i}[{k}]"
        for k in range(carries, len(sizes)):
            self._place(Value(i, k))
        own = self.arena.take(arena)
        starts = [self.blocks[Value(i, k)][0] for k in range(carries)]
        halves = [-(-max(1, sizes[k]) // _ALIGNED) * _ALIGNED for k in range(carries)]
        current = ", ".join(f"arena + {at}" for at in starts)
        other = ", ".join(f"arena + {at + h}" for at, h in zip(starts, halves, strict=True))
        invariants = ", ".join(self.where[v] for v in node.inputs[carries:])
        stacks = ", ".join(self.where[Value(i, k)] for k in range(carries, len(sizes)))
        most = trips(node)
        self.lines += [
            f"char *c{i}[] = {{{current or '0'}}}, *d{i}[] = {{{other or '0'}}};",
            f"char *v{i}[] = {{{invariants or '0'}}}, *w{i}[] = {{{stacks or '0'}}};",
            *(
                f"memcpy(c{i}[{k}], {self.where[node.inputs[k]]}, {sizes[k]});"
                for k in range(carries)
            ),
            f"if ({name}(t, c{i}, d{i}, v{i}, w{i}, arena + {own[0]}, 0, {most}) < 0) return -1;",
        ]
        self.arena.free.append(own)

    def _end(self) -> None:
        """The states of the next iteration in `alt`, then these change places with the old ones."""
        swaps: list[str] = []
        for position, value in enumerate(self.body.outputs):
            size, place = nbytes(self.body.type_of(value)), self.where[value]
            if position >= self.carries:
                target = f"(stacks[{position - self.carries}] + step * {size})"
                if place != target:
                    self.lines.append(f"memcpy({target}, {place}, {size});")
                continue
            if place == f"cur[{position}]":
                continue
            if place != f"alt[{position}]":
                self.lines.append(f"memcpy(alt[{position}], {place}, {size});")
            swaps.append(f"alt[{position}]")
        if self.masked:
            for target in swaps:
                old, each = target.replace("alt", "cur"), self._each(target)
                self.lines.append(
                    f"truth_mask({target}, {old}, (const uint8_t *)cur[0], {self.places}, {each});"
                )
        for target in swaps:
            old = target.replace("alt", "cur")
            self.lines.append(f"{{ char *s = {old}; {old} = {target}; {target} = s; }}")

    def _each(self, target: str) -> int:
        position = int(target[4:-1])
        return nbytes(self.body.output_types[position]) // max(1, self.places)
