extern "C" __global__ void __launch_bounds__(256) columns_block(AF_IN(float, in0), AF_OUT(float, out0))
{
  int32_t turn = 0;
  for (int32_t g = blockIdx.x; g < 1; g += gridDim.x) {
    {
      for (int32_t l0_x_n = 0; l0_x_n < 32; l0_x_n += 32) {
        const int32_t l0_x = l0_x_n + threadIdx.x % 32;
        const int32_t i0_0 = l0_x * 4;
        float acc0_0 = 0.0f;
        float acc0_1 = 0.0f;
        float acc0_2 = 0.0f;
        float acc0_3 = 0.0f;
        const float acc0_0_k0 = acc0_0;
        acc0_0 = af_identity_add_f32();
        const float acc0_1_k0 = acc0_1;
        acc0_1 = af_identity_add_f32();
        const float acc0_2_k0 = acc0_2;
        acc0_2 = af_identity_add_f32();
        const float acc0_3_k0 = acc0_3;
        acc0_3 = af_identity_add_f32();
        #pragma unroll 4
        for (int32_t k0 = threadIdx.x / 32; k0 < 300; k0 += 8) {
          const af_f32x4 l0_x_x1_0_x4 = af_load_vector(af_f32x4, in0, k0 * 128 + i0_0);
          const float l0_x_x1_0 = l0_x_x1_0_x4.x[0];
          const float l0_x_x1_1 = l0_x_x1_0_x4.x[1];
          const float l0_x_x1_2 = l0_x_x1_0_x4.x[2];
          const float l0_x_x1_3 = l0_x_x1_0_x4.x[3];
          const float v1_0 = l0_x_x1_0 * l0_x_x1_0;
          const float v1_1 = l0_x_x1_1 * l0_x_x1_1;
          const float v1_2 = l0_x_x1_2 * l0_x_x1_2;
          const float v1_3 = l0_x_x1_3 * l0_x_x1_3;
          acc0_0 = acc0_0 + v1_0;
          acc0_1 = acc0_1 + v1_1;
          acc0_2 = acc0_2 + v1_2;
          acc0_3 = acc0_3 + v1_3;
        }
        acc0_0 = af_join_add_f32(acc0_0_k0, af_column_add_f32<8>(acc0_0, turn ^= 1));
        acc0_1 = af_join_add_f32(acc0_1_k0, af_column_add_f32<8>(acc0_1, turn ^= 1));
        acc0_2 = af_join_add_f32(acc0_2_k0, af_column_add_f32<8>(acc0_2, turn ^= 1));
        acc0_3 = af_join_add_f32(acc0_3_k0, af_column_add_f32<8>(acc0_3, turn ^= 1));
        const float v2_0 = acc0_0;
        const float v2_1 = acc0_1;
        const float v2_2 = acc0_2;
        const float v2_3 = acc0_3;
        if (threadIdx.x / 32 == 0) af_store_vector(af_f32x4, out0, i0_0, v2_0, v2_1, v2_2, v2_3);
      }
    }
  }
}
