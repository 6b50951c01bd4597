"""Plans as functions of other packages' arrays: DLPack, operators of PyTorch, calls of JAX."""

from __future__ import annotations

import gc
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import autofuse
from autofuse import AutofuseError, spec, xp
from autofuse.interop.torch.call import port_of, tensor_call
from autofuse.interop.torch.device import HOST, IslandPlace

torch = pytest.importorskip("torch")  # an extra of its own

X = np.arange(12, dtype=np.float32).reshape(3, 4) / 10
N = np.array([2, 1, 3], np.int32)


def scaled(x: Any, n: Any, w: Any) -> dict[str, Any]:
    return {"y": xp.exp(x) * w * n[:, None], "m": n + 1}


def wanted(x: Any, n: Any) -> Any:
    return (np.exp(x) * 2 * n[:, None]).astype(np.float32)


@pytest.fixture(scope="module")
def plan() -> Any:
    graph = autofuse.trace(scaled, spec((3, 4)), spec(3, dtype="i32"), spec(4, constant=True))
    return autofuse.compile(graph, device="cpu", constants={"w": np.full(4, 2, np.float32)})


@pytest.fixture(scope="module")
def gradient() -> Any:
    def gradients(x: Any, n: Any, g: Any) -> Any:
        return {"x": xp.exp(x) * 2 * n[:, None] * g}

    graph = autofuse.trace(gradients, spec((3, 4)), spec(3, dtype="i32"), spec((3, 4)))
    return autofuse.compile(graph, device="cpu")


def test_arrays_of_all_packages_are_taken_in_place(plan: Any) -> None:
    both = torch.from_numpy(X), jnp.asarray(N)
    y, m = plan(*both)
    np.testing.assert_allclose(y, wanted(X, N), rtol=1e-6)
    assert torch.from_dlpack(y).tolist() == y.tolist()
    assert jnp.from_dlpack(m).tolist() == (N + 1).tolist()
    turned = torch.from_numpy(np.ascontiguousarray(X.T)).T
    np.testing.assert_array_equal(plan(turned, both[1])[0], y)


def test_results_may_be_tensors(plan: Any) -> None:
    y, m = torch.empty(3, 4), torch.empty(3, dtype=torch.int32)
    plan.run((X, N), (y, m))
    np.testing.assert_allclose(y.numpy(), wanted(X, N), rtol=1e-6)
    with pytest.raises(AutofuseError, match="output 0 must be contiguous"):
        plan.run((X, N), (torch.empty(4, 3).T, m))


def test_halves_have_no_name_in_numpy() -> None:
    plan = autofuse.compile(autofuse.trace(lambda x: {"y": x + x}, spec(4, dtype="bf16")))
    for given in (torch.arange(4, dtype=torch.bfloat16), jnp.arange(4, dtype=jnp.bfloat16)):
        (found,) = plan(given)
        assert found.dtype == ml_dtypes.bfloat16
        assert found.tolist() == [0, 2, 4, 6]


def test_what_cannot_be_read_is_said(plan: Any) -> None:
    with pytest.raises(AutofuseError, match=r"input 0 cannot be read: .*require"):
        plan(torch.from_numpy(X).requires_grad_(), N)
    with pytest.raises(AutofuseError, match="input 0 is a list"):
        plan([1.0], N)


def test_a_call_asks_where_tensors_are(plan: Any) -> None:
    x, n = torch.from_numpy(X), torch.from_numpy(N)
    y, m = torch.empty(X.shape), torch.empty(N.shape, dtype=torch.int32)
    ports = [port_of(x), port_of(n)], [port_of(y), port_of(m)]
    call = tensor_call(plan.loaded, IslandPlace(HOST), *ports)
    wide = torch.zeros(3, 9)[:, 1::2].copy_(x)
    for given in (x, wide, x.T.contiguous().T, torch.nn.Parameter(x)):
        torch.testing.assert_close(call(given, n)[0], torch.from_numpy(wanted(X, N)))
    with pytest.raises(AutofuseError, match=r"for a tensor of shape \[3, 4\], not \[2, 4\]"):
        call(x[:2], n)
    with pytest.raises(IndexError):
        call(x)


