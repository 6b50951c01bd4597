extern "C" __global__ void __launch_bounds__(256) pointwise_vectors(AF_IN(float, in0), AF_IN(float, in1), AF_OUT(float, out0))
{
  {
    const int32_t g = blockIdx.x;
    if (g < 4) {
      const int32_t b0 = g;
      {
        const int32_t l0 = threadIdx.x;
        if (l0 < 240) {
          const int32_t i0_0 = (int32_t)((uint32_t)(l0 * 4) % 160u);
          const af_f32x4 l0_x1_0_x4 = af_load_vector(af_f32x4, in0, i0_0);
          const float l0_x1_0 = l0_x1_0_x4.x[0];
          const float l0_x1_1 = l0_x1_0_x4.x[1];
          const float l0_x1_2 = l0_x1_0_x4.x[2];
          const float l0_x1_3 = l0_x1_0_x4.x[3];
          const af_f32x4 l0_x2_0_x4 = af_load_vector(af_f32x4, in1, b0 * 960 + l0 * 4);
          const float l0_x2_0 = l0_x2_0_x4.x[0];
          const float l0_x2_1 = l0_x2_0_x4.x[1];
          const float l0_x2_2 = l0_x2_0_x4.x[2];
          const float l0_x2_3 = l0_x2_0_x4.x[3];
          const float v2_0 = expf(l0_x2_0);
          const float v2_1 = expf(l0_x2_1);
          const float v2_2 = expf(l0_x2_2);
          const float v2_3 = expf(l0_x2_3);
          const float v3_0 = v2_0 + l0_x1_0;
          const float v3_1 = v2_1 + l0_x1_1;
          const float v3_2 = v2_2 + l0_x1_2;
          const float v3_3 = v2_3 + l0_x1_3;
          af_store_vector(af_f32x4, out0, b0 * 960 + l0 * 4, v3_0, v3_1, v3_2, v3_3);
        }
      }
    }
  }
}
