"""What no emulator sees of a kernel: read off its cubin, where faults are planted too."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from autofuse.backends.base import Source
from autofuse.backends.cuda.build import build_flags
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.cuda.nvrtc import compile_cubin
from benchmarks.sass import kernel_code
from benchmarks.sass_lint import JUMP, SET_REGISTERS, Text, compiled, text_of, words
from benchmarks.tensor_kernels import tensor_kernels, unit_for
from tests.support.cli_tools import call_script

H100 = TARGETS["H100"]
NAMED = {kernel.name: kernel for kernel in tensor_kernels()}
# One of each kind: tiles of a last wave in parts, turns, boxes, bytes, patches of images, strided
# ones that take registers to fetch, and attention.
SHORT = (
    "product 8192x8192x8192", "pieces 5000", "bytes 4096", "boxes True, epilogue",
    "convolution 28x128x512x1x1", "convolution 56x256x512x1x2", "convolution 7x512x512x3x1",
    "attention 128 causal",
)  # fmt: skip


def text_named(name: str) -> Text:
    return text_of(unit_for(NAMED[name], H100)[0])


@pytest.mark.wide(2)
@pytest.mark.parametrize("name", SHORT)
def test_default_kernels_on_tensor_cores_are_free_of_findings(name: str) -> None:
    assert compiled(text_named(name), H100) == []


@pytest.mark.slow
@pytest.mark.parametrize("device", ["A100", "H100", "B200"])
def test_every_default_kernel_on_tensor_cores_is_free_of_findings(device: str) -> None:
    target = TARGETS[device]
    for kernel in NAMED.values():
        assert compiled(text_of(unit_for(kernel, target)[0]), target) == [], kernel.name


# Names of what is wrong: the kernel, what stands in its text, what instead, and the rules that say
# so.
FAULTS = {
    "more_registers_than_there_are": (
        "pieces 8192", "af_take_registers(208)", "af_take_registers(216)", {"pool"},
    ),
    "too_few_given": ("pieces 8192", "af_give_registers(88)", "af_give_registers(96)", {"pool"}),
    "sums_defined_later": (
        "pieces 8192", r"for \(int32_t i = 0; i < 2; i\+\+\) af_keep_sums\(sums\[i\]\);", "",
        {"notes", "ordered"},
    ),
    "registers_that_fetching_has_not": (
        "convolution 56x256x512x1x2", r"af_give_registers\(88\)", "af_give_registers(24)",
        {"spills"},
    ),
    "waits_in_a_run": (
        "square 4096", r"(af_multiply_group\(.*\);)", r"\1 af_group_commit(); af_group_await(0);",
        {"ordered"},
    ),
    "a_box_less": ("boxes True", r"n < 2; n\+\+", "n < 1; n++", {"boxes"}),
    "bytes_that_never_come": (
        "boxes True", r"af_expect_bytes\((.*), 49152\)", r"af_expect_bytes(\1, 49168)", {"boxes"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str) -> None:
    name, old, new, rules = FAULTS[fault]
    one = text_named(name)
    if "(" in old and "\\" not in old:
        old = re.escape(old)
    changed, count = re.subn(old, new, one.body)
    assert count
    head = one.source.text.removesuffix(one.body)
    faulty = replace(one, source=replace(one.source, text=head + changed))
    assert {finding.rule for finding in compiled(faulty, H100)} >= rules


TWO_LOOPS = """extern "C" __global__ void __launch_bounds__(256, 1) k(float *x, int n)
{
  float kept[64];
  for (int i = 0; i < n; i++) kept[i * 7 % 64] = x[i];
  for (int i = 0; i < n; i++) x[i] += kept[i * 5 % 64];
}
"""


@pytest.mark.parametrize("device", ["A100", "H100", "B200"])
def test_jumps_back_are_found_on_every_architecture(device: str) -> None:
    """The last jump of a kernel is to itself, behind its end."""
    target, source = TARGETS[device], Source("k", TWO_LOOPS, ("--std=c++17",))
    code = kernel_code(compile_cubin(TWO_LOOPS, target.code_for, build_flags(source))[0], "k")
    arch = int(re.sub(r"\D", "", target.code_for))
    jumps = [word.jump(arch) for word in words(code) if word.operation == JUMP]
    assert jumps[-1] == 0 and any(-500 < jump < 0 for jump in jumps)
    found = compiled(Text(source, 256, frozenset(), {}), target)
    assert [finding.rule for finding in found] == ["spills"]


def test_registers_that_change_hands_are_read_off() -> None:
    text = 'extern "C" __global__ void __launch_bounds__(384, 1) k(float *x) { asm volatile('
    text += '"setmaxnreg.dec.sync.aligned.u32 40;"); x[0] = 1; }'
    made = words(kernel_code(compile_cubin(text, "sm_90a")[0], "k"))
    (change,) = (word for word in made if word.operation == SET_REGISTERS)
    assert change.low >> 32 & 0x1FF == 40 and change.high & 0xF00 == 0x500


def test_the_script_counts_kernels_and_ends_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("--targets", "H100", "--workloads", "softmax", "--sizes", "small", "--zoo-only")
    said = call_script(capsys, monkeypatch, "sass_lint", *asked)
    assert '"findings": 0' in said.out and said.code == 0
    assert call_script(capsys, monkeypatch, "sass_lint", "--targets", "nowhere").code == 2
