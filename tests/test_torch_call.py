"""What the call of a plan asks of the tensors that it is given, and where it finds that out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")  # an extra of its own

import autofuse  # noqa: E402 - after torch
from autofuse import spec, xp  # noqa: E402 - after torch
from autofuse.errors import AutofuseError  # noqa: E402 - after torch
from autofuse.interop.torch import exchange as torch_exchange  # noqa: E402 - after torch
from autofuse.interop.torch.call import TensorCall, port_of, tensor_call  # noqa: E402 - after torch
from autofuse.interop.torch.device import HOST, IslandPlace  # noqa: E402 - after torch


class Marked(torch.Tensor):
    """A tensor of another class."""


def called(like: Any) -> TensorCall:
    """A plan of exp(x) * 2 for tensors that lie as this one."""
    shape, dtype = tuple(like.shape), str(like.dtype)[6:].replace("float", "f")
    graph = autofuse.trace(lambda x: {"y": xp.exp(x) * 2}, spec(shape, dtype))
    ports = [port_of(like)]
    return tensor_call(
        autofuse.compile(graph, device="cpu").loaded, IslandPlace(HOST), ports, ports
    )


X = torch.arange(24.0).reshape(4, 6) / 24


@pytest.mark.parametrize(
    "made",
    [
        torch.clone,
        torch.nn.Parameter,
        torch.nn.Buffer,
        lambda x: x.as_subclass(Marked),
        lambda x: torch.cat((x, x))[4:],
        lambda x: x.t().contiguous().t(),
        lambda x: x.repeat_interleave(2, 1)[:, ::2],
    ],
    ids=["tensor", "parameter", "buffer", "subclass", "offset", "transposed", "strided"],
)
def test_any_tensor_of_these_numbers_is_read(made: Callable[[Any], Any]) -> None:
    call = called(X)
    with torch.no_grad():
        (y,) = call(made(X))
    np.testing.assert_allclose(y.numpy(), 2 * np.exp(X.numpy()), rtol=1e-6)


def test_memory_that_was_replaced_is_read() -> None:
    """The object is the one that was read before."""
    call, x = called(X), X.clone()
    call(x)
    x.data = X * 3
    np.testing.assert_allclose(call(x)[0].numpy(), 2 * np.exp(3 * X.numpy()), rtol=1e-6)
    x.set_((X * 2).t().contiguous().t())
    np.testing.assert_allclose(call(x)[0].numpy(), 2 * np.exp(2 * X.numpy()), rtol=1e-6)


def test_five_axes_and_more_are_read() -> None:
    """PyTorch keeps the extents of the first five in the tensor itself."""
    for rank in (0, 5, 6, 8):
        x = torch.rand((2,) * rank)
        np.testing.assert_allclose(called(x)(x)[0].numpy(), 2 * np.exp(x.numpy()), rtol=1e-6)


def test_what_does_not_fit_is_refused() -> None:
    call = called(X)
    with pytest.raises(AutofuseError, match=r"made for a tensor of torch.float32, not torch.int32"):
        call(X.int())
    with pytest.raises(AutofuseError, match=r"made for a tensor of shape \[4, 6\], not \[6, 4\]"):
        call(X.reshape(6, 4))
    with pytest.raises(AutofuseError, match=r"made for tensors on cpu, not meta"):
        call(X.to("meta"))
    with pytest.raises(AutofuseError, match=r"made for a tensor of torch.float32, not float32"):
        call(X.numpy())


def test_what_has_no_memory_of_its_own_is_refused() -> None:
    """It lies as it should, as far as Python can tell, and nothing can be copied."""
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = mode.from_tensor(X)
    with pytest.raises(AutofuseError, match="tensors that have memory of their own"):
        called(X)(fake)


def test_where_objects_hold_what_is_asked_is_found() -> None:
    """Two words of one object that are alike say nothing."""
    probes = [X, torch.nn.Parameter(X)]
    assert torch_exchange._offset(probes, lambda x: id(type(x))) > 0
    for word in (lambda _: -1, lambda _: None):
        with pytest.raises(AutofuseError, match="does not say where its tensors are"):
            torch_exchange._offset(probes, word)
