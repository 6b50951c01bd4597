"""CUDA text to a host library: the emulator's header before it, a caller for each kernel after it.

The text itself is what NVRTC gets, but for two changes: `extern __shared__ T name[]` becomes a
checked pointer, and each kernel's `__shared__` variables get a section of their own. Device
functions come before the first kernel of a text. Kernels take buffers declared by the prelude's
AF_IN, AF_OUT and AF_WORK (or AF_IN_LATER, AF_OUT_LATER), scalars and tensor maps
(AF_MAP) by value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from autofuse.backends.base import CompileError, building
from autofuse.backends.cache import BuildCache, content_key
from autofuse.backends.ccompiler import UNIT_LIMIT_S, BuildStep, make_file, recall
from autofuse.backends.toolchain import Compiler, find_cxx
from autofuse.kernel.cuda.wgmma import launched_registers
from autofuse.kernel.text.dialects import CUDA
from autofuse.limits import usable_cores

BASE_FLAGS = ("-std=gnu++17", "-fPIC", "-fno-exceptions", "-fwrapv", "-fno-strict-aliasing", "-w")
KERNEL_FLAGS = (
    "-O0",  # compiling is what takes time: the checks at each access outweigh the rest
    "-ffp-contract=off",
    "-ftrivial-auto-var-init=pattern",  # what was never assigned must show
    "-fsanitize=bounds,alignment",  # the runtime has the handlers: no library of the compiler's
    "-fno-sanitize-recover=all",
)
RUNTIME_FLAGS = ("-O2",)
RUNTIME_PARTS = (
    "core.h",
    "fibers.h",
    "memory.h",
    "waiting.h",
    "async.h",
    "matrix.h",
    "warpgroup.h",
    "boxes.h",
    "cluster.h",
    "launch.h",
)
KERNEL_PARTS = ("core.h", "emulate.h", "builtins.h")
# Kernels per translation unit: each unit pays for the prelude.
PER_UNIT = 64
_HEAD = re.compile(
    r'extern\s+"C"\s+__global__\s+(?:__launch_bounds__\s*\((?P<before>[^()]*)\)\s*)?void\s+'
    r"(?:__cluster_dims__\s*\(\s*(?P<cluster>\d+)[^()]*\)\s*)?"
    r"(?:__launch_bounds__\s*\((?P<bounds>[^()]*)\)\s*)?(?P<name>\w+)\s*\("
)
_BUFFER = re.compile(r"AF_(IN|OUT|WORK|MAP)(?:_LATER)?\s*\(\s*([\w ]+?)\s*,\s*(\w+)\s*\)")
_SCALAR = re.compile(r"(?:const\s+)?([\w ]+?)\s+(\w+)")
_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?:__align__\s*\(\s*\d+\s*\)\s*)?([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;"
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter as the kernel's head declares it; `role` is "in", "out", "work", "map" or
    "scalar"."""

    name: str
    ctype: str
    role: str


@dataclass(frozen=True, slots=True)
class Head:
    """A kernel found in a text; `most_threads` is its launch bound, 0 without one, `least_blocks`
    how many of its blocks a multiprocessor is to hold, 0 if that is not said, and `cluster` the
    blocks of its clusters."""

    name: str
    parameters: tuple[Parameter, ...]
    most_threads: int
    cluster: int = 1
    least_blocks: int = 0

    @property
    def registers(self) -> int:
        """Of a thread when a kernel begins whose registers change hands: as many as its launch
        bounds leave (PTX ISA, setmaxnreg); 0 where they say no number of blocks."""
        return launched_registers(self.most_threads, self.least_blocks) if self.least_blocks else 0


def heads(text: str) -> tuple[Head, ...]:
    """The kernels that a CUDA text defines. Raises CompileError for a parameter of another kind."""
    return tuple(_head(text, match) for match in _HEAD.finditer(text))


def _head(text: str, match: re.Match[str]) -> Head:
    bounds, name = match["before"] or match["bounds"], match["name"]
    declared = _arguments(text, match.end())
    numbers = [number.strip() for number in (bounds or "0").split(",")]
    if not all(number.isdecimal() for number in numbers):
        raise CompileError(f"the launch bounds of kernel {name} are no number: {bounds}")
    most, blocks = (*map(int, numbers), 0)[:2]
    parameters = tuple(_parameter(name, part) for part in declared)
    return Head(name, parameters, most, int(match["cluster"] or 1), blocks)


def _arguments(text: str, start: int) -> list[str]:
    """What stands between commas from `start` to the parenthesis that ends the list."""
    depth, parts = 0, [""]
    for character in text[start:]:
        if character == ")" and depth == 0:
            break
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _parameter(kernel: str, text: str) -> Parameter:
    if buffer := _BUFFER.fullmatch(text):
        role = buffer[1].lower()
        return Parameter(buffer[3], "af::TensorMap" if role == "map" else buffer[2], role)
    if scalar := _SCALAR.fullmatch(text):
        return Parameter(scalar[2], scalar[1], "scalar")
    raise CompileError(f"kernel {kernel} has a parameter that the emulator cannot pass: {text}")


