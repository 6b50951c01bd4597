extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(64) standard_cluster(AF_IN(float, in0), AF_IN(float, in1), AF_OUT(float, out0), AF_OUT(float, out1))
{
  int32_t turn = 0;
  int32_t meeting = 0;
  af_cluster_begin();
  {
    const int32_t g = blockIdx.x;
    if (g < 4) {
      const int32_t r0 = g;
      const int32_t r0_r = (int32_t)((uint32_t)r0 / 2u);
      const int32_t p0 = r0_r;
      float acc0 = 0.0f;
      float kept0[16];
      const float acc0_l0_q = acc0;
      acc0 = af_identity_add_f32();
      {
        const int32_t l0_q = r0 % 2;
        const float acc0_l0 = acc0;
        acc0 = af_identity_add_f32();
        #pragma unroll
        for (int32_t l0_n = 0; l0_n < 4; l0_n++) {
          const int32_t l0 = l0_n * 64 + threadIdx.x;
          if (l0 < 200) {
            const af_f32x4 l0_x1_0_x4 = af_load_vector(af_f32x4, in0, p0 * 1600 + l0_q * 800 + l0 * 4);
            const float l0_x1_0 = l0_x1_0_x4.x[0];
            const float l0_x1_1 = l0_x1_0_x4.x[1];
            const float l0_x1_2 = l0_x1_0_x4.x[2];
            const float l0_x1_3 = l0_x1_0_x4.x[3];
            const af_f32x4 l0_x2_0_x4 = af_load_vector(af_f32x4, in1, p0 * 1600 + l0_q * 800 + l0 * 4);
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
        acc0 = af_join_add_f32(acc0_l0, af_block_add_f32(acc0, 64, turn ^= 1));
      }
      af_cluster_wait();
      acc0 = af_join_add_f32(acc0_l0_q, af_cluster_add_f32<2>(acc0, meeting ^= 1));
      const float v3 = acc0;
      float acc1 = (-AF_INFF);
      float kept1[16];
      const float acc1_l1_q = acc1;
      acc1 = af_identity_max_f32();
      {
        const float acc1_l1 = acc1;
        acc1 = af_identity_max_f32();
        #pragma unroll
        for (int32_t l1_n = 0; l1_n < 4; l1_n++) {
          const int32_t l1 = l1_n * 64 + threadIdx.x;
          if (l1 < 200) {
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
        acc1 = af_join_max_f32(acc1_l1, af_block_max_f32(acc1, 64, turn ^= 1));
      }
      acc1 = af_join_max_f32(acc1_l1_q, af_cluster_max_f32<2>(acc1, meeting ^= 1));
      const float v9 = acc1;
      if (threadIdx.x == 0 && r0 % 2 == 0) out0[p0] = v9;
      {
        const int32_t l2_q = r0 % 2;
        #pragma unroll
        for (int32_t l2_n = 0; l2_n < 4; l2_n++) {
          const int32_t l2 = l2_n * 64 + threadIdx.x;
          if (l2 < 200) {
            const float l2_x1_0 = kept1[l2_n * 4];
            const float l2_x1_1 = kept1[l2_n * 4 + 1];
            const float l2_x1_2 = kept1[l2_n * 4 + 2];
            const float l2_x1_3 = kept1[l2_n * 4 + 3];
            const float v14_0 = l2_x1_0 / v9;
            const float v14_1 = l2_x1_1 / v9;
            const float v14_2 = l2_x1_2 / v9;
            const float v14_3 = l2_x1_3 / v9;
            af_store_vector(af_f32x4, out1, p0 * 1600 + l2_q * 800 + l2 * 4, v14_0, v14_1, v14_2, v14_3);
          }
        }
      }
    }
  }
}
