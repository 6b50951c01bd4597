"""The stand-in for an array while a function is traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, Protocol

import numpy as np

from autofuse.frontends.errors import TraceError
from autofuse.graph.types import Value
from autofuse.graph.writer import Axes
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType


class Home(Protocol):
    """What an array needs of the tracer that it lives in."""

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """Array functions by name, which operators and methods are bound to."""


def _no_value(what: str) -> NoReturn:
    raise TraceError(
        f"{what} needs the values of a traced array (data-dependent control flow): "
        "use where, fori_loop or a fixed shape instead"
    )


class TracedArray:
    """An array whose shape and dtype are known and whose values are not.

    Follows NumPy's operators, broadcasting and indexing; `autofuse.xp` has the functions.
    """

    __slots__ = ("tracer", "type", "value")
    __hash__ = None  # type: ignore[assignment]  # == is elementwise

    def __init__(self, tracer: Home, value: Value, kind: TensorType) -> None:
        self.tracer = tracer
        self.value = value
        self.type = kind

    def __repr__(self) -> str:
        return f"TracedArray({self.type})"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return self.type.rank

    @property
    def size(self) -> int:
        return self.type.size

    @property
    def T(self) -> TracedArray:  # noqa: N802 - NumPy's name
        return self.transpose()

    @property
    def mT(self) -> TracedArray:  # noqa: N802 - the array API's name
        return self._call("matrix_transpose", self)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> TracedArray:
        """The array function `name` applied; TraceError when there is none."""
        if name not in self.tracer.functions:
            raise TraceError(
                f"'{name}' has no traced counterpart: see autofuse.xp for what has one"
            )
        result: TracedArray = self.tracer.functions[name](*args, **kwargs)
        return result

    # Values that do not exist while tracing.

    def __bool__(self) -> bool:
        _no_value("a branch or truth test")

    def __int__(self) -> int:
        _no_value("int()")

    def __index__(self) -> int:
        _no_value("use as a Python index")

    def __float__(self) -> float:
        _no_value("float()")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        _no_value("conversion to a NumPy array")

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TraceError("traced arrays cannot be assigned to: build a new one by where or concat")

    # Operators.

    def __add__(self, other: Any) -> TracedArray:
        return self._call("add", self, other)

    def __radd__(self, other: Any) -> TracedArray:
        return self._call("add", other, self)

    def __sub__(self, other: Any) -> TracedArray:
        return self._call("subtract", self, other)

    def __rsub__(self, other: Any) -> TracedArray:
        return self._call("subtract", other, self)

    def __mul__(self, other: Any) -> TracedArray:
        return self._call("multiply", self, other)

    def __rmul__(self, other: Any) -> TracedArray:
        return self._call("multiply", other, self)

    def __truediv__(self, other: Any) -> TracedArray:
        return self._call("divide", self, other)

    def __rtruediv__(self, other: Any) -> TracedArray:
        return self._call("divide", other, self)

    def __floordiv__(self, other: Any) -> TracedArray:
        return self._call("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> TracedArray:
        return self._call("floor_divide", other, self)

    def __mod__(self, other: Any) -> TracedArray:
        return self._call("remainder", self, other)

    def __rmod__(self, other: Any) -> TracedArray:
        return self._call("remainder", other, self)

    def __pow__(self, other: Any) -> TracedArray:
        return self._call("pow", self, other)

    def __rpow__(self, other: Any) -> TracedArray:
        return self._call("pow", other, self)

    def __matmul__(self, other: Any) -> TracedArray:
        return self._call("matmul", self, other)

    def __rmatmul__(self, other: Any) -> TracedArray:
        return self._call("matmul", other, self)

    def __and__(self, other: Any) -> TracedArray:
        return self._call("bitwise_and", self, other)

    def __rand__(self, other: Any) -> TracedArray:
        return self._call("bitwise_and", other, self)

    def __or__(self, other: Any) -> TracedArray:
        return self._call("bitwise_or", self, other)

    def __ror__(self, other: Any) -> TracedArray:
        return self._call("bitwise_or", other, self)

    def __xor__(self, other: Any) -> TracedArray:
        return self._call("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> TracedArray:
        return self._call("bitwise_xor", other, self)

    def __lshift__(self, other: Any) -> TracedArray:
        return self._call("bitwise_left_shift", self, other)

    def __rlshift__(self, other: Any) -> TracedArray:
        return self._call("bitwise_left_shift", other, self)

    def __rshift__(self, other: Any) -> TracedArray:
        return self._call("bitwise_right_shift", self, other)

    def __rrshift__(self, other: Any) -> TracedArray:
        return self._call("bitwise_right_shift", other, self)

    def __neg__(self) -> TracedArray:
        return self._call("negative", self)

    def __pos__(self) -> TracedArray:
        return self

    def __abs__(self) -> TracedArray:
        return self._call("abs", self)

    def __invert__(self) -> TracedArray:
        return self._call("bitwise_invert", self)

    def __eq__(self, other: Any) -> TracedArray:  # type: ignore[override]  # elementwise, as in NumPy
        return self._call("equal", self, other)

    def __ne__(self, other: Any) -> TracedArray:  # type: ignore[override]  # elementwise, as in NumPy
        return self._call("not_equal", self, other)

    def __lt__(self, other: Any) -> TracedArray:
        return self._call("less", self, other)

    def __le__(self, other: Any) -> TracedArray:
        return self._call("less_equal", self, other)

    def __gt__(self, other: Any) -> TracedArray:
        return self._call("greater", self, other)

    def __ge__(self, other: Any) -> TracedArray:
        return self._call("greater_equal", self, other)

    # Structure.

    def __getitem__(self, key: Any) -> TracedArray:
        return self._call("getitem", self, key)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[TracedArray]:
        return (self[i] for i in range(len(self)))

    def astype(self, dtype: Any) -> TracedArray:
        return self._call("astype", self, dtype)

    def reshape(self, *shape: Any) -> TracedArray:
        return self._call("reshape", self, shape[0] if len(shape) == 1 else shape)

    def flatten(self) -> TracedArray:
        return self._call("reshape", self, (-1,))

    ravel = flatten

    def transpose(self, *axes: Any) -> TracedArray:
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return self._call("permute_dims", self, order or tuple(reversed(range(self.ndim))))

    def squeeze(self, axis: Axes = None) -> TracedArray:
        return self._call("squeeze", self, axis)

    def clip(self, min: Any = None, max: Any = None) -> TracedArray:
        return self._call("clip", self, min, max)

    def take(self, indices: Any, axis: int | None = None) -> TracedArray:
        return self._call("take", self, indices, axis=axis)

    # Reductions.

    def sum(self, axis: Axes = None, keepdims: bool = False) -> TracedArray:
        return self._call("sum", self, axis=axis, keepdims=keepdims)

    def prod(self, axis: Axes = None, keepdims: bool = False) -> TracedArray:
        return self._call("prod", self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> TracedArray:
        return self._call("mean", self, axis=axis, keepdims=keepdims)

    def var(self, axis: Axes = None, ddof: float = 0, keepdims: bool = False) -> TracedArray:
        return self._call("var", self, axis=axis, correction=ddof, keepdims=keepdims)

    def std(self, axis: Axes = None, ddof: float = 0, keepdims: bool = False) -> TracedArray:
        return self._call("std", self, axis=axis, correction=ddof, keepdims=keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> TracedArray:
        return self._call("max", self, axis=axis, keepdims=keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> TracedArray:
        return self._call("min", self, axis=axis, keepdims=keepdims)

    def any(self, axis: Axes = None, keepdims: bool = False) -> TracedArray:
        return self._call("any", self, axis=axis, keepdims=keepdims)

    def all(self, axis: Axes = None, keepdims: bool = False) -> TracedArray:
        return self._call("all", self, axis=axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> TracedArray:
        return self._call("argmax", self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> TracedArray:
        return self._call("argmin", self, axis=axis, keepdims=keepdims)

    def cumsum(self, axis: int | None = None) -> TracedArray:
        return self._call("cumulative_sum", self, axis=axis)

    # NumPy's functions on traced arrays.

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs:
            raise TraceError(f"numpy.{ufunc.__name__} is traced only as a plain call")
        return self._call(_NUMPY.get(ufunc.__name__, ufunc.__name__), *args)

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        if "ddof" in kwargs:
            kwargs = {**kwargs, "correction": kwargs["ddof"]}
            del kwargs["ddof"]
        return self._call(_NUMPY.get(func.__name__, func.__name__), *args, **kwargs)


_NUMPY = {
    "absolute": "abs", "amax": "max", "amin": "min", "arccos": "acos", "arcsin": "asin",
    "arctan": "atan", "arctan2": "atan2", "concatenate": "concat", "cumsum": "cumulative_sum",
    "invert": "bitwise_invert", "left_shift": "bitwise_left_shift", "power": "pow",
    "right_shift": "bitwise_right_shift", "rint": "round", "float_power": "pow", "fabs": "abs",
    "transpose": "permute_dims", "true_divide": "divide", "mod": "remainder",
}  # fmt: skip
