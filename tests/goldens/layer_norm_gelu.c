void layer_norm_gelu(const float *restrict in0, const float *restrict in1, const float *restrict in2, float *restrict out0, int64_t first, int64_t last)
{
  for (int64_t r0 = first, r0_end = last < 256 ? last : 256; r0 < r0_end; r0++) {
    const int64_t p0 = r0;
    float acc0 = 0.0f;
    float acc0_l0[64] __attribute__((aligned(64)));
    #pragma omp simd
    for (int64_t l0_w = 0; l0_w < 64; l0_w++) {
      acc0_l0[l0_w] = 0.0f;
    }
    for (int64_t l0_c = 0; l0_c < 8; l0_c++) {
      #pragma omp simd
      for (int64_t l0_w = 0; l0_w < 64; l0_w++) {
        const float v0 = in0[p0 * 512 + (l0_c * 64 + l0_w)];
        acc0_l0[l0_w] = acc0_l0[l0_w] + v0;
      }
    }
    #pragma omp simd
    for (int64_t l0_w = 0; l0_w < 32; l0_w++) {
      acc0_l0[l0_w] = acc0_l0[l0_w] + acc0_l0[l0_w + 32];
    }
    #pragma omp simd
    for (int64_t l0_w = 0; l0_w < 16; l0_w++) {
      acc0_l0[l0_w] = acc0_l0[l0_w] + acc0_l0[l0_w + 16];
    }
    #pragma omp simd
    for (int64_t l0_w = 0; l0_w < 8; l0_w++) {
      acc0_l0[l0_w] = acc0_l0[l0_w] + acc0_l0[l0_w + 8];
    }
    #pragma omp simd
    for (int64_t l0_w = 0; l0_w < 4; l0_w++) {
      acc0_l0[l0_w] = acc0_l0[l0_w] + acc0_l0[l0_w + 4];
    }
    #pragma omp simd
    for (int64_t l0_w = 0; l0_w < 2; l0_w++) {
      acc0_l0[l0_w] = acc0_l0[l0_w] + acc0_l0[l0_w + 2];
    }
    #pragma omp simd
    for (int64_t l0_w = 0; l0_w < 1; l0_w++) {
      acc0_l0[l0_w] = acc0_l0[l0_w] + acc0_l0[l0_w + 1];
    }
    acc0 = acc0 + acc0_l0[0];
    const float v1 = acc0;
    float acc1 = 0.0f;
    const float v3 = v1 * 0.001953125f;
    float acc1_l1[64] __attribute__((aligned(64)));
    #pragma omp simd
    for (int64_t l1_w = 0; l1_w < 64; l1_w++) {
      acc1_l1[l1_w] = 0.0f;
    }
    for (int64_t l1_c = 0; l1_c < 8; l1_c++) {
      #pragma omp simd
      for (int64_t l1_w = 0; l1_w < 64; l1_w++) {
        const float v2 = in0[p0 * 512 + (l1_c * 64 + l1_w)];
        const float v4 = v2 - v3;
        const float v5 = v4 * v4;
        acc1_l1[l1_w] = acc1_l1[l1_w] + v5;
      }
    }
    #pragma omp simd
    for (int64_t l1_w = 0; l1_w < 32; l1_w++) {
      acc1_l1[l1_w] = acc1_l1[l1_w] + acc1_l1[l1_w + 32];
    }
    #pragma omp simd
    for (int64_t l1_w = 0; l1_w < 16; l1_w++) {
      acc1_l1[l1_w] = acc1_l1[l1_w] + acc1_l1[l1_w + 16];
    }
    #pragma omp simd
    for (int64_t l1_w = 0; l1_w < 8; l1_w++) {
      acc1_l1[l1_w] = acc1_l1[l1_w] + acc1_l1[l1_w + 8];
    }
    #pragma omp simd
    for (int64_t l1_w = 0; l1_w < 4; l1_w++) {
      acc1_l1[l1_w] = acc1_l1[l1_w] + acc1_l1[l1_w + 4];
    }
    #pragma omp simd
    for (int64_t l1_w = 0; l1_w < 2; l1_w++) {
      acc1_l1[l1_w] = acc1_l1[l1_w] + acc1_l1[l1_w + 2];
    }
    #pragma omp simd
    for (int64_t l1_w = 0; l1_w < 1; l1_w++) {
      acc1_l1[l1_w] = acc1_l1[l1_w] + acc1_l1[l1_w + 1];
    }
    acc1 = acc1 + acc1_l1[0];
    const float v6 = acc1;
    const float v9 = v6 * 0.001953125f;
    const float v10 = v9 + 9.999999747378752e-06f;
    const float v11 = 1.0f / af_sqrt_f32(v10);
    #pragma omp simd
    for (int64_t l2 = 0; l2 < 512; l2++) {
      const float v7 = in0[p0 * 512 + l2];
      const float v8 = v7 - v3;
      const float v12 = v8 * v11;
      const float v13 = in1[l2];
      const float v14 = v12 * v13;
      const float v15 = in2[l2];
      const float v16 = v14 + v15;
      const float v17 = 0.5f * v16;
      const float v18 = v16 * v16;
      const float v19 = v16 * v18;
      const float v20 = 0.044714998453855515f * v19;
      const float v21 = v16 + v20;
      const float v22 = 0.7978845834732056f * v21;
      const float v23 = af_tanh_f32(v22);
      const float v24 = 1.0f + v23;
      const float v25 = v17 * v24;
      out0[p0 * 512 + l2] = v25;
    }
  }
}
