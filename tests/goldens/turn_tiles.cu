extern "C" __global__ void __launch_bounds__(256) turn_tiles(AF_IN(float, in0), AF_IN(float, in1), AF_OUT(float, out0))
{
  for (int32_t g = blockIdx.x; g < 6; g += gridDim.x) {
    {
      const int32_t t0_b = g;
      __shared__ __align__(16) float t0_tile0[1056];
      #pragma unroll
      for (int32_t t0_m_n = 0; t0_m_n < 4; t0_m_n++) {
        const int32_t t0_m = t0_m_n * 256 + threadIdx.x;
        const int32_t t0_i = af_min_i32((int32_t)((uint32_t)t0_b % 2u) * 32 + (int32_t)((uint32_t)t0_m / 32u), 44);
        const int32_t t0_ar = af_min_i32((int32_t)((uint32_t)t0_b / 2u) * 32 + (int32_t)((uint32_t)t0_m % 32u), 69);
        t0_tile0[(int32_t)((uint32_t)t0_m / 32u) * 33 + (int32_t)((uint32_t)t0_m % 32u)] = in0[t0_i * 70 + t0_ar];
      }
      __syncthreads();
      #pragma unroll
      for (int32_t t0_n_n = 0; t0_n_n < 4; t0_n_n++) {
        const int32_t t0_n = t0_n_n * 256 + threadIdx.x;
        const int32_t i0 = (int32_t)((uint32_t)t0_b % 2u) * 32 + (int32_t)((uint32_t)t0_n % 32u);
        const int32_t t0_aw = (int32_t)((uint32_t)t0_b / 2u) * 32 + (int32_t)((uint32_t)t0_n / 32u);
        if ((i0 < 45) & (t0_aw < 70)) {
          const float v0 = t0_tile0[(int32_t)((uint32_t)t0_n % 32u) * 33 + (int32_t)((uint32_t)t0_n / 32u)];
          const float v1 = tanhf(v0);
          const float v2 = in1[t0_aw * 45 + i0];
          const float v3 = v1 + v2;
          out0[t0_aw * 45 + i0] = v3;
        }
      }
      __syncthreads();
    }
  }
}
