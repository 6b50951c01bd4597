"""square: x * x."""

from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index, Pull
from autofuse.ops.scalar import Call
from autofuse.ops.spec import Family, OpSpec, Sample, register
from autofuse.ops.types import OpCall, TensorType


def square_body(call: OpCall, index: Index, pull: Pull) -> tuple[Call, ...]:
    x = pull.let(pull(0, index))  # the operand's element at this index, computed once
    return (Call("mul", (x, x), x.dtype),)


register(
    OpSpec(
        name="square",
        family=Family.ELEMENTWISE,
        infer=lambda call: (call.ins[0],),
        reference=lambda arrays, call: (arrays[0] * arrays[0],),
        flops=lambda call: float(call.ins[0].size),
        samples=lambda: [
            Sample((TensorType((5, 7), DType.F32),)),
            Sample((TensorType((3,), DType.F64),)),
        ],
        body=square_body,
        axes=lambda call: (tuple(range(call.ins[0].rank)),),
    )
)
