"""How C and CUDA spell types, literals and the primitive functions: tables, nothing else.

A function is spelled "name" (suffixed per dtype by SUFFIX in the prelude's `af_` family or the C
library's own) or as an infix operator in INFIX, which both languages share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from importlib.resources import files

from autofuse.ops.dtypes import INTS, DType

# Operator and precedence (higher binds tighter), C's own levels.
INFIX: dict[str, tuple[str, int]] = {
    "mul": ("*", 12), "div": ("/", 12), "rem": ("%", 12), "add": ("+", 11), "sub": ("-", 11),
    "shl": ("<<", 10), "shr": (">>", 10), "lt": ("<", 9), "le": ("<=", 9), "gt": (">", 9),
    "ge": (">=", 9), "eq": ("==", 8), "ne": ("!=", 8), "and": ("&", 7), "xor": ("^", 6),
    "or": ("|", 5),
}  # fmt: skip
PREFIX = {"neg": "-", "not": "~"}
UNARY_LEVEL, TERNARY_LEVEL, ATOM = 13, 3, 20
# Inline functions every prelude defines for each dtype they serve, as af_NAME_DTYPE.
PRELUDE = frozenset(
    ("abs", "floor", "ceil", "rint", "sqrt", "exp2", "max", "min", "isnan", "isfinite", "mulhi")
)


@dataclass(frozen=True)
class Dialect:
    """One target language: type names, literals of infinity and the prelude text, in parts."""

    name: str
    types: Mapping[DType, str]
    # Role of a parameter -> how its declaration is spelled, given type and name.
    parameters: Mapping[str, str]
    function: str
    # What its library multiplies: BLAS on a CPU, cuBLAS (16 bits are summed in f32).
    products: frozenset[DType]
    # Whether oneDNN may compute products and convolutions, where it is installed.
    onednn: bool = False
    # Whether LAPACK factorises matrices.
    lapack: bool = False
    # Whether cuBLASLt may compute products with what follows them.
    epilogues: bool = False
    # How an array is read, given its name, where not as what it is declared.
    views: Mapping[DType, str] = field(default_factory=dict)
    # Functions that the prelude has a better spelling for.
    instead: Mapping[str, str] = field(default_factory=dict)
    # Files of the prelude.
    preludes: tuple[str, ...] = ("c_types.h", "c.h", "integers.h", "c_parts.h", "c_amx.h")

    @cached_property
    def prelude(self) -> str:
        """Definitions that every kernel text starts with."""
        return "".join(map(prelude_file, self.preludes))

    @cached_property
    def prelude_digest(self) -> str:
        """SHA-256 of the prelude."""
        return sha256(self.prelude.encode()).hexdigest()


def prelude_file(name: str) -> str:
    """One file of a prelude."""
    return files("autofuse.kernel.text").joinpath("prelude", name).read_text()


_TYPES = {
    DType.F64: "double", DType.F32: "float", DType.F16: "af_f16", DType.BF16: "af_bf16",
    DType.BOOL: "bool", **{dtype: f"{dtype.numpy}_t" for dtype in INTS},
}  # fmt: skip
C = Dialect(
    name="c",
    types=_TYPES,
    parameters={"in": "const {} *restrict {}", "out": "{} *restrict {}"},
    function="void",
    products=frozenset((DType.F32, DType.F64)),
    onednn=True,
    lapack=True,
    # Of flags that are loaded as bool and choose between numbers GCC 12 makes no vectors.
    views={DType.BOOL: "((const uint8_t *){})"},
    instead={
        "expf": "af_exp_f32",
        "exp": "af_exp_f64",
        "tanhf": "af_tanh_f32",
        "erff": "af_erf_f32",
    },
)
# C in a loop whose iterations are lanes of vectors. Elsewhere, where results may wait for each
# other, C's own divisions and remainders are there sooner.
_BY_LANES = ("rem_f32", "div_i32", "rem_i32", "div_u32", "rem_u32")
LANES = replace(C, instead={**C.instead, **{f"af_{n}": f"af_lane_{n}" for n in _BY_LANES}})
CUDA = Dialect(
    name="cuda",
    types=_TYPES,
    # Macros of the prelude: raw pointers on a GPU, checked ones in the emulator.
    parameters={
        "in": "AF_IN({}, {})",
        "out": "AF_OUT({}, {})",
        "work": "AF_WORK({}, {})",
        "map": "AF_MAP({}, {})",
    },
    function='extern "C" __global__ void',
    products=frozenset((DType.F32, DType.F64, DType.F16, DType.BF16)),
    epilogues=True,
    preludes=(
        "cuda_wait.h",
        "cuda.h",
        "integers.h",
        "cuda_parts.h",
        "cuda_mma.h",
        "cuda_maps.h",
        "cuda_wgmma.h",
    ),
)
# Of a kernel that starts while others still write what it is going to read.
EARLY = replace(
    CUDA,
    parameters={**CUDA.parameters, "in": "AF_IN_LATER({}, {})", "out": "AF_OUT_LATER({}, {})"},
)
