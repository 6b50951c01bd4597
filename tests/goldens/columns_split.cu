extern "C" __global__ void __launch_bounds__(256) columns_split(AF_IN(float, in0), AF_OUT(float, out0), AF_WORK(uint32_t, work0), AF_WORK(float, work1))
{
  int32_t turn = 0;
  for (int32_t g = blockIdx.x; g < 6; g += gridDim.x) {
    {
      const int32_t b0 = g;
      for (int32_t l0_x_n = 0; l0_x_n < af_min_i32(32, (int32_t)((uint32_t)b0 / 2u) * (-32) + 75); l0_x_n += 32) {
        const int32_t l0_x = af_min_i32(l0_x_n + threadIdx.x % 32, af_min_i32(32, (int32_t)((uint32_t)b0 / 2u) * (-32) + 75) - 1);
        const int32_t i0 = (int32_t)((uint32_t)b0 / 2u) * 32 + l0_x;
        float acc0 = (-AF_INFF);
        const float acc0_k0_q = acc0;
        acc0 = af_identity_max_f32();
        {
          const int32_t k0_q = b0 % 2;
          const float acc0_k0 = acc0;
          acc0 = af_identity_max_f32();
          #pragma unroll
          for (int32_t k0_n = 0; k0_n < 9; k0_n++) {
            const int32_t k0 = k0_n * 8 + threadIdx.x / 32;
            if (k0 < 65) {
              const float v0 = in0[k0_q * 4875 + k0 * 75 + i0];
              const float v1 = v0 * v0;
              acc0 = af_max_f32(acc0, v1);
            }
          }
          acc0 = af_join_max_f32(acc0_k0, af_column_max_f32<8>(acc0, turn ^= 1));
        }
        if (threadIdx.x / 32 == 0) work1[(b0) * 32 + threadIdx.x % 32] = acc0;
        if (af_is_last(work0, b0 / 2, 2)) {
          acc0 = af_identity_max_f32();
          for (int32_t k0_q_p = threadIdx.x / 32; k0_q_p < 2; k0_q_p += 8)
            acc0 = af_join_max_f32(acc0, __ldcg(work1 + (((b0 / 2) * 2 + k0_q_p) * 32 + threadIdx.x % 32)));
          acc0 = af_join_max_f32(acc0_k0_q, af_column_max_f32<8>(acc0, turn ^= 1));
          const float v2 = acc0;
          if (threadIdx.x / 32 == 0 && l0_x_n + threadIdx.x % 32 < af_min_i32(32, (int32_t)((uint32_t)b0 / 2u) * (-32) + 75)) out0[i0] = v2;
        }
      }
    }
  }
}
