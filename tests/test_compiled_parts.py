"""Comparing in compiled code says what NumPy's definition says, and fingerprints tell changes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse.measure.check.compare import OutputReference, WorkloadReference, check
from autofuse.measure.check.compiled_parts import WORTH_BYTES, Compiled, compiled, fingerprints
from autofuse.measure.check.parts import ANY_FINITE, PART, numpy_parts
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType

SPECIAL = (0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, 1e300, -3e38, 65504.0, 6e-8)
ROOMS = (0.0, 1e-6, 0.5, float(ANY_FINITE), np.inf)


@pytest.fixture(scope="module")
def library() -> Compiled:
    found = compiled()
    assert found is not None
    return found


def fingerprint(array: np.ndarray) -> bytes:
    (found,) = fingerprints((array,))
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, OutputReference]:
    """An output and what it is held to: mostly right, with whatever may be wrong here and there."""
    dtype = draw(st.sampled_from(list(DType)))
    size = draw(st.sampled_from([0, 1, 3, 255, 256, 257, 1000, PART - 1, PART, 2 * PART + 5]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    if dtype.is_float:
        expected = random.normal(size=size)
        with np.errstate(all="ignore"):
            values = expected.astype(dtype.numpy)
    else:
        expected = random.integers(0, 2 if dtype is DType.BOOL else 100, size).astype(dtype.numpy)
        values = expected.copy()
    tolerance = np.full(size, draw(st.sampled_from([0.0, 1e-7, 1e-2])), np.float32)
    for _ in range(draw(st.integers(0, 4)) if size else 0):
        at = random.integers(size)
        if dtype.is_float:
            with np.errstate(all="ignore"):
                values[at] = np.float64(draw(st.sampled_from(SPECIAL))).astype(dtype.numpy)
            if draw(st.booleans()):
                expected[at] = draw(st.sampled_from(SPECIAL))
        else:
            values.view(np.uint8)[at * dtype.numpy.itemsize] = draw(st.integers(0, 255))
        tolerance[at] = draw(st.sampled_from(ROOMS))
    finite = expected.astype(np.float64)
    finite = finite[np.isfinite(finite)] / 1e200
    rms = 1e200 * math.sqrt(float(np.mean(finite**2))) if finite.size else 0.0
    bound = draw(st.sampled_from([0.0, 1e-6, 1e-2, np.inf]))
    outliers = draw(st.sampled_from([0, 0, 1, 3]))
    norm = rms * math.sqrt(finite.size)
    type_ = TensorType((size,), dtype)
    return values, OutputReference(type_, expected, tolerance, rms, norm, bound, outliers)


@settings(max_examples=400, deadline=None)
@given(cases())
def test_both_ways_to_compare_give_one_verdict(
    library: Compiled, case: tuple[np.ndarray, OutputReference]
) -> None:
    values, wanted = case
    reference = WorkloadReference((wanted,))
    ours, numpys = (check((values,), reference, p) for p in (library.parts, numpy_parts))
    assert (ours.ok, ours.message, ours.blind) == (numpys.ok, numpys.message, numpys.blind)
    assert ours.max_rel_error == pytest.approx(numpys.max_rel_error, rel=1e-12, abs=0.0)


@settings(max_examples=100, deadline=None)
@given(cases())
def test_parts_are_equal_one_by_one(
    library: Compiled, case: tuple[np.ndarray, OutputReference]
) -> None:
    values, wanted = case
    pairs = list(
        zip(library.parts(values, wanted.held), numpy_parts(values, wanted.held), strict=True)
    )
    for ours, numpys in pairs:
        places = [(p.beyond, p.first, p.broken) for p in (ours, numpys)]
        assert places[0] == places[1]
        assert ours.worst == pytest.approx(numpys.worst, rel=1e-12, abs=0.0)
        assert ours.square == pytest.approx(numpys.square, rel=1e-9, abs=1e-300)


def test_an_element_that_the_reference_says_nothing_of_hides_no_error_of_others(
    library: Compiled,
) -> None:
    expected, values = np.ones(8), np.ones(8, np.float32)
    expected[0] = values[0] = np.nan
    values[5] = 1 + 2**-20
    type_ = TensorType((8,), DType.F32)
    wanted = OutputReference(type_, expected, np.full(8, 1e-3, np.float32), 1.0, 8**0.5, 1.0, 0)
    for parts in (library.parts, numpy_parts):
        found = check((values,), WorkloadReference((wanted,)), parts)
        assert found.ok and found.max_rel_error == pytest.approx(2**-21)


SIZES = [1, 65, 1000, WORTH_BYTES - 1, *range(WORTH_BYTES, WORTH_BYTES + 66, 13), (1 << 20) + 13]


@pytest.mark.parametrize("size", SIZES)
def test_a_fingerprint_tells_every_changed_byte(size: int) -> None:
    random = np.random.default_rng(size)
    array = random.integers(0, 256, size).astype(np.uint8)
    before = fingerprint(array)
    assert fingerprint(array.copy()) == before
    for at in {0, size // 2, size - 1, *random.integers(0, size, 20).tolist()}:
        for bit in (1, 128):
            changed = array.copy()
            changed[at] ^= bit
            assert fingerprint(changed) != before, (at, bit)


@pytest.mark.parametrize("size", [4096, WORTH_BYTES])
def test_a_fingerprint_tells_swapped_and_negated_elements(size: int) -> None:
    x = np.random.default_rng(0).normal(size=size).astype(np.float32)
    swapped = x.copy()
    swapped[[0, 16]] = swapped[[16, 0]]
    assert len({fingerprint(a) for a in (x, swapped, -x, x[::-1], np.abs(x))}) == 5


def test_without_a_compiler_numpy_compares(tmp_path: Path) -> None:
    text = (
        "import numpy as np\n"
        "from autofuse.measure.check.compiled_parts import compiled, fingerprints, parts\n"
        "from autofuse.measure.check.parts import Held\n"
        "assert compiled() is None\n"
        "x = np.ones(1 << 20)\n"
        "(found,) = {p.beyond for p in parts(x, Held(x + 1, np.zeros(1 << 20), 1, 1, False))}\n"
        "assert found == 1 << 16 and fingerprints((x,)) != fingerprints((x + 1,))\n"
    )
    environment = os.environ | {"CC": "/nowhere/cc", "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", text], env=environment, check=True)


def test_every_half_precision_number_is_read_as_numpy_reads_it(library: Compiled) -> None:
    for dtype in (DType.F16, DType.BF16):
        values = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
        with np.errstate(all="ignore"):
            expected = values.astype(np.float64)
        type_ = TensorType(values.shape, dtype)
        none = np.zeros(values.shape, np.float32)
        wanted = OutputReference(type_, expected, none, 1.0, 1.0, 0.0, 0)
        assert check((values,), WorkloadReference((wanted,)), library.parts).ok