def test_an_operator_of_pytorch(plan: Any) -> None:
    op = plan.torch_op("scaled")
    x, n = torch.from_numpy(X), torch.from_numpy(N)
    torch.testing.assert_close(op(x, n)[0], torch.from_numpy(wanted(X, N)))
    torch.testing.assert_close(torch.ops.autofuse.scaled(x.T.contiguous().T, n), op(x, n))
    compiled = torch.compile(lambda x: op(x * 2, n)[0] + 1, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), op(x * 2, n)[0] + 1)
    with pytest.raises(AutofuseError, match=r"the plan takes x: f32\[3,4\], n: i32\[3\], not"):
        op(x[:2], n)
    with pytest.raises(AutofuseError, match="there is an operator autofuse::scaled already"):
        plan.torch_op("scaled")
    with pytest.raises(AutofuseError, match="is no name"):
        plan.torch_op("my op")
    y, _ = op(x.clone().requires_grad_(), n)
    with pytest.raises(AutofuseError, match="gradient of autofuse::scaled is not known"):
        y.sum().backward()


def test_an_operator_with_gradients(plan: Any, gradient: Any) -> None:
    op = plan.torch_op("scaled_too", backward=gradient)
    x, n = torch.from_numpy(X).clone().requires_grad_(), torch.from_numpy(N)
    for call in (op, torch.compile(op, backend="aot_eager", fullgraph=True)):
        (found,) = torch.autograd.grad((call(x, n)[0] * 3).sum(), x)
        torch.testing.assert_close(found, torch.from_numpy(wanted(X, N) * 3))
    torch.library.opcheck(op, (x, n))
    with pytest.raises(AutofuseError, match=r"a plan of gradients takes \(f32\[3,4\], i32\[3\], "):
        gradient.torch_op("wrong", backward=plan)


def test_a_function_in_jax_programs(plan: Any, gradient: Any) -> None:
    fast = plan.jax()
    for call in (fast, jax.jit(fast)):
        y, m = call(X, N)
        np.testing.assert_allclose(y, wanted(X, N), rtol=1e-6)
        assert m.tolist() == (N + 1).tolist()
    with pytest.raises(AutofuseError, match=r"argument 'n' must be i32\[3\], not float32\[3\]"):
        fast(X, N.astype(np.float32))
    with pytest.raises(ValueError, match="differentiated"):
        jax.grad(lambda x: fast(x, N)[0].sum())(X)
    known = plan.jax(backward=gradient)
    found = jax.jit(jax.grad(lambda x: 3 * known(x, N)[0].sum()))(X)
    np.testing.assert_allclose(found, wanted(X, N) * 3, rtol=1e-6)


def test_plans_of_other_constants_are_others_in_jax(plan: Any) -> None:
    other = autofuse.compile(plan.graph, device="cpu", constants={"w": np.ones(4, np.float32)})
    np.testing.assert_allclose(plan.jax()(X, N)[0], 2 * other.jax()(X, N)[0], rtol=1e-6)


def test_what_jax_has_no_type_for_is_refused() -> None:
    graph = autofuse.trace(lambda x: {"y": x * 2}, spec(4, dtype="f64"))
    with pytest.raises(AutofuseError, match=r"JAX has no f64\[4\] here: set jax_enable_x64"):
        autofuse.compile(graph, device="cpu").jax()


def test_what_is_handed_back_keeps_its_library(plan: Any) -> None:
    def made() -> Any:
        graph = autofuse.trace(lambda x: {"y": xp.softmax(x @ x, axis=-1)}, spec((4, 4)))
        return autofuse.compile(graph, device="cpu").torch_op("kept")

    op, x = made(), torch.rand(4, 4)
    gc.collect()
    torch.testing.assert_close(op(x), torch.softmax(x @ x, -1))
