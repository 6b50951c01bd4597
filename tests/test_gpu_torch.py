"""On a GPU: islands of PyTorch, on its streams and in its memory."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")  # an extra of its own

import autofuse  # noqa: E402 - after torch
from autofuse import spec, xp  # noqa: E402 - after torch
from autofuse.torch import explain  # noqa: E402 - after torch

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _cuda() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch was built without CUDA")
    torch._dynamo.reset()
    torch.manual_seed(0)


def program(x: Any, y: Any, s: Any) -> Any:
    z = torch.softmax(x @ y, -1) * s
    return z.flip(0).cumsum(0) / (1 + z.abs().sum(0)), z.mean()


def given() -> tuple[Any, Any, Any]:
    both = torch.rand(64, 96, device="cuda"), torch.rand(96, 48, device="cuda")
    return (*both, torch.tensor(3.0))


def test_a_program_on_the_gpu_is_as_eager_on_any_stream() -> None:
    compiled = torch.compile(program, backend="autofuse")
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for _ in range(20):
                x = given()
                torch.testing.assert_close(compiled(*x), program(*x), rtol=1e-4, atol=1e-5)
    assert {i.device for g in explain(program, *given()).graphs for i in g.islands} == {"cuda"}


def test_gradients_are_those_of_eager() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 96), torch.nn.GELU(), torch.nn.LayerNorm(96)
    ).cuda()  # fmt: skip
    x, compiled = torch.rand(32, 64, device="cuda"), torch.compile(model, backend="autofuse")
    parameters = list(model.parameters())
    wanted = torch.autograd.grad(model(x).square().sum(), parameters)
    for got, want in zip(
        torch.autograd.grad(compiled(x).square().sum(), parameters), wanted, strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


def test_a_caller_may_capture_a_compiled_program() -> None:
    compiled = torch.compile(program, backend="autofuse")
    x, y, s = given()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            compiled(x, y, s)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = compiled(x, y, s)
    for _ in range(3):
        x.uniform_()
        graph.replay()
        torch.testing.assert_close(found, program(x, y, s), rtol=1e-4, atol=1e-5)


def test_an_operator_of_a_cuda_plan() -> None:
    graph = autofuse.trace(lambda x: {"y": xp.exp(x) * 2}, spec((4, 8)))
    op = autofuse.compile(graph, device="cuda").torch_op("on_gpu")
    x = torch.rand(4, 8, device="cuda")
    torch.testing.assert_close(op(x), x.exp() * 2)
    with pytest.raises(autofuse.AutofuseError, match="for tensors on cuda:0, not cpu"):
        plan_of_two()(x, x.cpu())


def plan_of_two() -> Any:
    graph = autofuse.trace(lambda x, y: {"y": x + y}, spec((4, 8)), spec((4, 8)))
    return autofuse.compile(graph, device="cuda").torch_op("two_on_gpu")