def build(texts: Sequence[str], cache: BuildCache | None = None) -> tuple[Path, tuple[Head, ...]]:
    """A library with all kernels of `texts` and the runtime, and what the kernels are.

    Raises CompileError, and CompilerMissing without a C++ compiler."""
    compiler, store = find_cxx(), cache or BuildCache()
    found = {head.name: (head, text) for text in texts for head in heads(text)}
    if len(found) != sum(len(heads(text)) for text in texts):
        raise CompileError("two kernels for the emulator have one name")
    # Linked in this order: what is between the edges are variables of kernels.
    units: list[tuple[str, tuple[str, ...], str]] = [
        (_edge("first"), RUNTIME_FLAGS, "an edge"),
        *((_unit(unit), KERNEL_FLAGS, "emulated kernels") for unit in _merged(texts)),
        (_edge("last"), RUNTIME_FLAGS, "an edge"),
        (_parts(RUNTIME_PARTS), RUNTIME_FLAGS, "the emulator's runtime"),
    ]
    with building("the emulated kernels"), ThreadPoolExecutor(usable_cores()) as pool:
        objects = list(pool.map(lambda u: _compile(compiler, store, *u), units))
        library = _link(compiler, store, objects)
    return library.path, tuple(head for head, _ in found.values())


def _merged(texts: Sequence[str]) -> Iterator[str]:
    """Texts that start with the prelude, many to a unit; others as they are."""
    prelude = CUDA.prelude
    with_prelude = [text[len(prelude) :] for text in texts if text.startswith(prelude)]
    yield from (text for text in texts if not text.startswith(prelude))
    for start in range(0, len(with_prelude), PER_UNIT):
        yield "\n".join([prelude, *with_prelude[start : start + PER_UNIT]])


def _unit(text: str) -> str:
    """The C++ text of one unit. All but the entries is local to it: static variables of inline
    functions could not be in a section otherwise."""
    text = _DYNAMIC.sub(r"AF_DYNAMIC(\1, \2);", text)
    placed = _HEAD.sub(lambda m: f"{_section(m['name'])}{m[0]}", text)
    return "\n".join(
        [
            _parts(KERNEL_PARTS),
            "namespace {",
            '#define AF_SECTION "af_shared"',
            '#line 1 "the prelude"',
            placed,
            "}",
            *(_caller(head) for head in heads(text)),
        ]
    )


def _edge(name: str) -> str:
    """A unit that marks where the uninitialised variables of others begin or end."""
    kind = '__attribute__((visibility("hidden"), aligned(64))) char'
    return f'extern "C" {{ {kind} af_statics_{name}[64]; }}'


def _section(name: str) -> str:
    return f'\n#undef AF_SECTION\n#define AF_SECTION "af_shared_{name}"\n#line 1 "kernel {name}"\n'


def _caller(head: Head) -> str:
    """The entry that the runtime calls, outside the unit's own namespace."""
    name, made, described = head.name, [], []
    for k, p in enumerate(head.parameters):
        scalar, kind = p.role in ("scalar", "map"), "In" if p.role == "in" else "Out"
        made.append(
            f"*(const {p.ctype} *)b[{k}].data" if scalar else f"af::{kind}<{p.ctype}>(b + {k})"
        )
        described.append(f'{{"{p.name}", sizeof({p.ctype}), {int(p.role in ("out", "work"))}}}')
    parameters = ", ".join([*described, "{}"])
    return "\n".join(
        [
            f"static const af::Parameter parameters_{name}[] = {{{parameters}}};",
            f"static void call_{name}(af::Buffer *b) {{ {name}({', '.join(made)}); }}",
            f"AF_ENTRY({name}, {len(made)})",
        ]
    )


def _parts(names: Sequence[str]) -> str:
    folder = files("autofuse.backends.emulator")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


def _compile(
    compiler: Compiler, cache: BuildCache, text: str, flags: tuple[str, ...], what: str
) -> BuildStep:
    flags = (*BASE_FLAGS, *flags)
    key = content_key(["emulated object", compiler.identity, *flags, text])
    known = recall(cache, key, ".o")
    if known is not None:
        return known
    source = cache.temporary(".cpp")
    try:
        source.write_text(text, encoding="utf-8")
        command = [*compiler.command, *flags, "-c", str(source)]
        return make_file(command, cache, key, ".o", what, UNIT_LIMIT_S)
    finally:
        source.unlink(missing_ok=True)


def _link(compiler: Compiler, cache: BuildCache, objects: Sequence[BuildStep]) -> BuildStep:
    key = content_key(["emulated library", compiler.identity, *(o.path.stem for o in objects)])
    known = recall(cache, key, ".so")
    if known is not None:
        return known
    paths = dict.fromkeys(str(step.path) for step in objects)
    command = [*compiler.command, "-shared", *paths, "-lm"]
    return make_file(command, cache, key, ".so", "the emulated library", UNIT_LIMIT_S)
