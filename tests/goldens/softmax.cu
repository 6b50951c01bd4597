extern "C" __global__ void __launch_bounds__(256) softmax(AF_IN(float, in0), AF_OUT(float, out0))
{
  int32_t turn = 0;
  for (int32_t g = blockIdx.x; g < 256; g += gridDim.x) {
    {
      const int32_t r0 = g;
      const int32_t p0 = r0;
      float acc0 = (-AF_INFF);
      const float acc0_l0 = acc0;
      acc0 = af_identity_max_f32();
      #pragma unroll
      for (int32_t l0_n = 0; l0_n < 2; l0_n++) {
        const int32_t l0 = l0_n * 256 + threadIdx.x;
        const float v0 = in0[p0 * 512 + l0];
        acc0 = af_max_f32(acc0, v0);
      }
      acc0 = af_join_max_f32(acc0_l0, af_block_max_f32(acc0, 256, turn ^= 1));
      const float v1 = acc0;
      __shared__ __align__(16) float row0[512];
      float acc1 = 0.0f;
      const float acc1_l1 = acc1;
      acc1 = af_identity_add_f32();
      #pragma unroll
      for (int32_t l1_n = 0; l1_n < 2; l1_n++) {
        const int32_t l1 = l1_n * 256 + threadIdx.x;
        const float v2 = in0[p0 * 512 + l1];
        const float v3 = v2 - v1;
        const float v4 = expf(v3);
        row0[l1] = v4;
        const float v5 = row0[l1];
        acc1 = acc1 + v5;
      }
      acc1 = af_join_add_f32(acc1_l1, af_block_add_f32(acc1, 256, turn ^= 1));
      const float v6 = acc1;
      #pragma unroll
      for (int32_t l3_n = 0; l3_n < 2; l3_n++) {
        const int32_t l3 = l3_n * 256 + threadIdx.x;
        const float v7 = row0[l3];
        const float v8 = v7 / v6;
        out0[p0 * 512 + l3] = v8;
      }
    }
  }
}
