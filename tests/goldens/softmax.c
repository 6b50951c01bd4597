void softmax(const float *restrict in0, float *restrict out0, int64_t first, int64_t last)
{
  for (int64_t r0 = first, r0_end = last < 256 ? last : 256; r0 < r0_end; r0++) {
    const int64_t p0 = r0;
    float acc0 = (-AF_INFF);
    float acc0_l0[64] __attribute__((aligned(64)));
    #pragma omp simd
    for (int64_t l0_w = 0; l0_w < 64; l0_w++) {
      acc0_l0[l0_w] = acc0;
    }
    for (int64_t l0_c = 0; l0_c < 8; l0_c++) {
      #pragma omp simd
      for (int64_t l0_w = 0; l0_w < 64; l0_w++) {
        const float v0 = in0[p0 * 512 + (l0_c * 64 + l0_w)];
        acc0_l0[l0_w] = af_max_f32(acc0_l0[l0_w], v0);
      }
    }
    #pragma omp simd
    for (int64_t l0_w = 0; l0_w < 32; l0_w++) {
      acc0_l0[l0_w] = af_max_f32(acc0_l0[l0_w], acc0_l0[l0_w + 32]);
    }
    #pragma omp simd
    for (int64_t l0_w = 0; l0_w < 16; l0_w++) {
      acc0_l0[l0_w] = af_max_f32(acc0_l0[l0_w], acc0_l0[l0_w + 16]);
    }
    #pragma omp simd
    for (int64_t l0_w = 0; l0_w < 8; l0_w++) {
      acc0_l0[l0_w] = af_max_f32(acc0_l0[l0_w], acc0_l0[l0_w + 8]);
    }
    #pragma omp simd
    for (int64_t l0_w = 0; l0_w < 4; l0_w++) {
      acc0_l0[l0_w] = af_max_f32(acc0_l0[l0_w], acc0_l0[l0_w + 4]);
    }
    #pragma omp simd
    for (int64_t l0_w = 0; l0_w < 2; l0_w++) {
      acc0_l0[l0_w] = af_max_f32(acc0_l0[l0_w], acc0_l0[l0_w + 2]);
    }
    #pragma omp simd
    for (int64_t l0_w = 0; l0_w < 1; l0_w++) {
      acc0_l0[l0_w] = af_max_f32(acc0_l0[l0_w], acc0_l0[l0_w + 1]);
    }
    acc0 = af_max_f32(acc0, acc0_l0[0]);
    const float v1 = acc0;
    float row0[512] __attribute__((aligned(64)));
    float acc1 = 0.0f;
    #pragma omp simd reduction(+:acc1)
    for (int64_t l1 = 0; l1 < 512; l1++) {
      const float v2 = in0[p0 * 512 + l1];
      const float v3 = v2 - v1;
      const float v4 = af_exp_f32(v3);
      row0[l1] = v4;
      const float v5 = row0[l1];
      acc1 = acc1 + v5;
    }
    const float v6 = acc1;
    #pragma omp simd
    for (int64_t l3 = 0; l3 < 512; l3++) {
      const float v7 = row0[l3];
      const float v8 = v7 / v6;
      out0[p0 * 512 + l3] = v8;
    }
  }
}
