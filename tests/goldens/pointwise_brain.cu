extern "C" __global__ void __launch_bounds__(128) pointwise_brain(AF_IN(af_bf16, in0), AF_IN(af_bf16, in1), AF_OUT(af_bf16, out0))
{
  for (int32_t g = blockIdx.x; g < 3; g += gridDim.x) {
    if (g < 2) {
      const int32_t b0 = g;
      #pragma unroll
      for (int32_t l0_n = 0; l0_n < 2; l0_n++) {
        const int32_t l0 = l0_n * 128 + threadIdx.x;
        if (l0 < 195) {
          const int32_t i0_0 = (int32_t)((uint32_t)(l0 * 2) % 130u);
          const af_bf16x2 l0_x1_0_x2 = af_load_vector(af_bf16x2, in0, i0_0);
          const af_bf16 l0_x1_0 = l0_x1_0_x2.x[0];
          const af_bf16 l0_x1_1 = l0_x1_0_x2.x[1];
          const af_bf16x2 l0_x2_0_x2 = af_load_vector(af_bf16x2, in1, b0 * 390 + l0 * 2);
          const af_bf16 l0_x2_0 = l0_x2_0_x2.x[0];
          const af_bf16 l0_x2_1 = l0_x2_0_x2.x[1];
          const float v0_0 = af_load_bf16(l0_x1_0);
          const float v0_1 = af_load_bf16(l0_x1_1);
          const float v1_0 = af_load_bf16(l0_x2_0);
          const float v1_1 = af_load_bf16(l0_x2_1);
          const float v2_0 = expf(v1_0);
          const float v2_1 = expf(v1_1);
          const float v3_0 = v2_0 + v0_0;
          const float v3_1 = v2_1 + v0_1;
          af_store_vector(af_bf16x2, out0, b0 * 390 + l0 * 2, af_store_bf16(v3_0), af_store_bf16(v3_1));
        }
      }
    }
    else {
      {
        const int32_t l0 = threadIdx.x;
        if (l0 < 65) {
          const int32_t r0 = 6;
          const int32_t i0_0 = l0 * 2;
          const af_bf16x2 l0_x1_0_x2 = af_load_vector(af_bf16x2, in0, i0_0);
          const af_bf16 l0_x1_0 = l0_x1_0_x2.x[0];
          const af_bf16 l0_x1_1 = l0_x1_0_x2.x[1];
          const af_bf16x2 l0_x2_0_x2 = af_load_vector(af_bf16x2, in1, r0 * 130 + i0_0);
          const af_bf16 l0_x2_0 = l0_x2_0_x2.x[0];
          const af_bf16 l0_x2_1 = l0_x2_0_x2.x[1];
          const float v0_0 = af_load_bf16(l0_x1_0);
          const float v0_1 = af_load_bf16(l0_x1_1);
          const float v1_0 = af_load_bf16(l0_x2_0);
          const float v1_1 = af_load_bf16(l0_x2_1);
          const float v2_0 = expf(v1_0);
          const float v2_1 = expf(v1_1);
          const float v3_0 = v2_0 + v0_0;
          const float v3_1 = v2_1 + v0_1;
          af_store_vector(af_bf16x2, out0, r0 * 130 + i0_0, af_store_bf16(v3_0), af_store_bf16(v3_1));
        }
      }
    }
  }
}
