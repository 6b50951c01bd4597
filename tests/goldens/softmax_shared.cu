extern "C" __global__ void __launch_bounds__(64) softmax_shared(AF_IN(af_f16, in0), AF_OUT(af_f16, out0))
{
  int32_t turn = 0;
  for (int32_t g = blockIdx.x; g < 6; g += gridDim.x) {
    {
      const int32_t r0 = g;
      const int32_t p0 = r0;
      float acc0 = (-AF_INFF);
      __shared__ __align__(16) float kept0[320];
      const float acc0_l0 = acc0;
      acc0 = af_identity_max_f32();
      {
        const int32_t l0 = threadIdx.x;
        if (l0 < 40) {
          const af_f16x8 l0_x1_0_x8 = af_load_vector(af_f16x8, in0, p0 * 320 + l0 * 8);
          const af_f16 l0_x1_0 = l0_x1_0_x8.x[0];
          const af_f16 l0_x1_1 = l0_x1_0_x8.x[1];
          const af_f16 l0_x1_2 = l0_x1_0_x8.x[2];
          const af_f16 l0_x1_3 = l0_x1_0_x8.x[3];
          const af_f16 l0_x1_4 = l0_x1_0_x8.x[4];
          const af_f16 l0_x1_5 = l0_x1_0_x8.x[5];
          const af_f16 l0_x1_6 = l0_x1_0_x8.x[6];
          const af_f16 l0_x1_7 = l0_x1_0_x8.x[7];
          const float v0_0 = af_load_f16(l0_x1_0);
          const float v0_1 = af_load_f16(l0_x1_1);
          const float v0_2 = af_load_f16(l0_x1_2);
          const float v0_3 = af_load_f16(l0_x1_3);
          const float v0_4 = af_load_f16(l0_x1_4);
          const float v0_5 = af_load_f16(l0_x1_5);
          const float v0_6 = af_load_f16(l0_x1_6);
          const float v0_7 = af_load_f16(l0_x1_7);
          af_store_vector(af_f32x4, kept0, l0 * 8, v0_0, v0_1, v0_2, v0_3);
          af_store_vector(af_f32x4, kept0, l0 * 8 + 4, v0_4, v0_5, v0_6, v0_7);
          acc0 = af_max_f32(acc0, v0_0);
          acc0 = af_max_f32(acc0, v0_1);
          acc0 = af_max_f32(acc0, v0_2);
          acc0 = af_max_f32(acc0, v0_3);
          acc0 = af_max_f32(acc0, v0_4);
          acc0 = af_max_f32(acc0, v0_5);
          acc0 = af_max_f32(acc0, v0_6);
          acc0 = af_max_f32(acc0, v0_7);
        }
      }
      acc0 = af_join_max_f32(acc0_l0, af_block_max_f32(acc0, 64, turn ^= 1));
      const float v1 = acc0;
      __shared__ __align__(16) float row0[320];
      float acc1 = 0.0f;
      const float acc1_l1 = acc1;
      acc1 = af_identity_add_f32();
      {
        const int32_t l1 = threadIdx.x;
        if (l1 < 40) {
          const af_f32x4 l1_x1_0_x4 = af_load_vector(af_f32x4, kept0, l1 * 8);
          const float l1_x1_0 = l1_x1_0_x4.x[0];
          const float l1_x1_1 = l1_x1_0_x4.x[1];
          const float l1_x1_2 = l1_x1_0_x4.x[2];
          const float l1_x1_3 = l1_x1_0_x4.x[3];
          const af_f32x4 l1_x1_4_x4 = af_load_vector(af_f32x4, kept0, l1 * 8 + 4);
          const float l1_x1_4 = l1_x1_4_x4.x[0];
          const float l1_x1_5 = l1_x1_4_x4.x[1];
          const float l1_x1_6 = l1_x1_4_x4.x[2];
          const float l1_x1_7 = l1_x1_4_x4.x[3];
          const float v3_0 = l1_x1_0 - v1;
          const float v3_1 = l1_x1_1 - v1;
          const float v3_2 = l1_x1_2 - v1;
          const float v3_3 = l1_x1_3 - v1;
          const float v3_4 = l1_x1_4 - v1;
          const float v3_5 = l1_x1_5 - v1;
          const float v3_6 = l1_x1_6 - v1;
          const float v3_7 = l1_x1_7 - v1;
          const float v4_0 = expf(v3_0);
          const float v4_1 = expf(v3_1);
          const float v4_2 = expf(v3_2);
          const float v4_3 = expf(v3_3);
          const float v4_4 = expf(v3_4);
          const float v4_5 = expf(v3_5);
          const float v4_6 = expf(v3_6);
          const float v4_7 = expf(v3_7);
          af_store_vector(af_f32x4, row0, l1 * 8, v4_0, v4_1, v4_2, v4_3);
          af_store_vector(af_f32x4, row0, l1 * 8 + 4, v4_4, v4_5, v4_6, v4_7);
          const af_f32x4 l1_x2_0_x4 = af_load_vector(af_f32x4, row0, l1 * 8);
          const float l1_x2_0 = l1_x2_0_x4.x[0];
          const float l1_x2_1 = l1_x2_0_x4.x[1];
          const float l1_x2_2 = l1_x2_0_x4.x[2];
          const float l1_x2_3 = l1_x2_0_x4.x[3];
          const af_f32x4 l1_x2_4_x4 = af_load_vector(af_f32x4, row0, l1 * 8 + 4);
          const float l1_x2_4 = l1_x2_4_x4.x[0];
          const float l1_x2_5 = l1_x2_4_x4.x[1];
          const float l1_x2_6 = l1_x2_4_x4.x[2];
          const float l1_x2_7 = l1_x2_4_x4.x[3];
          acc1 = acc1 + l1_x2_0;
          acc1 = acc1 + l1_x2_1;
          acc1 = acc1 + l1_x2_2;
          acc1 = acc1 + l1_x2_3;
          acc1 = acc1 + l1_x2_4;
          acc1 = acc1 + l1_x2_5;
          acc1 = acc1 + l1_x2_6;
          acc1 = acc1 + l1_x2_7;
        }
      }
      acc1 = af_join_add_f32(acc1_l1, af_block_add_f32(acc1, 64, turn ^= 1));
      const float v6 = acc1;
      {
        const int32_t l3 = threadIdx.x;
        if (l3 < 40) {
          const af_f32x4 l3_x1_0_x4 = af_load_vector(af_f32x4, row0, l3 * 8);
          const float l3_x1_0 = l3_x1_0_x4.x[0];
          const float l3_x1_1 = l3_x1_0_x4.x[1];
          const float l3_x1_2 = l3_x1_0_x4.x[2];
          const float l3_x1_3 = l3_x1_0_x4.x[3];
          const af_f32x4 l3_x1_4_x4 = af_load_vector(af_f32x4, row0, l3 * 8 + 4);
          const float l3_x1_4 = l3_x1_4_x4.x[0];
          const float l3_x1_5 = l3_x1_4_x4.x[1];
          const float l3_x1_6 = l3_x1_4_x4.x[2];
          const float l3_x1_7 = l3_x1_4_x4.x[3];
          const float v8_0 = l3_x1_0 / v6;
          const float v8_1 = l3_x1_1 / v6;
          const float v8_2 = l3_x1_2 / v6;
          const float v8_3 = l3_x1_3 / v6;
          const float v8_4 = l3_x1_4 / v6;
          const float v8_5 = l3_x1_5 / v6;
          const float v8_6 = l3_x1_6 / v6;
          const float v8_7 = l3_x1_7 / v6;
          af_store_vector(af_f16x8, out0, p0 * 320 + l3 * 8, af_store_f16(v8_0), af_store_f16(v8_1), af_store_f16(v8_2), af_store_f16(v8_3), af_store_f16(v8_4), af_store_f16(v8_5), af_store_f16(v8_6), af_store_f16(v8_7));
        }
      }
    }
  }
}
