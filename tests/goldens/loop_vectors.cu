extern "C" __global__ void __launch_bounds__(256) loop_vectors(AF_IN(float, in0), AF_OUT(float, out0))
{
  for (int32_t g = blockIdx.x; g < 2; g += gridDim.x) {
    if (g < 1) {
      {
        const int32_t l0 = threadIdx.x;
        const int32_t i0_0 = l0 * 2;
        const af_f32x2 l0_x1_0_x2 = af_load_vector(af_f32x2, in0, i0_0);
        const float l0_x1_0 = l0_x1_0_x2.x[0];
        const float l0_x1_1 = l0_x1_0_x2.x[1];
        float s0_0 = l0_x1_0;
        float s0_1 = l0_x1_1;
        #pragma unroll 5
        for (int32_t t0 = 0; t0 < 1; t0++) {
          const float v1_0 = s0_0;
          const float v1_1 = s0_1;
          const float v2_0 = sinf(v1_0);
          const float v2_1 = sinf(v1_1);
          const float v3_0 = v2_0 + v1_0;
          const float v3_1 = v2_1 + v1_1;
          const float v4_0 = v3_0;
          const float v4_1 = v3_1;
          const float v5_0 = sinf(v4_0);
          const float v5_1 = sinf(v4_1);
          const float v6_0 = v5_0 + v4_0;
          const float v6_1 = v5_1 + v4_1;
          const float v7_0 = v6_0;
          const float v7_1 = v6_1;
          const float v8_0 = sinf(v7_0);
          const float v8_1 = sinf(v7_1);
          const float v9_0 = v8_0 + v7_0;
          const float v9_1 = v8_1 + v7_1;
          const float v10_0 = v9_0;
          const float v10_1 = v9_1;
          const float v11_0 = sinf(v10_0);
          const float v11_1 = sinf(v10_1);
          const float v12_0 = v11_0 + v10_0;
          const float v12_1 = v11_1 + v10_1;
          const float v13_0 = v12_0;
          const float v13_1 = v12_1;
          const float v14_0 = sinf(v13_0);
          const float v14_1 = sinf(v13_1);
          const float v15_0 = v14_0 + v13_0;
          const float v15_1 = v14_1 + v13_1;
          const float v16_0 = v15_0;
          const float v16_1 = v15_1;
          s0_0 = v16_0;
          s0_1 = v16_1;
        }
        const float v17_0 = s0_0;
        const float v17_1 = s0_1;
        af_store_vector(af_f32x2, out0, i0_0, v17_0, v17_1);
      }
    }
    else {
      {
        const int32_t l0 = threadIdx.x;
        if (l0 < 94) {
          const int32_t i0_0 = l0 * 2 + 512;
          const af_f32x2 l0_x1_0_x2 = af_load_vector(af_f32x2, in0, i0_0);
          const float l0_x1_0 = l0_x1_0_x2.x[0];
          const float l0_x1_1 = l0_x1_0_x2.x[1];
          float s0_0 = l0_x1_0;
          float s0_1 = l0_x1_1;
          #pragma unroll 5
          for (int32_t t0 = 0; t0 < 1; t0++) {
            const float v1_0 = s0_0;
            const float v1_1 = s0_1;
            const float v2_0 = sinf(v1_0);
            const float v2_1 = sinf(v1_1);
            const float v3_0 = v2_0 + v1_0;
            const float v3_1 = v2_1 + v1_1;
            const float v4_0 = v3_0;
            const float v4_1 = v3_1;
            const float v5_0 = sinf(v4_0);
            const float v5_1 = sinf(v4_1);
            const float v6_0 = v5_0 + v4_0;
            const float v6_1 = v5_1 + v4_1;
            const float v7_0 = v6_0;
            const float v7_1 = v6_1;
            const float v8_0 = sinf(v7_0);
            const float v8_1 = sinf(v7_1);
            const float v9_0 = v8_0 + v7_0;
            const float v9_1 = v8_1 + v7_1;
            const float v10_0 = v9_0;
            const float v10_1 = v9_1;
            const float v11_0 = sinf(v10_0);
            const float v11_1 = sinf(v10_1);
            const float v12_0 = v11_0 + v10_0;
            const float v12_1 = v11_1 + v10_1;
            const float v13_0 = v12_0;
            const float v13_1 = v12_1;
            const float v14_0 = sinf(v13_0);
            const float v14_1 = sinf(v13_1);
            const float v15_0 = v14_0 + v13_0;
            const float v15_1 = v14_1 + v13_1;
            const float v16_0 = v15_0;
            const float v16_1 = v15_1;
            s0_0 = v16_0;
            s0_1 = v16_1;
          }
          const float v17_0 = s0_0;
          const float v17_1 = s0_1;
          af_store_vector(af_f32x2, out0, i0_0, v17_0, v17_1);
        }
      }
    }
  }
}
