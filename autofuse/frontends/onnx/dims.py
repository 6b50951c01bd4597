"""The sizes of a model's inputs: those that it says, and those that its user does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autofuse.errors import AutofuseError
from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.package import Proto
from autofuse.graph.writer import Shape

OpenDims = Mapping[str, int]


def input_shapes(inputs: Sequence[Proto], dims: OpenDims) -> dict[str, Shape]:
    """The shape of each input (a ValueInfoProto) with the open sizes from `dims`, whose keys are
    names of the model or `input[axis]`.

    Raises AutofuseError listing sizes that are missing, and for one that no input has or another
    than the model says.
    """
    missing: dict[str, None] = {}
    used: set[str] = set()
    found = {}
    for each in inputs:
        shape = []
        for axis, dim in enumerate(_dims_of(each)):
            place = f"{each.name}[{axis}]"
            name = dim.dim_param if _is_name(dim.dim_param) else place
            key = place if place in dims else name
            fixed = dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None
            used.add(key)
            if fixed is None and key not in dims:
                missing[name] = None
            size = fixed if fixed is not None else dims.get(key, 0)
            if fixed is not None and dims.get(key, fixed) != fixed:
                raise AutofuseError(f"{place} is {fixed} in the model, not {dims[key]}")
            shape.append(size)
        found[each.name] = tuple(shape)
    if missing:
        names = ", ".join(missing)
        raise AutofuseError(
            f"the model leaves sizes open: {names} (give each as a dimension, such as "
            f"{next(iter(missing))}=1; one of an input also as input[axis])"
        )
    unknown = [name for name in dims if name not in used]
    if unknown:
        known = ", ".join(sorted(used)) or "none"
        raise AutofuseError(f"the model has no dimension '{unknown[0]}' (it has: {known})")
    return found


def dims_from(inputs: Sequence[Proto], shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The open sizes that arrays of these shapes have, as `input_shapes` takes them."""
    found: dict[str, int] = {}
    for each in inputs:
        open_ = [not (d.HasField("dim_value") and d.dim_value >= 0) for d in _dims_of(each)]
        given = shapes.get(each.name, ())
        if len(given) != len(open_):
            raise FrontendError(f"input '{each.name}' has {len(open_)} axes, not {len(given)}")
        found |= {f"{each.name}[{a}]": int(given[a]) for a, free in enumerate(open_) if free}
    return found


def _dims_of(value: Proto) -> Any:
    """The dims of an input; raises FrontendError for one that is no tensor of a known rank."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        what = (kind or "value of no type").removesuffix("_type").replace("_", " ")
        raise FrontendError(f"input '{value.name}' is a {what}, which no graph holds")
    if not value.type.tensor_type.HasField("shape"):
        raise FrontendError(f"input '{value.name}' has no known number of axes")
    return value.type.tensor_type.shape.dim


def _is_name(text: str) -> bool:
    """Whether a size has a name of its own: exporters write nothing, or `?`, for an unknown one."""
    return bool(text.strip("? "))
