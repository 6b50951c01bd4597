extern "C" __global__ void __launch_bounds__(256) pack_mixed(AF_IN(float, in0), AF_IN(float, in1), AF_IN(float, in2), AF_IN(float, in3), AF_OUT(float, out0), AF_OUT(float, out1), AF_OUT(float, out2), AF_OUT(float, out3))
{
  {
    const int32_t g = blockIdx.x;
    if (g < 3) {
      const int32_t b0 = g;
      {
        const int32_t l0 = threadIdx.x;
        const int32_t i0 = b0 * 256 + l0;
        const float v0 = in0[i0];
        const float v1 = tanhf(v0);
        out0[i0] = v1;
      }
    }
    else if (g < 4) {
      {
        const int32_t l0 = threadIdx.x;
        if (l0 < 232) {
          const int32_t i0 = l0 + 768;
          const float v0 = in0[i0];
          const float v1 = tanhf(v0);
          out0[i0] = v1;
        }
      }
    }
    else if (g < 11) {
      const int32_t b1 = g - 4;
      {
        const int32_t l1 = threadIdx.x;
        const int32_t i1 = b1 * 256 + l1;
        const float v2 = in1[i1];
        const float v3 = tanhf(v2);
        out1[i1] = v3;
      }
    }
    else if (g < 12) {
      {
        const int32_t l1 = threadIdx.x;
        if (l1 < 208) {
          const int32_t i1 = l1 + 1792;
          const float v2 = in1[i1];
          const float v3 = tanhf(v2);
          out1[i1] = v3;
        }
      }
    }
    else if (g < 13) {
      {
        const int32_t l2 = threadIdx.x;
        if (l2 < 7) {
          const int32_t i2 = l2;
          const float v4 = in2[i2];
          const float v5 = tanhf(v4);
          out2[i2] = v5;
        }
      }
    }
    else if (g < 16) {
      const int32_t r1 = g - 13;
      for (int32_t r1_w = threadIdx.x / 32; r1_w < af_min_i32(8, r1 * (-8) + 20); r1_w += 8) {
        const int32_t r1_r = r1 * 8 + r1_w;
        const int32_t p0 = r1_r;
        float acc0 = 0.0f;
        const float acc0_l3 = acc0;
        acc0 = af_identity_add_f32();
        #pragma unroll
        for (int32_t l3_n = 0; l3_n < 3; l3_n++) {
          const int32_t l3 = l3_n * 32 + threadIdx.x % 32;
          const float v6 = in3[p0 * 96 + l3];
          acc0 = acc0 + v6;
        }
        acc0 = af_join_add_f32(acc0_l3, af_warp_add_f32(acc0, 32));
        const float v7 = acc0;
        if (threadIdx.x % 32 == 0) out3[p0] = v7;
      }
    }
  }
}
