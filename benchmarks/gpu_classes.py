"""Small programs that between them have a kernel of every class that a GPU is given, each under its
default launch and under those that differ from it in one setting: a launch parameter that is new is
tried without being named here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import autofuse.frontends.array_api as xp
from autofuse import spec, trace
from autofuse.devices import DeviceKind
from autofuse.graph.types import Graph
from autofuse.plan.parameters import IMPL, MAPS, MMA, Setting
from autofuse.plan.types import Candidate, LaunchConfig
from autofuse.simplify import normal_form
from autofuse.tuning.plans import fused_candidate
from autofuse.tuning.search.launches import LaunchProblem, parameter_of

Settings = Mapping[str, Setting]
Operands = tuple[tuple[tuple[int, ...], str], ...]
# Settings of which every option is another class of kernels; of others the first few are tried.
_OPENING = (IMPL.name, MMA.name)
_WHOLE, _OPTIONS = (*_OPENING, MAPS.name), 2


@dataclass(frozen=True)
class Program:
    """A function of arrays; `sizes` for a GPU and, smaller, for the emulator are what `operands`
    (shapes with dtypes) follow from."""

    function: Callable[..., Any]
    operands: Callable[..., Operands]
    sizes: tuple[int, ...]
    small: tuple[int, ...]

    def at(self, size: str) -> tuple[int, ...]:
        return self.small if size == "small" else self.sizes

    def graph(self, size: str) -> Graph:
        given = self.operands(*self.at(size))
        return normal_form(trace(self.function, *(spec(shape, dtype) for shape, dtype in given)))


@dataclass(frozen=True)
class SmokeCase:
    """A plan to be run once: PROGRAM/KERNEL/SETTING=VALUE, or PROGRAM/KERNEL/default."""

    name: str
    graph: Graph
    candidate: Candidate


def _relu_product(a: Any, b: Any, bias: Any) -> Any:
    return xp.maximum(a @ b + bias, 0.0)


def _turned_product(a: Any, b: Any) -> Any:
    return a @ xp.permute_dims(b, (1, 0))


def attention(q: Any, k: Any, v: Any) -> Any:
    return xp.softmax(q @ xp.permute_dims(k, (0, 2, 1)) * (q.shape[2] ** -0.5)) @ v


def causal_attention(q: Any, k: Any, v: Any) -> Any:
    rows = xp.arange(q.shape[1])
    seen = xp.expand_dims(rows, 1) >= xp.expand_dims(rows, 0)
    scores = q @ xp.permute_dims(k, (0, 2, 1)) * (q.shape[2] ** -0.5)
    return xp.softmax(xp.where(seen, scores, -1e30)) @ v


def convolution(x: Any, w: Any) -> Any:
    return xp.maximum(xp.conv(x, w, channels_last=True, padding=1, stride=1), 0.0)


def _loop(x: Any) -> Any:
    return xp.fori_loop(6, lambda k, state: xp.tanh(state) + xp.roll(state, 1) * 0.5, x)


def _product(dtype: str) -> Callable[[int, int, int], Operands]:
    return lambda m, n, k: (((m, k), dtype), ((k, n), dtype), ((n,), dtype))


def _heads(rows: int, depth: int) -> Operands:
    return (((2, rows, depth), "bf16"),) * 3


PROGRAMS: Mapping[str, Program] = {
    "elements": Program(
        lambda x, y: xp.tanh(x) * y + 1.0, lambda n: (((n,), "f32"),) * 2, (1 << 18,), (1 << 10,)
    ),
    "moved": Program(
        lambda x: xp.permute_dims(x, (1, 0)) + 1.0, lambda m, n: (((m, n), "f32"),),
        (512, 384), (33, 20),
    ),
    "rows": Program(xp.softmax, lambda m, n: (((m, n), "f32"),), (512, 1024), (8, 160)),
    "sum": Program(lambda x: xp.sum(x), lambda n: (((n,), "f32"),), (1 << 20,), (1 << 12,)),
    "columns": Program(
        lambda x: xp.sum(x, axis=0), lambda m, n: (((m, n), "f32"),), (2048, 128), (64, 40)
    ),
    "running sum": Program(
        lambda x: xp.cumulative_sum(x, axis=1), lambda m, n: (((m, n), "f32"),),
        (128, 1000), (4, 70),
    ),
    "order": Program(
        lambda x: xp.sort(x, axis=1), lambda m, n: (((m, n), "f32"),), (64, 1000), (3, 50)
    ),
    "loop": Program(_loop, lambda n: (((n,), "f32"),), (4096,), (96,)),
    "product f32": Program(_relu_product, _product("f32"), (256, 256, 256), (48, 32, 40)),
    "product f16": Program(_relu_product, _product("f16"), (512, 256, 512), (64, 64, 64)),
    "product bf16": Program(_relu_product, _product("bf16"), (512, 256, 512), (64, 64, 64)),
    "product turned": Program(
        _turned_product, lambda m, n, k: (((m, k), "bf16"), ((n, k), "bf16")),
        (512, 256, 512), (64, 64, 64),
    ),
    "product ragged": Program(_relu_product, _product("bf16"), (333, 200, 96), (50, 33, 24)),
    "attention": Program(attention, _heads, (256, 64), (32, 16)),
    "causal attention": Program(causal_attention, _heads, (256, 64), (32, 16)),
    "convolution": Program(
        convolution,
        lambda n, side, c, made: (((n, side, side, c), "bf16"), ((3, 3, c, made), "bf16")),
        (4, 28, 64, 64), (1, 6, 16, 16),
    ),
}  # fmt: skip


def smoke_cases(kind: DeviceKind, size: str, names: tuple[str, ...] = ()) -> Iterator[SmokeCase]:
    """The cases of these programs (none: all) of `PROGRAMS`."""
    return program_cases(kind, size, {name: PROGRAMS[name] for name in names or PROGRAMS})


def program_cases(
    kind: DeviceKind, size: str, programs: Mapping[str, Program]
) -> Iterator[SmokeCase]:
    """Plans of these programs on a device, defaults of all of them first: equal launches once."""
    later: list[SmokeCase] = []
    for name, program in programs.items():
        graph = program.graph(size)
        plain = fused_candidate(graph, kind.space)
        yield SmokeCase(f"{name}/default", graph, plain)
        later += _changed(kind, SmokeCase(name, graph, plain))
    yield from later


def _changed(kind: DeviceKind, case: SmokeCase) -> Iterator[SmokeCase]:
    plain = case.candidate
    for at, group in enumerate(plain.plan.groups):
        if group.body is None:
            for text, launch in neighbours(LaunchProblem(case.graph, group, kind.space)):
                launches = (*plain.launches[:at], launch, *plain.launches[at + 1 :])
                name = f"{case.name}/{at}/{text}"
                yield SmokeCase(name, case.graph, Candidate(plain.plan, launches, plain.origin))


def is_class(name: str) -> bool:
    """Whether the case of this name differs from a default in what makes another class, or in
    nothing."""
    settings = name.rpartition("/")[2]
    return settings == "default" or all(
        setting.partition("=")[0] in _WHOLE for setting in settings.split(",")
    )


def neighbours(problem: LaunchProblem) -> Iterator[tuple[str, LaunchConfig]]:
    """Launches that differ from the default in one setting, each once and with that as its text.
    Who computes a product, and by which instructions, opens questions of its own: each answer has
    neighbours too."""
    default: Settings = {}
    seen = {_launch(problem, default)}
    around = deque([default])
    while around:
        fixed = around.popleft()
        for question, option in _alternatives(problem, fixed):
            changed = {**fixed, question: option}
            launch = _launch(problem, changed)
            if launch in seen:
                continue
            seen.add(launch)
            yield ",".join(f"{parameter_of(q)}={o}" for q, o in changed.items()), launch
            if parameter_of(question) in _OPENING:
                around.append(changed)


def _launch(problem: LaunchProblem, fixed: Settings) -> LaunchConfig:
    """The default but for what is fixed."""

    def choose(name: str, options: tuple[Setting, ...]) -> Setting:
        return fixed.get(name, options[0])

    return problem.space.choose(problem.graph, problem.group, choose, "k")


def _alternatives(problem: LaunchProblem, fixed: Settings) -> list[tuple[str, Setting]]:
    """Questions of the launch space that are not answered yet, with an option that is not their
    default."""
    found: list[tuple[str, Setting]] = []

    def first(name: str, options: tuple[Setting, ...]) -> Setting:
        if name in fixed:
            return fixed[name]
        whole = parameter_of(name) in _WHOLE
        few = 1 if fixed else _OPTIONS
        found.extend((name, o) for o in options[1 : None if whole else 1 + few])
        return options[0]

    problem.propose(first)
    return found
