"""Every row of the op table against its own reference: types, values, axis maps, costs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autofuse.ops.spec import Family, OpSpec, Sample, all_specs, register
from tests.support import op_bodies as of

CASES = [
    pytest.param(spec, sample, id=f"{spec.name}-{n}-{','.join(map(str, sample.ins))}")
    for spec in all_specs()
    for n, sample in enumerate(spec.samples())
]


def samples(wanted: Callable[[OpSpec, Sample], bool] = lambda *_: True) -> pytest.MarkDecorator:
    """The test, for each sample of which there is something to say."""
    cases = [case for case in CASES if wanted(*case.values)]
    return pytest.mark.parametrize(("spec", "sample"), cases)


@samples()
def test_reference_gives_the_inferred_types(spec: OpSpec, sample: Sample) -> None:
    of.check_types(spec, sample)


@samples(of.has_body)
def test_body_agrees_with_reference(spec: OpSpec, sample: Sample) -> None:
    of.check_body(spec, sample)


@samples(of.has_literal_body)
def test_body_agrees_at_literal_indices(spec: OpSpec, sample: Sample) -> None:
    of.check_body(spec, sample, literal=True)


@samples(of.has_axes)
def test_axes_that_pass_through_have_one_extent(spec: OpSpec, sample: Sample) -> None:
    of.check_axes(spec, sample)


@samples(of.passes_axes)
def test_axes_that_pass_through_are_pulled_as_they_are(spec: OpSpec, sample: Sample) -> None:
    of.check_pulls(spec, sample)


def test_only_loops_have_no_axis_map() -> None:
    assert {spec.family for spec in all_specs() if spec.axes is None} == {Family.CONTROL}


def test_every_row_has_small_samples() -> None:
    for spec in all_specs():
        # Inputs have nothing to sample, and loops need graphs.
        assert spec.samples() or spec.name in ("input", "loop", "while"), spec.name
        for sample in spec.samples():
            assert all(np.prod(t.shape) < 5000 for t in sample.ins), spec.name


def test_a_name_is_registered_once() -> None:
    spec = all_specs()[0]
    with pytest.raises(ValueError, match="registered twice"):
        register(spec)
