extern "C" __global__ void __launch_bounds__(256) standard_hints(AF_IN(float, in0), AF_IN(float, in1), AF_OUT(float, out0), AF_OUT(float, out1))
{
  for (int32_t g = blockIdx.x; g < 1; g += gridDim.x) {
    {
      for (int32_t r0_w = threadIdx.x / 32; r0_w < af_min_i32(8, 7); r0_w += 8) {
        const int32_t r0_r = r0_w;
        const int32_t p0 = r0_r;
        float acc0 = 0.0f;
        const float acc0_l0 = acc0;
        acc0 = af_identity_add_f32();
        #pragma unroll
        for (int32_t l0_n = 0; l0_n < 2; l0_n++) {
          const int32_t l0 = l0_n * 32 + threadIdx.x % 32;
          if (l0 < 48) {
            const af_f32x4 l0_x1_0_x4 = af_load_vector_again(af_f32x4, in0, p0 * 192 + l0 * 4);
            const float l0_x1_0 = l0_x1_0_x4.x[0];
            const float l0_x1_1 = l0_x1_0_x4.x[1];
            const float l0_x1_2 = l0_x1_0_x4.x[2];
            const float l0_x1_3 = l0_x1_0_x4.x[3];
            const af_f32x4 l0_x2_0_x4 = af_load_vector_again(af_f32x4, in1, p0 * 192 + l0 * 4);
            const float l0_x2_0 = l0_x2_0_x4.x[0];
            const float l0_x2_1 = l0_x2_0_x4.x[1];
            const float l0_x2_2 = l0_x2_0_x4.x[2];
            const float l0_x2_3 = l0_x2_0_x4.x[3];
            const float v2_0 = l0_x1_0 + l0_x2_0;
            const float v2_1 = l0_x1_1 + l0_x2_1;
            const float v2_2 = l0_x1_2 + l0_x2_2;
            const float v2_3 = l0_x1_3 + l0_x2_3;
            acc0 = acc0 + v2_0;
            acc0 = acc0 + v2_1;
            acc0 = acc0 + v2_2;
            acc0 = acc0 + v2_3;
          }
        }
        acc0 = af_join_add_f32(acc0_l0, af_warp_add_f32(acc0, 32));
        const float v3 = acc0;
        float acc1 = (-AF_INFF);
        const float acc1_l1 = acc1;
        acc1 = af_identity_max_f32();
        #pragma unroll
        for (int32_t l1_n = 0; l1_n < 2; l1_n++) {
          const int32_t l1 = l1_n * 32 + threadIdx.x % 32;
          if (l1 < 48) {
            const af_f32x4 l1_x1_0_x4 = af_load_vector_again(af_f32x4, in0, p0 * 192 + l1 * 4);
            const float l1_x1_0 = l1_x1_0_x4.x[0];
            const float l1_x1_1 = l1_x1_0_x4.x[1];
            const float l1_x1_2 = l1_x1_0_x4.x[2];
            const float l1_x1_3 = l1_x1_0_x4.x[3];
            const af_f32x4 l1_x2_0_x4 = af_load_vector_again(af_f32x4, in1, p0 * 192 + l1 * 4);
            const float l1_x2_0 = l1_x2_0_x4.x[0];
            const float l1_x2_1 = l1_x2_0_x4.x[1];
            const float l1_x2_2 = l1_x2_0_x4.x[2];
            const float l1_x2_3 = l1_x2_0_x4.x[3];
            const float v6_0 = l1_x1_0 + l1_x2_0;
            const float v6_1 = l1_x1_1 + l1_x2_1;
            const float v6_2 = l1_x1_2 + l1_x2_2;
            const float v6_3 = l1_x1_3 + l1_x2_3;
            const float v7_0 = v6_0 - v3;
            const float v7_1 = v6_1 - v3;
            const float v7_2 = v6_2 - v3;
            const float v7_3 = v6_3 - v3;
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
            const af_f32x4 l2_x1_0_x4 = af_load_vector_once(af_f32x4, in0, p0 * 192 + l2 * 4);
            const float l2_x1_0 = l2_x1_0_x4.x[0];
            const float l2_x1_1 = l2_x1_0_x4.x[1];
            const float l2_x1_2 = l2_x1_0_x4.x[2];
            const float l2_x1_3 = l2_x1_0_x4.x[3];
            const af_f32x4 l2_x2_0_x4 = af_load_vector_once(af_f32x4, in1, p0 * 192 + l2 * 4);
            const float l2_x2_0 = l2_x2_0_x4.x[0];
            const float l2_x2_1 = l2_x2_0_x4.x[1];
            const float l2_x2_2 = l2_x2_0_x4.x[2];
            const float l2_x2_3 = l2_x2_0_x4.x[3];
            const float v12_0 = l2_x1_0 + l2_x2_0;
            const float v12_1 = l2_x1_1 + l2_x2_1;
            const float v12_2 = l2_x1_2 + l2_x2_2;
            const float v12_3 = l2_x1_3 + l2_x2_3;
            const float v13_0 = v12_0 - v3;
            const float v13_1 = v12_1 - v3;
            const float v13_2 = v12_2 - v3;
            const float v13_3 = v12_3 - v3;
            const float v14_0 = v13_0 / v9;
            const float v14_1 = v13_1 / v9;
            const float v14_2 = v13_2 / v9;
            const float v14_3 = v13_3 / v9;
            af_store_vector(af_f32x4, out1, p0 * 192 + l2 * 4, v14_0, v14_1, v14_2, v14_3);
          }
        }
      }
    }
  }
}
