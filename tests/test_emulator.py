"""The CUDA emulator: what it gives CUDA's words to mean, and the faults it must not let pass."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from autofuse.backends.base import CompileError, CompilerMissing
from autofuse.backends.emulator.emulator import ORDERS, Emulated, EmulatorError, Guarded
from autofuse.graph.reference import random_inputs
from autofuse.kernel.text.dialects import CUDA
from autofuse.zoo import zoo_graph
from tests.support.emulation import library_of, one_kernel, run_kernel

KERNEL = 'extern "C" __global__ void'
RIGHT = f"""
template <int THREADS> __device__ float block_sum(float x)
{{
  __shared__ float part[THREADS / 32];
  for (int m = 16; m > 0; m >>= 1) x += __shfl_xor_sync(0xffffffffu, x, m);
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  return part[0] + part[1];
}}
{KERNEL} reverse(AF_IN(float, in0), AF_OUT(float, out0), const int64_t n)
{{
  __shared__ float tile[64];
  const int64_t i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = i < n ? in0[i] : 0.0f;
  __syncthreads();
  if (i < n) out0[i] = tile[blockDim.x - 1 - threadIdx.x];
}}
{KERNEL} reverse_dynamic(AF_IN(float, in0), AF_OUT(float, out0))
{{
  extern __shared__ __align__(16) float tile[];
  tile[threadIdx.x] = in0[threadIdx.x];
  __syncthreads();
  out0[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}}
{KERNEL} vectors(AF_IN(float, in0), AF_OUT(float, out0))
{{
  const float4 v = reinterpret_cast<const float4 *>(in0)[threadIdx.x];
  *reinterpret_cast<float4 *>(out0 + 4 * threadIdx.x) = make_float4(v.w, v.z, v.y, v.x);
}}
{KERNEL} lanes(AF_OUT(int32_t, out0))
{{
  const int t = threadIdx.x, lane = t & 31;
  const int32_t found[] = {{
    __shfl_sync(0xffffffffu, t, 5), __shfl_up_sync(0xffffffffu, t, 1),
    __shfl_down_sync(0xffffffffu, t, 2, 8), __shfl_xor_sync(0xffffffffu, t, 3),
    __popc(__ballot_sync(0xffffffffu, lane % 3 == 0)), __any_sync(0xffffffffu, lane == 7),
    __all_sync(0xffffffffu, lane < 31), __reduce_add_sync(0xffffffffu, t),
    __reduce_max_sync(0xffffffffu, -t), __syncthreads_count(t % 5 == 0)}};
  #pragma unroll
  for (int k = 0; k < 10; k++) out0[k * 64 + t] = found[k];
}}
{KERNEL} __launch_bounds__(64) atomics(AF_IN(int32_t, in0), AF_WORK(int32_t, bins))
{{
  __shared__ int32_t mine[4];
  if (threadIdx.x < 4) mine[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&mine[__ldg(in0 + blockIdx.x * 64 + threadIdx.x)], 1);
  __syncthreads();
  if (threadIdx.x < 4) atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}}
{KERNEL} last_block(AF_IN(float, in0), AF_OUT(float, out0), AF_WORK(float, part),
    AF_WORK(uint32_t, count))
{{
  __shared__ bool last;
  const float sum = block_sum<64>(in0[blockIdx.x * 64 + threadIdx.x]);
  if (threadIdx.x == 0) {{
    part[blockIdx.x] = sum;
    __threadfence();
    last = atomicInc(&count[0], gridDim.x - 1) == gridDim.x - 1;
  }}
  __syncthreads();
  if (!last) return;
  const float all = block_sum<64>(threadIdx.x < gridDim.x ? part[threadIdx.x] : 0.0f);
  if (threadIdx.x == 0) out0[0] = all;
}}
{KERNEL} all_fence(AF_IN(float, in0), AF_OUT(float, out0), AF_WORK(float, part),
    AF_WORK(uint32_t, count))
{{
  __shared__ bool last;
  const int i = blockIdx.x * 64 + threadIdx.x, n = gridDim.x * 64;
  part[i] = in0[i];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(count + 0, 1u) == gridDim.x - 1;
  __syncthreads();
  __threadfence();
  if (last) for (int k = threadIdx.x; k < n; k += 64) out0[k] = part[n - 1 - k];
}}
{KERNEL} grid_barrier(AF_IN(float, in0), AF_OUT(float, out0), AF_WORK(float, part),
    AF_WORK(uint32_t, count))
{{
  const float sum = block_sum<64>(in0[blockIdx.x * 64 + threadIdx.x]);
  if (threadIdx.x == 0) part[blockIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {{
    __threadfence();
    atomicAdd(&count[0], 1u);
    while (atomicAdd(&count[0], 0u) < gridDim.x) __nanosleep(20);
  }}
  __syncthreads();
  float all = 0.0f;
  for (int k = 0; k < gridDim.x; k++) all += part[k];
  out0[blockIdx.x * 64 + threadIdx.x] = all;
}}
{KERNEL} from_half(AF_IN(af_f16, in0), AF_OUT(float, out0))
{{ out0[blockIdx.x * 64 + threadIdx.x] = af_load_f16(in0[blockIdx.x * 64 + threadIdx.x]); }}
{KERNEL} to_half(AF_IN(float, in0), AF_OUT(af_f16, out0), AF_OUT(af_bf16, out1))
{{
  const int i = blockIdx.x * 64 + threadIdx.x;
  out0[i] = af_store_f16(in0[i]);
  out1[i] = af_store_bf16(in0[i]);
}}
"""
WRONG = f"""
template <int N> __device__ float unset() {{ __shared__ float tile[N]; return tile[N - 1]; }}
{KERNEL} off_by_one(AF_IN(float, in0), AF_OUT(float, out0))
{{ out0[threadIdx.x + 1] = in0[threadIdx.x]; }}
{KERNEL} reads_beyond(AF_IN(float, in0), AF_OUT(float, out0))
{{ out0[threadIdx.x] = in0[(int)threadIdx.x - 1]; }}
{KERNEL} misaligned(AF_IN(float, in0), AF_OUT(float, out0))
{{ *reinterpret_cast<float2 *>(out0 + 2 * (threadIdx.x / 2) + 1) = make_float2(in0[0], in0[1]); }}
{KERNEL} all_write(AF_IN(float, in0), AF_OUT(float, out0)) {{ out0[threadIdx.x / 2] = in0[0]; }}
{KERNEL} blocks_write(AF_IN(float, in0), AF_OUT(float, out0)) {{ out0[threadIdx.x] = in0[0]; }}
{KERNEL} reads_others(AF_IN(float, in0), AF_OUT(float, out0))
{{
  out0[threadIdx.x] = in0[threadIdx.x];
  if (threadIdx.x == 0) out0[0] = out0[1];
}}
{KERNEL} no_barrier(AF_IN(float, in0), AF_OUT(float, out0))
{{
  __shared__ float tile[64];
  tile[threadIdx.x] = in0[threadIdx.x];
  out0[threadIdx.x] = tile[63 - threadIdx.x];
}}
{KERNEL} never_set(AF_IN(float, in0), AF_OUT(float, out0))
{{
  __shared__ float tile[65];
  tile[threadIdx.x] = in0[threadIdx.x];
  __syncthreads();
  out0[threadIdx.x] = tile[threadIdx.x + 1];
}}
{KERNEL} never_set_in_template(AF_IN(float, in0), AF_OUT(float, out0))
{{ out0[threadIdx.x] = in0[threadIdx.x] + unset<4>(); }}
{KERNEL} divergent(AF_IN(float, in0), AF_OUT(float, out0))
{{
  if (threadIdx.x < 32) __syncthreads();
  out0[threadIdx.x] = in0[threadIdx.x];
}}
{KERNEL} two_barriers(AF_IN(float, in0), AF_OUT(float, out0))
{{
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
  out0[threadIdx.x] = in0[threadIdx.x];
}}
{KERNEL} half_a_warp(AF_IN(float, in0), AF_OUT(float, out0))
{{ if (threadIdx.x & 1) out0[threadIdx.x] = __shfl_xor_sync(0xffffffffu, in0[threadIdx.x], 2); }}
{KERNEL} outside_mask(AF_IN(float, in0), AF_OUT(float, out0))
{{ if (threadIdx.x < 16) out0[threadIdx.x] = __shfl_sync(0xffffu, in0[threadIdx.x], 20); }}
{KERNEL} shared_overrun(AF_IN(float, in0), AF_OUT(float, out0))
{{
  __shared__ float tile[63];
  tile[threadIdx.x] = in0[threadIdx.x];
}}
{KERNEL} dynamic_overrun(AF_IN(float, in0), AF_OUT(float, out0))
{{
  extern __shared__ float tile[];
  tile[threadIdx.x] = in0[threadIdx.x];
}}
{KERNEL} shared_misaligned(AF_IN(float, in0), AF_OUT(float, out0))
{{
  __shared__ __align__(16) float tile[72];
  *reinterpret_cast<float4 *>(&tile[threadIdx.x % 32 * 2]) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}}
{KERNEL} wild(AF_IN(float, in0), AF_OUT(float, out0)) {{ *(float *)16 = 1.0f; }}
{KERNEL} endless(AF_IN(float, in0), AF_OUT(float, out0)) {{ for (volatile int k = 0;; k++) {{}} }}
{KERNEL} no_fence(AF_IN(float, in0), AF_OUT(float, out0), AF_WORK(float, part),
    AF_WORK(uint32_t, count))
{{
  __shared__ bool last;
  if (threadIdx.x == 0) {{
    part[blockIdx.x] = in0[blockIdx.x];
    last = atomicAdd(&count[0], 1u) == gridDim.x - 1;
  }}
  __syncthreads();
  if (last && threadIdx.x < gridDim.x) out0[threadIdx.x] = part[threadIdx.x];
}}
"""
FAULTS = {
    "off_by_one": r"thread \(63,0,0\): out0\[64\] is out of bounds: 4 bytes written",
    "reads_beyond": r"thread \(0,0,0\): in0\[-1\] is out of bounds: 4 bytes read",
    "misaligned": r"misaligned access to out0\[1\]: 8 bytes written .* no multiple of 8",
    "all_write": r"race on out0\[0\]: written here and written by thread 0 of block 0",
    "blocks_write": r"block \(1,0,0\), thread \(0,0,0\): race on out0\[0\]",
    "reads_others": r"race on out0\[1\]",
    "no_barrier": "depends on the order of threads: out0",
    "never_set": "depends on the order of threads: out0",
    "never_set_in_template": "depends on the order of threads: out0",
    "divergent": r"divergent barrier: 32 of 64 threads .*kernel divergent line 3\), 32 have ended",
    "two_barriers": "threads wait at different barriers: kernel two_barriers line 4 and .* line 6",
    "half_a_warp": r"32 of 64 threads .* wait for lanes of their warp that never come",
    "outside_mask": "a shuffle reads lane 20, which is not in its mask",
    "shared_overrun": r"thread \(63,0,0\): index 63 of .*float \[63\].* is out of bounds",
    "dynamic_overrun": r"dynamic shared memory is accessed out of bounds: byte 252 of 252",
    "shared_misaligned": r"misaligned access: .* no multiple of 16 .*shared_misaligned line 4",
    "wild": "crashed with signal 11",
    "endless": "an endless loop",
}


@pytest.fixture(scope="module")
def right() -> Emulated:
    return Emulated(CUDA.prelude + RIGHT)


@pytest.fixture(scope="module")
def wrong() -> Emulated:
    return Emulated(CUDA.prelude + WRONG)


def floats(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal(n).astype(np.float32)


def empty(n: int, name: str = "out0", dtype: str = "f4") -> Guarded:
    return Guarded(name, np.zeros(n, dtype))


def test_blocks_use_their_own_shared_memory(right: Emulated) -> None:
    x, out = floats(150), empty(150)
    right.launch("reverse", 3, 64, [x, out, np.int64(150)])
    padded = np.pad(x, (0, 42)).reshape(3, 64)
    assert (out.array == padded[:, ::-1].reshape(-1)[:150]).all()
    right.launch(
        "reverse_dynamic", 1, 64, {"out0": out.array[:64], "in0": x[:64]}, shared_bytes=256
    )
    assert (out.array[:64] == x[63::-1]).all()


def test_vectors_need_their_alignment(right: Emulated) -> None:
    x, out = floats(256), empty(256)
    right.launch("vectors", 1, 64, [Guarded("in0", x), out])
    assert (out.array.reshape(64, 4) == x.reshape(64, 4)[:, ::-1]).all()
    with pytest.raises(EmulatorError, match=r"misaligned access to in0\[0\]: 16 bytes read"):
        right.launch("vectors", 1, 64, [Guarded("in0", x, offset=2), out])


def test_warps_exchange_values_and_vote(right: Emulated) -> None:
    out = empty(640, dtype="i4")
    right.launch("lanes", 1, 64, [out])
    t = np.arange(64)
    lane, warp = t % 32, t // 32 * 32
    wanted = [
        warp + 5, np.where(lane == 0, t, t - 1), np.where(t % 8 > 5, t, t + 2), t ^ 3,
        t * 0 + 11, t * 0 + 1, t * 0, np.where(t < 32, 496, 1520), -warp, t * 0 + 13,
    ]  # fmt: skip
    assert (out.array.reshape(10, 64) == wanted).all()


def test_atomics_count(right: Emulated) -> None:
    x = np.random.default_rng(0).integers(0, 4, 192).astype(np.int32)
    bins = Guarded("bins", np.ones(4, np.int32))
    right.launch("atomics", 3, 64, [x, bins])
    assert (bins.array == np.bincount(x, minlength=4) + 1).all()
    with pytest.raises(EmulatorError, match="with 96 threads, over 64"):
        right.launch("atomics", 2, 96, [x, bins])


@pytest.mark.parametrize("cooperative", [False, True])
def test_the_last_block_sees_what_the_others_wrote(right: Emulated, cooperative: bool) -> None:
    x, out, count = floats(320), empty(1), np.zeros(1, np.uint32)
    args = [x, out, empty(5, "part"), count]
    right.launch("last_block", 5, 64, args, cooperative=cooperative)
    assert out.array[0] == pytest.approx(x.sum(dtype="f8"), rel=1e-5)
    assert count[0] == 0


def test_every_thread_may_fence_and_one_release(right: Emulated) -> None:
    """Fences before a barrier make all writes of a block visible, whoever counts after it."""
    x, out = floats(320), empty(320)
    right.launch("all_fence", 5, 64, [x, out, empty(320, "part"), np.zeros(1, np.uint32)])
    assert (out.array == x[::-1]).all()


def test_a_grid_barrier_needs_all_blocks_at_once(right: Emulated) -> None:
    x, out, count = floats(320), empty(320), np.zeros(1, np.uint32)
    args = [x, out, empty(5, "part"), count]
    right.launch("grid_barrier", 5, 64, args, cooperative=True)
    assert out.array == pytest.approx(np.full(320, x.sum(dtype="f8")), rel=1e-5)
    count[:] = 0
    with pytest.raises(EmulatorError, match="wait at __syncthreads"):
        right.launch("grid_barrier", 5, 64, args)


def test_half_types_convert_like_the_hardware(right: Emulated) -> None:
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    out = empty(65536)
    right.launch("from_half", 1024, 64, [halves, out], orders=ORDERS[:1])
    assert np.array_equal(out.array, halves.astype(np.float32), equal_nan=True)
    # All signs, exponents and roundings of f16, and numbers half way between two of them.
    near = out.array[np.isfinite(out.array)]
    x = np.concatenate([np.nextafter(near, np.float32(9)), near * np.float32(1 + 2**-11)])
    x = np.concatenate([x, floats(4096) * 1e30, floats(4096) * 1e-40, [np.inf, -np.inf, np.nan]])
    x = np.resize(x.astype(np.float32), -(-x.size // 64) * 64)
    f16 = empty(x.size, dtype="f2")
    bf16 = Guarded("out1", np.zeros(x.size, ml_dtypes.bfloat16))
    right.launch("to_half", x.size // 64, 64, [x, f16, bf16], orders=ORDERS[:1])
    with np.errstate(over="ignore"):
        assert np.array_equal(f16.array, x.astype("f2"), equal_nan=True)
    wanted = x.astype(ml_dtypes.bfloat16).astype("f4")
    assert np.array_equal(bf16.array.astype("f4"), wanted, equal_nan=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_reported(wrong: Emulated, fault: str) -> None:
    args = [Guarded("in0", floats(64)), empty(64)]
    grid = 2 if fault == "blocks_write" else 1
    with pytest.raises(EmulatorError, match=FAULTS[fault]) as caught:
        wrong.launch(fault, grid, 64, args, shared_bytes=252, limit_s=0.3)
    assert str(caught.value).startswith(f"kernel {fault}")


def test_a_value_without_a_fence_is_a_race(wrong: Emulated) -> None:
    args = [floats(5), empty(5), empty(5, "part"), np.zeros(1, np.uint32)]
    with pytest.raises(EmulatorError, match=r"race on part\[\d\]: read here and written"):
        wrong.launch("no_fence", 5, 64, args)


def test_the_process_goes_on_after_a_crash(wrong: Emulated, right: Emulated) -> None:
    for _ in range(2):
        with pytest.raises(EmulatorError, match="crashed"):
            wrong.launch("wild", 1, 64, [floats(64), empty(64)])
    test_vectors_need_their_alignment(right)


def test_a_barrier_left_out_of_the_prelude_is_seen() -> None:
    made = one_kernel(zoo_graph("layer_norm_gelu", "small"))
    text = made.text.replace("__syncthreads();", "", 1)
    inputs = random_inputs(made.graph, 0)
    assert all(np.isfinite(a).all() for a in run_kernel(library_of([made]), made, inputs))
    with pytest.raises(EmulatorError, match="depends on the order of threads"):
        run_kernel(Emulated(text), made, inputs)


def test_arguments_are_checked(right: Emulated) -> None:
    x = floats(64)
    for args, message in (
        ([x], "takes 3 arguments, not 1"),
        ([x, x.astype("f8"), np.int64(1)], "out0 of kernel reverse has elements of 8 bytes, not 4"),
        ([x, x, np.int64(1)], "out0 and in0 of kernel reverse overlap"),
        ([np.zeros((4, 4), "f4").T, x, np.int64(1)], "not contiguous"),
        ({"x": x}, "takes in0, out0, n, not x"),
    ):
        with pytest.raises(EmulatorError, match=message):
            right.launch("reverse", 1, 64, args)
    with pytest.raises(EmulatorError, match="no kernel nothing"):
        right.launch("nothing", 1, 64, [])


def test_guard_zones_are_checked() -> None:
    held = Guarded("x", np.zeros(3, "f4"))
    held.check()
    np.ndarray(5, "f4", held.array.base, held.array.ctypes.data - _address(held))[4] = 1.0
    with pytest.raises(EmulatorError, match="guard zone after buffer x"):
        held.check()


def _address(held: Guarded) -> int:
    return int(np.frombuffer(held.array.base, np.uint8).ctypes.data)


def test_texts_that_cannot_be_emulated_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CompileError, match="cannot pass: float \\*x"):
        Emulated(f"{KERNEL} f(float *x) {{}}")
    with pytest.raises(CompileError, match="two kernels"):
        Emulated(*[f"{KERNEL} f(AF_IN(float, x)) {{}}"] * 2)
    with pytest.raises(CompileError, match=r"compiling emulated kernels failed.*nothing"):
        Emulated(f"{KERNEL} f(AF_OUT(float, x)) {{ *x = nothing; }}")
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompilerMissing, match="no C\\+\\+ compiler found"):
        Emulated(f"{KERNEL} f(AF_IN(float, x)) {{}}")
