extern "C" __global__ void __launch_bounds__(256) softmax_warp(AF_IN(float, in0), AF_OUT(float, out0))
{
  {
    const int32_t g = blockIdx.x;
    if (g < 2) {
      const int32_t r0 = g;
      for (int32_t r0_w = threadIdx.x / 32; r0_w < af_min_i32(8, r0 * (-8) + 10); r0_w += 8) {
        const int32_t r0_r = r0 * 8 + r0_w;
        const int32_t p0 = r0_r;
        float acc0 = (-AF_INFF);
        float kept0[8];
        const float acc0_l0 = acc0;
        acc0 = af_identity_max_f32();
        #pragma unroll
        for (int32_t l0_n = 0; l0_n < 2; l0_n++) {
          const int32_t l0 = l0_n * 32 + threadIdx.x % 32;
          if (l0 < 50) {
            const af_f32x4 l0_x1_0_x4 = af_load_vector(af_f32x4, in0, p0 * 200 + l0 * 4);
            const float l0_x1_0 = l0_x1_0_x4.x[0];
            const float l0_x1_1 = l0_x1_0_x4.x[1];
            const float l0_x1_2 = l0_x1_0_x4.x[2];
            const float l0_x1_3 = l0_x1_0_x4.x[3];
            kept0[l0_n * 4] = l0_x1_0;
            kept0[l0_n * 4 + 1] = l0_x1_1;
            kept0[l0_n * 4 + 2] = l0_x1_2;
            kept0[l0_n * 4 + 3] = l0_x1_3;
            acc0 = af_max_f32(acc0, l0_x1_0);
            acc0 = af_max_f32(acc0, l0_x1_1);
            acc0 = af_max_f32(acc0, l0_x1_2);
            acc0 = af_max_f32(acc0, l0_x1_3);
          }
        }
        acc0 = af_join_max_f32(acc0_l0, af_warp_max_f32(acc0, 32));
        const float v1 = acc0;
        float row0[8];
        float acc1 = 0.0f;
        const float acc1_l1 = acc1;
        acc1 = af_identity_add_f32();
        #pragma unroll
        for (int32_t l1_n = 0; l1_n < 2; l1_n++) {
          const int32_t l1 = l1_n * 32 + threadIdx.x % 32;
          if (l1 < 50) {
            const float l1_x1_0 = kept0[l1_n * 4];
            const float l1_x1_1 = kept0[l1_n * 4 + 1];
            const float l1_x1_2 = kept0[l1_n * 4 + 2];
            const float l1_x1_3 = kept0[l1_n * 4 + 3];
            const float v3_0 = l1_x1_0 - v1;
            const float v3_1 = l1_x1_1 - v1;
            const float v3_2 = l1_x1_2 - v1;
            const float v3_3 = l1_x1_3 - v1;
            const float v4_0 = expf(v3_0);
            const float v4_1 = expf(v3_1);
            const float v4_2 = expf(v3_2);
            const float v4_3 = expf(v3_3);
            row0[l1_n * 4] = v4_0;
            row0[l1_n * 4 + 1] = v4_1;
            row0[l1_n * 4 + 2] = v4_2;
            row0[l1_n * 4 + 3] = v4_3;
            const float l1_x2_0 = row0[l1_n * 4];
            const float l1_x2_1 = row0[l1_n * 4 + 1];
            const float l1_x2_2 = row0[l1_n * 4 + 2];
            const float l1_x2_3 = row0[l1_n * 4 + 3];
            acc1 = acc1 + l1_x2_0;
            acc1 = acc1 + l1_x2_1;
            acc1 = acc1 + l1_x2_2;
            acc1 = acc1 + l1_x2_3;
          }
        }
        acc1 = af_join_add_f32(acc1_l1, af_warp_add_f32(acc1, 32));
        const float v6 = acc1;
        #pragma unroll
        for (int32_t l3_n = 0; l3_n < 2; l3_n++) {
          const int32_t l3 = l3_n * 32 + threadIdx.x % 32;
          if (l3 < 50) {
            const float l3_x1_0 = row0[l3_n * 4];
            const float l3_x1_1 = row0[l3_n * 4 + 1];
            const float l3_x1_2 = row0[l3_n * 4 + 2];
            const float l3_x1_3 = row0[l3_n * 4 + 3];
            const float v8_0 = l3_x1_0 / v6;
            const float v8_1 = l3_x1_1 / v6;
            const float v8_2 = l3_x1_2 / v6;
            const float v8_3 = l3_x1_3 / v6;
            af_store_vector(af_f32x4, out0, p0 * 200 + l3 * 4, v8_0, v8_1, v8_2, v8_3);
          }
        }
      }
    }
  }
}
