extern "C" __global__ void softmax(AF_IN(float, in0), AF_OUT(float, out0))
{
  for (int64_t r0 = blockIdx.x; r0 < 256; r0 += gridDim.x) {
    const int64_t p0 = r0;
    float acc0 = (-AF_INFF);
    const float acc0_before = acc0;
    acc0 = af_identity_max_f32();
    for (int64_t l0 = threadIdx.x; l0 < 512; l0 += blockDim.x) {
      const float v0 = in0[p0 * 512 + l0];
      acc0 = af_max_f32(acc0, v0);
    }
    acc0 = af_join_max_f32(acc0_before, af_block_max_f32(acc0));
    const float v1 = acc0;
    __shared__ float row0[512];
    float acc1 = 0.0f;
    const float acc1_before = acc1;
    acc1 = af_identity_add_f32();
    for (int64_t l1 = threadIdx.x; l1 < 512; l1 += blockDim.x) {
      const float v2 = in0[p0 * 512 + l1];
      const float v3 = v2 - v1;
      const float v4 = expf(v3);
      row0[l1] = v4;
      const float v5 = row0[l1];
      acc1 = acc1 + v5;
    }
    acc1 = af_join_add_f32(acc1_before, af_block_add_f32(acc1));
    const float v6 = acc1;
    for (int64_t l3 = threadIdx.x; l3 < 512; l3 += blockDim.x) {
      const float v7 = row0[l3];
      const float v8 = v7 / v6;
      out0[p0 * 512 + l3] = v8;
    }
    __syncthreads();
  }
}
