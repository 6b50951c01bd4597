extern "C" __global__ void __launch_bounds__(256) sums_split(AF_IN(double, in0), AF_OUT(double, out0), AF_WORK(uint32_t, work0), AF_WORK(double, work1))
{
  int32_t turn = 0;
  for (int32_t g = blockIdx.x; g < 8; g += gridDim.x) {
    {
      const int32_t r0 = g;
      const int32_t r0_r = (int32_t)((uint32_t)r0 / 4u);
      const int32_t p0 = r0_r;
      double acc0 = 0.0;
      const double acc0_l0_q = acc0;
      acc0 = af_identity_add_f64();
      {
        const int32_t l0_q = r0 % 4;
        const double acc0_l0 = acc0;
        acc0 = af_identity_add_f64();
        #pragma unroll
        for (int32_t l0_n = 0; l0_n < 3; l0_n++) {
          const int32_t l0 = l0_n * 256 + threadIdx.x;
          if (l0 < 625) {
            const af_f64x2 l0_x1_0_x2 = af_load_vector(af_f64x2, in0, p0 * 5000 + l0_q * 1250 + l0 * 2);
            const double l0_x1_0 = l0_x1_0_x2.x[0];
            const double l0_x1_1 = l0_x1_0_x2.x[1];
            const double v1_0 = l0_x1_0 * l0_x1_0;
            const double v1_1 = l0_x1_1 * l0_x1_1;
            acc0 = acc0 + v1_0;
            acc0 = acc0 + v1_1;
          }
        }
        acc0 = af_join_add_f64(acc0_l0, af_block_add_f64(acc0, 256, turn ^= 1));
      }
      if (threadIdx.x == 0) work1[r0] = acc0;
      if (af_is_last(work0, r0 / 4, 4)) {
        acc0 = af_identity_add_f64();
        for (int32_t l0_q_p = threadIdx.x; l0_q_p < 4; l0_q_p += 256)
          acc0 = af_join_add_f64(acc0, __ldcg(work1 + ((r0 / 4) * 4 + l0_q_p)));
        acc0 = af_join_add_f64(acc0_l0_q, af_block_add_f64(acc0, 256, turn ^= 1));
        const double v2 = acc0;
        if (threadIdx.x == 0) out0[p0] = v2;
      }
    }
  }
}
