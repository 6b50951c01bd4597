extern "C" __global__ void __launch_bounds__(64) standard_ahead(AF_IN(float, in0), AF_IN(float, in1), AF_OUT(float, out0), AF_OUT(float, out1))
{
  __shared__ __align__(16) float fetched0_rows_all[1152];
  float *const fetched0_rows = fetched0_rows_all + threadIdx.x / 32 * 576;
  __shared__ __align__(16) float fetched1_rows_all[1152];
  float *const fetched1_rows = fetched1_rows_all + threadIdx.x / 32 * 576;
  __shared__ __align__(8) uint64_t ready_all[6];
  uint64_t *const ready = ready_all + threadIdx.x / 32 * 3;
  if (threadIdx.x < 6)
    af_rows_init(ready_all + threadIdx.x, 2, 32);
  __syncthreads();
  const auto fetch = [&](int32_t r0, int32_t stage) {
    if (r0 >= 4) return;
    const int32_t r0_w = threadIdx.x / 32;
    if (r0_w >= af_min_i32(2, r0 * (-2) + 7)) return;
    const int32_t r0_r = r0 * 2 + r0_w;
    af_fetch(fetched0_rows + stage * 192, in0 + r0_r * 192, 768, ready + stage, threadIdx.x % 32, 32);
    af_fetch(fetched1_rows + stage * 192, in1 + r0_r * 192, 768, ready + stage, threadIdx.x % 32, 32);
  };
  int32_t stage = 0;
  uint32_t phase = 0;
  for (int32_t n = 0; n < 2; n++) fetch(blockIdx.x + n * gridDim.x, n);
  for (int32_t g = blockIdx.x; g < 4; g += gridDim.x) {
    {
      const int32_t r0 = g;
      for (int32_t r0_w = threadIdx.x / 32; r0_w < af_min_i32(2, r0 * (-2) + 7); r0_w += 2) {
        fetch(g + 2 * gridDim.x, stage ? stage - 1 : 2);
        af_await(ready + stage, phase);
        const float *const fetched0 = fetched0_rows + stage * 192;
        const float *const fetched1 = fetched1_rows + stage * 192;
        const int32_t r0_r = r0 * 2 + r0_w;
        const int32_t p0 = r0_r;
        float acc0 = 0.0f;
        float kept0[8];
        const float acc0_l0 = acc0;
        acc0 = af_identity_add_f32();
        #pragma unroll
        for (int32_t l0_n = 0; l0_n < 2; l0_n++) {
          const int32_t l0 = l0_n * 32 + threadIdx.x % 32;
          if (l0 < 48) {
            const af_f32x4 l0_x1_0_x4 = af_load_vector(af_f32x4, fetched0, l0 * 4);
            const float l0_x1_0 = l0_x1_0_x4.x[0];
            const float l0_x1_1 = l0_x1_0_x4.x[1];
            const float l0_x1_2 = l0_x1_0_x4.x[2];
            const float l0_x1_3 = l0_x1_0_x4.x[3];
            const af_f32x4 l0_x2_0_x4 = af_load_vector(af_f32x4, fetched1, l0 * 4);
            const float l0_x2_0 = l0_x2_0_x4.x[0];
            const float l0_x2_1 = l0_x2_0_x4.x[1];
            const float l0_x2_2 = l0_x2_0_x4.x[2];
            const float l0_x2_3 = l0_x2_0_x4.x[3];
            const float v2_0 = l0_x1_0 + l0_x2_0;
            const float v2_1 = l0_x1_1 + l0_x2_1;
            const float v2_2 = l0_x1_2 + l0_x2_2;
            const float v2_3 = l0_x1_3 + l0_x2_3;
            kept0[l0_n * 4] = v2_0;
            kept0[l0_n * 4 + 1] = v2_1;
            kept0[l0_n * 4 + 2] = v2_2;
            kept0[l0_n * 4 + 3] = v2_3;
            acc0 = acc0 + v2_0;
            acc0 = acc0 + v2_1;
            acc0 = acc0 + v2_2;
            acc0 = acc0 + v2_3;
          }
        }
        acc0 = af_join_add_f32(acc0_l0, af_warp_add_f32(acc0, 32));
        const float v3 = acc0;
        float acc1 = (-AF_INFF);
        float kept1[8];
        const float acc1_l1 = acc1;
        acc1 = af_identity_max_f32();
        #pragma unroll
        for (int32_t l1_n = 0; l1_n < 2; l1_n++) {
          const int32_t l1 = l1_n * 32 + threadIdx.x % 32;
          if (l1 < 48) {
            const float l1_x1_0 = kept0[l1_n * 4];
            const float l1_x1_1 = kept0[l1_n * 4 + 1];
            const float l1_x1_2 = kept0[l1_n * 4 + 2];
            const float l1_x1_3 = kept0[l1_n * 4 + 3];
            const float v7_0 = l1_x1_0 - v3;
            const float v7_1 = l1_x1_1 - v3;
            const float v7_2 = l1_x1_2 - v3;
            const float v7_3 = l1_x1_3 - v3;
            kept1[l1_n * 4] = v7_0;
            kept1[l1_n * 4 + 1] = v7_1;
            kept1[l1_n * 4 + 2] = v7_2;
            kept1[l1_n * 4 + 3] = v7_3;
            const float v8_0 = af_abs_f32(v7_0);
            const float v8_1 = af_abs_f32(v7_1);
            const float v8_2 = af_abs_f32(v7_2);
            const float v8_3 = af_abs_f32(v7_3);
            acc1 = af_max_f32(acc1, v8_0);
            acc1 = af_max_f32(acc1, v8_1);
            acc1 = af_max_f32(acc1, v8_2);
            acc1 = af_max_f32(acc1, v8_3);
          }
        }
        acc1 = af_join_max_f32(acc1_l1, af_warp_max_f32(acc1, 32));
        const float v9 = acc1;
        if (threadIdx.x % 32 == 0) out0[p0] = v9;
        #pragma unroll
        for (int32_t l2_n = 0; l2_n < 2; l2_n++) {
          const int32_t l2 = l2_n * 32 + threadIdx.x % 32;
          if (l2 < 48) {
            const float l2_x1_0 = kept1[l2_n * 4];
            const float l2_x1_1 = kept1[l2_n * 4 + 1];
            const float l2_x1_2 = kept1[l2_n * 4 + 2];
            const float l2_x1_3 = kept1[l2_n * 4 + 3];
            const float v14_0 = l2_x1_0 / v9;
            const float v14_1 = l2_x1_1 / v9;
            const float v14_2 = l2_x1_2 / v9;
            const float v14_3 = l2_x1_3 / v9;
            af_store_vector(af_f32x4, out1, p0 * 192 + l2 * 4, v14_0, v14_1, v14_2, v14_3);
          }
        }
        __syncwarp();
        if (++stage == 3) stage = 0, phase ^= 1;
      }
    }
  }
}
