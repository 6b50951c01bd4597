"""Rules for aten overloads, graphs from fx nodes, and from_torch, against PyTorch itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse
from autofuse.errors import AutofuseError
from autofuse.frontends.errors import FrontendError
from autofuse.frontends.torch import fx as torch_fx
from autofuse.frontends.torch.fx import decompositions, fx_graph, op_name, refusal
from autofuse.frontends.torch.rules import RULES
from autofuse.frontends.torch.types import promoted
from autofuse.graph.canonical import digest
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType
from autofuse.sources import load_source

torch = pytest.importorskip("torch")  # an extra of its own
F = torch.nn.functional
Program = Callable[..., Any]


def calls_of(program: Program, *tensors: Any, dynamic: bool = False) -> tuple[Any, list[Any]]:
    """A traced and decomposed program, and its calls."""
    from torch.fx.experimental.proxy_tensor import make_fx

    mode = "symbolic" if dynamic else "fake"
    traced = torch.func.functionalize(program, remove="mutations")
    module = make_fx(traced, decomposition_table=decompositions(), tracing_mode=mode)(*tensors)
    return module, [n for n in module.graph.nodes if n.op == "call_function"]


def graph_of(program: Program, *tensors: Any) -> Graph:
    module, calls = calls_of(program, *tensors)
    assert [said for said in map(refusal, calls) if said] == []
    inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
    made = module.graph.output_node().args[0]
    return fx_graph(calls, inputs, made if isinstance(made, list | tuple) else [made], "test")


def seeded(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) * 7 + sum(shape)))


X, Q = seeded(2, 3, 8, 6), seeded(2, 4, 6, 8)
PLACES = torch.tensor([1, -2, 3])
MASK = torch.tril(torch.ones(6, 6)).bool()
MASK[0] = False


def gradients(program: Program) -> Program:
    """The gradients of the sum of what a program gives."""

    def of(*tensors: Any) -> Any:
        every = tuple(range(len(tensors)))
        return torch.func.grad(lambda *given: program(*given).sin().sum(), every)(*tensors)

    return of


def overwritten(x: Any) -> Any:
    x = x.new_empty_strided(x.mT.shape, x.mT.stride()).mT.copy_(x)
    x[:, :, 1:7:2] = x[:, :, 1:4] * 2
    x[:, 1].mul_(2)
    return x


PROGRAMS: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "activations": (lambda x: F.gelu(x) + F.silu(x) * 2 + F.elu(x) - F.softmax(x, 1), (X,)),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (Q,)),
    "attention of groups": (
        lambda q: F.scaled_dot_product_attention(q, q[:, :2], q[:, 2:], enable_gqa=True), (Q,)
    ),
    "attention with a mask": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m, scale=0.3), (Q, MASK)
    ),
    "attention's gradients": (
        gradients(lambda q, k: F.scaled_dot_product_attention(q, k, q * k, is_causal=True)),
        (Q, seeded(2, 4, 6, 8)),
    ),
    "convolution": (
        gradients(lambda x, k: F.conv2d(x, k, padding=1, stride=2, dilation=2)),
        (X, seeded(4, 3, 3, 3)),
    ),
    "transposed convolution": (
        gradients(lambda x, k: F.conv_transpose2d(x, k, stride=2, padding=1, dilation=2,
                                                  output_padding=1, groups=3)),
        (X, seeded(3, 2, 3, 3)),
    ),
    "activations with gradients": (
        gradients(lambda x: F.logsigmoid(x) + F.softplus(x, 2, 1) - F.mish(x) + F.celu(x, 1.5)
                  + F.hardswish(x) - F.hardsigmoid(x) + F.selu(x) + F.leaky_relu(x, -0.5)), (X,)
    ),
    "shifts": (lambda i: (i << 1, i >> 1, i.abs() << i.abs(), i >> i.abs()), (PLACES,)),
    "cumulative": (
        lambda x: (x.cumsum(1), x.cumprod(-1), *torch.cummax(x, 2), x.logcumsumexp(0)), (X,)
    ),
    "histograms": (
        lambda x: (x.histc(7), x.histc(4, -0.5, 1.5), (x * 0).histc(3), x.round().histc(5, 0, 4)),
        (X,),
    ),
    "index": (lambda x, i: (x[..., i], x[i % 2, :, i], x[:, i % 3, i], F.embedding(i + 2, x[0, 0])),
              (X, PLACES)),
    "lists": (
        lambda a, b: torch._foreach_lerp([a, b], [b * 2, a * 2], 0.8)
        + torch._foreach_addcdiv([a, b], [a, b], [b.abs() + 1, a.abs() + 1], [0.5, 2.0]),
        (seeded(4), seeded(4) * 2),
    ),
    "masks": (
        lambda x, m, n: (
            x.index_put((m,), x.flatten(0, 1)[:4]), x.index_put((m,), x[0, 0, 0]),
            torch.ops.aten.index_put(x, [None, n], x[:, 0, :5], True),
            (x > 0).index_put((m,), x.flatten(0, 1)[:4] > 0, accumulate=True),
        ),
        (X, torch.arange(6).view(2, 3) % 3 != 1, torch.arange(24).view(3, 8) % 5 == 1),
    ),
    "moves": (
        lambda x: (x.flip(1), x.roll(2, 3), x.unfold(2, 3, 2), x.tril(), F.pad(x, (1, -1, 2, 0)),
                   torch.diagonal(x, 1, 2, 3), torch.stack([x, x * 2], 1), x.repeat(1, 2, 1, 1)),
        (X,),
    ),
    "norms": (
        lambda x: (F.layer_norm(x, (8, 6)), F.group_norm(x, 3), F.instance_norm(x),
                   F.batch_norm(x, torch.zeros(3), torch.ones(3)), torch.linalg.vector_norm(x, 3)),
        (X,),
    ),
    "order": (lambda x: (*x.topk(3), *x.sort(1, descending=True), x.argsort(2)), (X,)),
    "overwritten": (overwritten, (X,)),
    "pooling": (
        gradients(lambda x: F.max_pool2d(x, 3, 2, 1) + F.avg_pool2d(x, 3, 2, 1)
                  + F.adaptive_avg_pool2d(x, (4, 3))),
        (X,),
    ),
    "pooling of whole numbers": (
        lambda i: (F.avg_pool2d(i, 3, 2, 1), F.avg_pool2d(i, 2, divisor_override=3),
                   F.avg_pool2d(i, 3, 2, 1, count_include_pad=False)),
        ((X * 9).long(),),
    ),
    "positions": (lambda x: (x.argmax(), x.argmin(2, keepdim=True), *x.max(1), *x.min(3)), (X,)),
    "powers of whole numbers": (
        lambda i: (i**i, torch.pow(3, i), i**33, i.to(torch.int8) ** i[0], i.byte() ** i.byte()),
        (torch.arange(-6, 70),),
    ),
    "product of truth values": (lambda x: (x > -1).prod(1, dtype=torch.bool), (X,)),
    "promotion": (
        lambda i, x: (i + 1.5, i / 2, i // 2, i > 1.5, x * i, i**2, 2**x, i % 3, -i, i.sum(),
                      torch.where(i > 1, x, 0), i.bool() + (i > 1), torch.cat([i, x])),
        (PLACES, seeded(3)),
    ),
    "resampling": (
        gradients(lambda x: F.interpolate(x, scale_factor=2, mode="nearest").sum()
                  + F.interpolate(x, size=(5, 11), mode="bilinear").sum()),
        (X,),
    ),
    "scatter": (
        lambda x, i: (torch.index_add(x, 3, i % 6, x[..., :3]), x.index_put((i % 2, i % 3),
                      x[0, 0, 0, 0]), x.scatter(3, (i % 3).expand(2, 3, 2, 3), 5.0),
                      x.scatter_reduce(3, (i % 6).expand(2, 3, 8, 3), x, "mean"),
                      x.masked_scatter(x > 0, x.abs())),
        (X, PLACES),
    ),
    "gradients of weights of a length": (
        lambda u, v, g: torch.ops.aten._weight_norm_interface_backward(
            u, v, g, torch.linalg.vector_norm(v, dim=(0, 1, 2), keepdim=True), 3
        ),
        (X.cos(), X, seeded(1, 1, 1, 6)),
    ),
    "statistics": (
        lambda x: (x.var(), x.std((0, 2)), *torch.var_mean(x, 1), x.prod(3), x.amax(), x.any(1),
                   x.gt(0).all(2), torch.logsumexp(x, 1), x.new_zeros(0).mean()),
        (X,),
    ),
}  # fmt: skip
QUICK = ("activations", "attention with a mask", "index", "promotion", "scatter")


def flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, list | tuple) else [result]


def arrays(tensors: Any) -> list[np.ndarray]:
    return [t.detach().numpy() for t in tensors]


@pytest.mark.wide(28)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compute_what_torch_does(name: str) -> None:
    program, tensors = PROGRAMS[name]
    found = evaluate(graph_of(program, *tensors), arrays(tensors))
    for ours, theirs in zip(found, flat(program(*tensors)), strict=True):
        made = torch.from_numpy(np.array(ours)).to(theirs.dtype)
        torch.testing.assert_close(
            made, theirs, equal_nan=True, check_stride=False, rtol=1e-5, atol=2e-5
        )


@pytest.mark.parametrize("name", QUICK)
def test_programs_compile(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    program, tensors = PROGRAMS[name]
    found = autofuse.compile(graph_of(program, *tensors))(*arrays(tensors))
    for ours, theirs in zip(found, flat(program(*tensors)), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_rounded_once(dtype: str) -> None:
    """Torch computes in float32 and rounds at the end; a factor is no half."""
    x = seeded(64).to(getattr(torch, dtype))
    graph = graph_of(lambda x: (x * 0.1, F.gelu(x)), x)
    found = evaluate(graph, [x.float().numpy()])
    for ours, theirs in zip(found, (x * 0.1, F.gelu(x)), strict=True):
        assert torch.equal(torch.from_numpy(np.array(ours)).to(theirs.dtype), theirs)


# Fx nodes


def test_the_graph_has_the_names_and_shapes_that_were_agreed() -> None:
    graph = graph_of(lambda x, y: (x.t() @ y, y.sum()), seeded(3, 4), seeded(3, 5))
    assert graph.input_names == ("in0", "in1") and graph.output_names == ("out0", "out1")
    assert [t.shape for t in graph.output_types] == [(4, 5), ()]


@pytest.mark.parametrize(
    ("program", "tensors", "said"),
    [
        (lambda x: torch.bernoulli(x), (torch.rand(3),), "aten.rand.default: it has no rule"),
        (lambda x: x.to(torch.complex64) * 2, (X,), "complex64 is not supported"),
        (lambda x: torch.dropout(x, 0.5, True), (X,), "has no rule"),
        (lambda x: torch.linalg.qr(x), (X,), "linalg_qr.default: it has no rule"),
    ],
)  # fmt: skip
def test_what_cannot_be_in_a_graph_says_why(
    program: Program, tensors: tuple[Any, ...], said: str
) -> None:
    _, calls = calls_of(program, *tensors)
    found = [f"{op_name(n)}: {why}" for n in calls if (why := refusal(n)) is not None]
    assert found and said in found[0]


def test_sizes_that_are_not_known_are_refused() -> None:
    _, calls = calls_of(lambda x: x.reshape(-1).sin(), X, dynamic=True)
    found = [refusal(n) for n in calls if str(n.target) == "aten.sin.default"]
    assert found[0] is not None and "not static" in found[0]


def test_parts_of_what_is_refused_are_refused() -> None:
    _, calls = calls_of(lambda x: torch.linalg.qr(x)[0] + 1, seeded(3, 3))
    part = next(n for n in calls if "getitem" in n.name)
    assert refusal(part) == f"a part of {part.args[0].name}, which is torch's"


def test_equal_calls_are_tried_once() -> None:
    def deep(x: Any) -> Any:
        for _ in range(40):
            x = (x * 2).sin()
        return x

    torch_fx._verdict.cache_clear()
    _, calls = calls_of(deep, X)
    assert len(calls) == 80 and not any(map(refusal, calls))
    assert torch_fx._verdict.cache_info().misses == 2


def test_numbers_of_different_types_are_different_calls() -> None:
    """1, 1.0 and True are equal in Python, and not in torch."""
    for number, dtype in ((1, "i64"), (1.0, "f32"), (True, "i64")):
        (out,) = graph_of(partial(torch.add, other=number), PLACES).output_types
        assert str(out.dtype) == dtype


def test_a_view_of_storage_follows_the_layout_that_torch_sees() -> None:
    x = seeded(4, 6).t()
    graph = graph_of(lambda x: x.as_strided((3, 2), (2, 7), 1), x)
    (found,) = evaluate(graph, [x.numpy()])
    np.testing.assert_array_equal(found, x.as_strided((3, 2), (2, 7), 1).numpy())
    _, calls = calls_of(lambda x: x.as_strided((2,), (2,)), seeded(4, 6)[:, ::2])
    assert "are not dense" in str(refusal(calls[0]))


@pytest.mark.parametrize("a", list(DType))
@pytest.mark.parametrize("b", list(DType))
def test_dtypes_meet_as_in_torch(a: DType, b: DType) -> None:
    names = {str(dtype): str(dtype.numpy) for dtype in DType}
    try:
        wanted = torch.promote_types(*(getattr(torch, names[str(d)]) for d in (a, b)))
    except RuntimeError:
        wanted = None
    try:
        found = getattr(torch, names[str(promoted(a, b))])
    except FrontendError:
        assert wanted is None or str(wanted).removeprefix("torch.") not in names.values()
    else:
        assert found == wanted


def test_there_are_rules_for_the_overloads_that_models_use() -> None:
    assert len(RULES) >= 140
    # What is kept for a backward graph is detached after all else was decomposed.
    late = {"aten.detach.default"}
    assert set(RULES) & set(map(str, decompositions())) == late, "decomposed before it is asked"


# Whole programs


class Net(torch.nn.Module):
    """A network that changes a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any, more: Any) -> Any:
        self.calls.add_(1)
        return {"y": self.norm(self.inner(x)), "z": (x, more["k"] * torch.tensor([2.0]))}


