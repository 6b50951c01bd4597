"""A unit reads the parts of its head that it mentions, and no others."""

from __future__ import annotations

import re

import autofuse
from autofuse.backends.cpu.backend import program
from autofuse.backends.heads import needed_parts
from autofuse.devices import device_named
from autofuse.kernel.text.dialects import C
from autofuse.simplify import normal_form
from autofuse.tuning.plans import plan_named
from autofuse.zoo import zoo_graph

HEAD = "always\n/* part: af_one af_uno */\none\n/* part: af_two */\ntwo by af_one\n"


def test_parts_that_later_parts_mention_are_kept_too() -> None:
    assert needed_parts(HEAD, "nothing") == "always\n"
    assert needed_parts(HEAD, "af_uno_f32(x)") == "always\none\n"
    assert needed_parts(HEAD, "af_two()") == "always\none\ntwo by af_one\n"


def test_a_part_is_mentioned_by_all_that_it_defines() -> None:
    parts = re.split(r"^/\* part: (.+) \*/\n", C.prelude, flags=re.MULTILINE)[1:]
    assert len(parts) >= 14
    for names, text in zip(parts[::2], parts[1::2], strict=True):
        defined = re.findall(r"^(?:static inline |AF_INLINE )[\w ]*?(af_\w+)\(", text, re.MULTILINE)
        private = set(re.findall(r"(af_\w+?)_?(?:block|rest)\w*\(", text))
        for name in defined:
            known = any(name.startswith(prefix) for prefix in names.split())
            assert known or name in private, (name, names)


def test_kernels_with_memory_of_their_own_compile() -> None:
    """What is too large for a stack: no header of C is read for it."""
    graph = zoo_graph("sparse_product")
    form = normal_form(graph)
    sources = program(form, plan_named(form, "xla-2022", device_named("cpu"))).sources
    assert any("aligned_alloc" in source.text for source in sources)
    assert autofuse.compile(graph, device="cpu").trust.state == "checked"
