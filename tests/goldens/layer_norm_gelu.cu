extern "C" __global__ void __launch_bounds__(256) layer_norm_gelu(AF_IN(float, in0), AF_IN(float, in1), AF_IN(float, in2), AF_OUT(float, out0))
{
  int32_t turn = 0;
  for (int32_t g = blockIdx.x; g < 256; g += gridDim.x) {
    {
      const int32_t r0 = g;
      const int32_t p0 = r0;
      float acc0 = 0.0f;
      const float acc0_l0 = acc0;
      acc0 = af_identity_add_f32();
      #pragma unroll
      for (int32_t l0_n = 0; l0_n < 2; l0_n++) {
        const int32_t l0 = l0_n * 256 + threadIdx.x;
        const float v0 = in0[p0 * 512 + l0];
        acc0 = acc0 + v0;
      }
      acc0 = af_join_add_f32(acc0_l0, af_block_add_f32(acc0, 256, turn ^= 1));
      const float v1 = acc0;
      float acc1 = 0.0f;
      const float v3 = v1 * 0.001953125f;
      const float acc1_l1 = acc1;
      acc1 = af_identity_add_f32();
      #pragma unroll
      for (int32_t l1_n = 0; l1_n < 2; l1_n++) {
        const int32_t l1 = l1_n * 256 + threadIdx.x;
        const float v2 = in0[p0 * 512 + l1];
        const float v4 = v2 - v3;
        const float v5 = v4 * v4;
        acc1 = acc1 + v5;
      }
      acc1 = af_join_add_f32(acc1_l1, af_block_add_f32(acc1, 256, turn ^= 1));
      const float v6 = acc1;
      const float v9 = v6 * 0.001953125f;
      const float v10 = v9 + 9.999999747378752e-06f;
      const float v11 = 1.0f / af_sqrt_f32(v10);
      #pragma unroll
      for (int32_t l2_n = 0; l2_n < 2; l2_n++) {
        const int32_t l2 = l2_n * 256 + threadIdx.x;
        const float v7 = in0[p0 * 512 + l2];
        const float v13 = in1[l2];
        const float v15 = in2[l2];
        const float v8 = v7 - v3;
        const float v12 = v8 * v11;
        const float v14 = v12 * v13;
        const float v16 = v14 + v15;
        const float v17 = 0.5f * v16;
        const float v18 = v16 * v16;
        const float v19 = v16 * v18;
        const float v20 = 0.044714998453855515f * v19;
        const float v21 = v16 + v20;
        const float v22 = 0.7978845834732056f * v21;
        const float v23 = tanhf(v22);
        const float v24 = 1.0f + v23;
        const float v25 = v17 * v24;
        out0[p0 * 512 + l2] = v25;
      }
    }
  }
}