def test_parameters_and_what_changes_have_names() -> None:
    net, x, k = Net(), seeded(3, 4), seeded(4)
    graph = autofuse.from_torch(net, x, {"k": k})
    assert graph.input_names[:4] == ("inner_weight", "inner_bias", "norm_weight", "norm_bias")
    assert graph.input_names[-2:] == ("x", "more_k")
    assert graph.output_names == (
        "out_y", "out_z_0", "out_z_1", "new_calls", "new_norm_running_mean",
        "new_norm_running_var", "new_norm_num_batches_tracked",
    )  # fmt: skip
    held = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    given = {name.replace(".", "_"): t.detach().clone() for name, t in held.items()}
    given |= {"x": x, "more_k": k}
    found = evaluate(graph, [given[name].numpy() for name in graph.input_names])
    wanted = net(x, {"k": k})
    after = [net.calls, net.norm.running_mean, net.norm.running_var, net.norm.num_batches_tracked]
    for ours, theirs in zip(found, [wanted["y"], *wanted["z"], *after], strict=True):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_parameters_may_be_constants() -> None:
    net, x = torch.nn.Linear(4, 5), seeded(3, 4)
    graph = autofuse.from_torch(net, x, constant_parameters=True)
    constants = {name: p.detach().numpy() for name, p in net.named_parameters()}
    (found,) = autofuse.compile(graph, constants=constants)(x.numpy())
    np.testing.assert_allclose(found, net(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_functions_keep_the_names_of_their_arguments() -> None:
    graph = autofuse.from_torch(lambda left, right: left @ right, seeded(3, 4), seeded(4, 5))
    assert graph.input_names == ("left", "right") and graph.output_names == ("out",)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (lambda x: torch.linalg.qr(x).R, "program: .*: aten.linalg_qr.default has no rule"),
        (lambda x: x[x > 0], "program: "),
        (lambda x: x if x.sum() > 0 else -x, "torch cannot export the program"),
        (7, "int is no module and no function"),
    ],
)
def test_programs_that_are_no_graph_are_refused(program: Any, said: str) -> None:
    with pytest.raises(AutofuseError, match=said):
        autofuse.from_torch(program, seeded(3, 3))


def test_a_command_line_can_name_a_program(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text("import torch\nnet = torch.nn.Linear(4, 2)\n")
    file = tmp_path / "model.py"
    file.write_text(
        "import torch\nfrom parts import net\n"
        "def make():\n    return net, (torch.randn(3, 4),)\n"
        "def wrong():\n    return net\n"
        "def failing():\n    raise OSError('no weights')\n"
    )
    name, graph = load_source(f"{file}:make")
    assert name == "model:make" and graph.input_names == ("weight", "bias", "input")
    assert digest(graph) == digest(load_source(f"{file}:make")[1])
    with pytest.raises(AutofuseError, match="must return"):
        load_source(f"{file}:wrong")
    with pytest.raises(AutofuseError, match=r"failing\(\) of .* failed: OSError: no weights"):
        load_source(f"{file}:failing")
    with pytest.raises(AutofuseError, match="has no function 'gone'"):
        load_source(f"{file}:gone")
    exported = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(4, 2), (torch.ones(3, 4),)), exported)
    name, again = load_source(str(exported))
    assert name == "model" and again.input_types == graph.input_types
    exported.write_bytes(b"nothing")
    with pytest.raises(AutofuseError, match="is no exported program"):
        load_source(str(exported))
