"""What a program of PyTorch may rely on, as small programs: `CASES` by name.

A case gives a function and the tuples of arguments that it is called with, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Case = tuple[Callable[..., Any], Sequence[tuple[Any, ...]]]


def _numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(-9, 9, shape, generator=generator).to(dtype)
    return (torch.rand(shape, generator=generator) - 0.5).to(dtype)


def _work(x: Tensor) -> Tensor:
    """Enough to be worth a plan."""
    return torch.tanh(x * 2 + 1)


X, Y, V = _numbers(4, 6), _numbers(4, 6) + 1, _numbers(6)
IMAGE = _numbers(2, 3, 4, 5)


# Strides


def transposed_input(x: Tensor) -> Tensor:
    return _work(x)


def transposed_result(x: Tensor) -> Tensor:
    return _work(x).t()


def permuted_result(x: Tensor) -> Tensor:
    return _work(x).permute(2, 0, 3, 1)


def strided_by_hand(x: Tensor) -> Tensor:
    return _work(x).as_strided((3, 2), (2, 1))


def rows_and_columns(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return _work(x) + y, _work(y).t() * 2


def expanded_result(v: Tensor) -> Tensor:
    return _work(v).expand(3, 6)


def negated_view(x: Tensor) -> Tensor:
    return _work(torch._neg_view(x))


def sliced_result(x: Tensor) -> Tensor:
    return _work(x)[:, ::2]


# Views and aliases


def input_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, _work(x)


def view_of_input(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.view(-1)[2:], _work(x)


def view_and_base(x: Tensor) -> tuple[Tensor, Tensor]:
    y = _work(x)
    return y, y[1]


def one_result_twice(x: Tensor) -> tuple[Tensor, Tensor]:
    y = _work(x)
    return y, y


def written_through_a_view(x: Tensor) -> Tensor:
    y = _work(x)
    y[1:3].mul_(3)
    return y


def inputs_that_alias(x: Tensor, y: Tensor) -> Tensor:
    return _work(x) + _work(y)


# Mutation


def input_changed(x: Tensor) -> Tensor:
    x.add_(1).mul_(2)
    return _work(x)


def rows_of_input_changed(x: Tensor, y: Tensor) -> Tensor:
    x[1:3] = _work(y[1:3])
    return x.sum()


def state_changed(x: Tensor, total: Tensor) -> None:
    total += _work(x).sum(0)


def transposed_input_changed(x: Tensor) -> Tensor:
    x.t().sub_(_work(x.t()))
    return x.sum(1)


def input_copied_into(x: Tensor, y: Tensor) -> None:
    x.copy_(_work(y) * 2)


def changed_input_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    return x, _work(x)[1:]


def statistics_changed(x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return torch.relu(torch.nn.functional.batch_norm(x, mean, var, training=True)) * 2


# Scalars and dtypes


def number_from_outside(x: Tensor, factor: float) -> Tensor:
    return _work(x) * factor + factor


def tensor_without_axes(x: Tensor, factor: Tensor) -> Tensor:
    return _work(x) * factor + factor


def result_without_axes(x: Tensor) -> Tensor:
    return (_work(x) * x).mean()


def promoted(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x + y, x * 2.5 + y, (x > y) | (y > 1), torch.where(x > y, x, y)


def truth_values(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    flags = (x > 0) & (y > 1.2)
    return flags, ~flags, flags.sum(), flags.any(), flags.to(torch.float32) * 2


def whole_numbers(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x * y + 1, x // 3 - y, x % 4, (x & y) ^ 1, (x * 3).sum()


def half_precision(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return _work(x) * y, (x * y).sum(-1), (x @ y.t()).relu()


def mixed_precision(x: Tensor, y: Tensor) -> Tensor:
    return _work(x.to(torch.bfloat16)).float() + y


def not_a_number(x: Tensor) -> tuple[Tensor, ...]:
    return torch.log(x) + 1, x.clamp(0, 1) * 2, torch.relu(x) + x, torch.maximum(x, x * 2)


# Sizes


def nothing_inside(x: Tensor) -> tuple[Tensor, ...]:
    return _work(x), x.sum(0), (x * 2).sum()


def by_size(x: Tensor) -> Tensor:
    return _work(x) * x.shape[0] + x.numel()


def product_by_size(x: Tensor, w: Tensor) -> Tensor:
    return torch.relu(x @ w) / x.shape[0] + 1


def reshaped_by_size(x: Tensor) -> Tensor:
    return _work(x).reshape(x.shape[0] // 2, -1).softmax(-1)


# Random numbers and what is not supported


def random_numbers(x: Tensor) -> Tensor:
    torch.manual_seed(3)
    return _work(x) + torch.rand_like(x) * _work(x)


def dropped_out(x: Tensor) -> Tensor:
    torch.manual_seed(4)
    return torch.nn.functional.dropout(_work(x), 0.5, training=True) * 2 + x


def unsupported_between(x: Tensor) -> Tensor:
    return _work(torch.special.bessel_j1(_work(x)))


def size_from_data(x: Tensor) -> Tensor:
    return _work(x)[x > 0] * 2 + 1


def branch_on_data(x: Tensor) -> Tensor:
    return _work(x) + 1 if float(x.sum()) > 0 else _work(x) - 1


def complex_numbers(x: Tensor) -> Tensor:
    return (torch.fft.fft(_work(x)).abs() * 2 + 1).log()


def gradient_of_a_part(x: Tensor) -> tuple[Tensor, Tensor]:
    leaf = x.detach().requires_grad_()
    total = (_work(leaf) * leaf).sum()
    (gradient,) = torch.autograd.grad(total, leaf)
    return total.detach(), gradient


SQUARE = V[:, None] + V
CHANNELS_LAST = IMAGE.to(memory_format=torch.channels_last)
CASES: dict[str, Case] = {
    "transposed input": (transposed_input, [(_numbers(6, 4).t(),)]),
    "transposed result": (transposed_result, [(X,)]),
    "permuted result": (permuted_result, [(IMAGE,)]),
    "strided by hand": (strided_by_hand, [(X.t(),)]),
    "rows and columns": (rows_and_columns, [(X, _numbers(6, 4).t())]),
    "expanded input": (transposed_input, [(V.expand(3, 6),)]),
    "expanded result": (expanded_result, [(V,)]),
    "sliced input": (transposed_input, [(_numbers(4, 12)[:, ::2],)]),
    "sliced result": (sliced_result, [(X,)]),
    "channels last": (transposed_input, [(CHANNELS_LAST,)]),
    "channels last, permuted": (permuted_result, [(CHANNELS_LAST,)]),
    "negated input": (transposed_input, [(torch._neg_view(X),), (torch._neg_view(Y),)]),
    "negated view": (negated_view, [(X,), (Y,)]),
    "offset input": (transposed_input, [(_numbers(25)[1:].view(4, 6),)]),
    "input returned": (input_returned, [(X,)]),
    "view of input": (view_of_input, [(X,)]),
    "view and base": (view_and_base, [(X,)]),
    "one result twice": (one_result_twice, [(X,)]),
    "written through a view": (written_through_a_view, [(X,)]),
    "inputs that alias": (inputs_that_alias, [(Y, Y), (Y, Y.t().contiguous().t())]),
    "input changed": (input_changed, [(X,)]),
    "rows of input changed": (rows_of_input_changed, [(X, Y)]),
    "state changed": (state_changed, [(X, V), (Y, V)]),
    "transposed input changed": (transposed_input_changed, [(X,)]),
    "input copied into": (input_copied_into, [(X, Y)]),
    "changed input returned": (changed_input_returned, [(X,)]),
    "statistics changed": (statistics_changed, [(CHANNELS_LAST, torch.zeros(3), torch.ones(3))]),
    "number from outside": (number_from_outside, [(X, 2.0), (X, 3.5), (X, 4)]),
    "tensor without axes": (tensor_without_axes, [(X, torch.tensor(2.5, dtype=torch.float64))]),
    "result without axes": (result_without_axes, [(X,)]),
    "promoted i64, f32": (promoted, [(_numbers(4, 6, dtype=torch.int64), Y)]),
    "promoted bf16, f32": (promoted, [(_numbers(4, 6, dtype=torch.bfloat16), Y)]),
    "promoted f32, f64": (promoted, [(X, Y.double())]),
    "truth values": (truth_values, [(X, Y)]),
    "whole numbers": (whole_numbers, [tuple(_numbers(4, n, dtype=torch.int64) for n in (6, 6))]),
    "half precision": (half_precision, [(X.half(), Y.half())]),
    "bfloat16": (half_precision, [(X.bfloat16(), Y.bfloat16())]),
    "mixed precision": (mixed_precision, [(X, Y)]),
    "not a number": (not_a_number, [(torch.tensor([1.0, -1.0, float("nan"), float("inf"), 0.0]),)]),
    "empty": (nothing_inside, [(_numbers(0, 6),), (_numbers(4, 0),)]),
    "second size": (by_size, [(_numbers(n, 6),) for n in (4, 5, 6, 4, 1)]),
    "ten sizes": (by_size, [(_numbers(n, 3),) for n in range(2, 13)]),
    "second size of a product": (product_by_size, [(_numbers(n, 6), SQUARE) for n in (3, 8, 5)]),
    "reshaped by size": (reshaped_by_size, [(_numbers(n, 6),) for n in (4, 8, 6)]),
    "third rank": (by_size, [(_numbers(4),), (_numbers(4, 6),), (_numbers(2, 4, 6),)]),
    "random numbers": (random_numbers, [(X,)]),
    "dropped out": (dropped_out, [(X,)]),
    "unsupported between": (unsupported_between, [(X,)]),
    "size from data": (size_from_data, [(X,), (Y,)]),
    "branch on data": (branch_on_data, [(X,), (-Y,)]),
    "complex numbers": (complex_numbers, [(X,)]),
    "gradient of a part": (gradient_of_a_part, [(X,)]),
}  # fmt: skip
