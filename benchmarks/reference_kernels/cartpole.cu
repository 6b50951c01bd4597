/* The whole roll-out of zoo:cartpole_naive as one would write it by hand: a thread is an environment,
   and its state, its reward and its random numbers never leave registers.

   Before this text come the prelude and the macros ENVS, STEPS (at least one of each) and UNROLL,
   how many steps the compiler copies one after another (STEPS: the loop is gone).

   Random numbers are those of `random_bits` (see docs/kernels/graph.md): stream 2t has 4 ENVS words, so its
   quarters are the four resets of an environment and one call draws them; stream 2t + 1 has ENVS. */

struct Words {
  uint32_t w[4];
};

/* Philox-4x32-10 on counter (lane, stream, 0, 0). */
AF_INLINE Words philox(uint32_t lane, uint32_t stream, uint32_t k0, uint32_t k1)
{
  uint32_t c0 = lane, c1 = stream, c2 = 0u, c3 = 0u;
#pragma unroll
  for (int i = 0; i < 10; i++) {
    const uint32_t hi0 = __umulhi(0xD2511F53u, c0), lo0 = 0xD2511F53u * c0;
    const uint32_t hi1 = __umulhi(0xCD9E8D57u, c2), lo1 = 0xCD9E8D57u * c2;
    c0 = hi1 ^ c1 ^ k0;
    c1 = lo1;
    c2 = hi0 ^ c3 ^ k1;
    c3 = lo0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

AF_INLINE float unit(uint32_t word) { return (float)(word >> 8) * 5.9604644775390625e-8f; }
AF_INLINE float fresh(uint32_t word) { return unit(word) * 0.1f + -0.05f; }

extern "C" __global__ void __launch_bounds__(1024) hand_cartpole(
    AF_IN(uint32_t, key), AF_IN(float, state), AF_OUT(float, final_state), AF_OUT(float, reward))
{
  const uint32_t env = blockIdx.x * blockDim.x + threadIdx.x;
  if (env >= ENVS) return;
  const uint32_t k0 = key[0], k1 = key[1];
  constexpr uint32_t coins = (ENVS + 3) / 4;
  const uint32_t coin_lane = env % coins, coin_word = env / coins;
  float x = state[env], x_dot = state[ENVS + env];
  float theta = state[2 * ENVS + env], theta_dot = state[3 * ENVS + env];
  float survived = 0.0f;
#pragma unroll UNROLL
  for (uint32_t t = 0; t < STEPS; t++) {
    const Words r = philox(env, 2u * t, k0, k1);
    const Words c = philox(coin_lane, 2u * t + 1u, k0, k1);
    const uint32_t coin =
        coin_word < 2u ? (coin_word == 0u ? c.w[0] : c.w[1]) : (coin_word == 2u ? c.w[2] : c.w[3]);
    const float force = unit(coin) < 0.5f ? -10.0f : 10.0f;
    const float sin_theta = sinf(theta), cos_theta = cosf(theta);
    const float temp = (force + 0.05f * theta_dot * theta_dot * sin_theta) / 1.1f;
    const float theta_acc = (9.8f * sin_theta - cos_theta * temp) /
                            (0.5f * (1.33333337f - 0.1f * cos_theta * cos_theta / 1.1f));
    const float x_acc = temp - 0.05f * theta_acc * cos_theta / 1.1f;
    x += 0.02f * x_dot;
    x_dot += 0.02f * x_acc;
    theta += 0.02f * theta_dot;
    theta_dot += 0.02f * theta_acc;
    const bool done = fabsf(x) > 2.4f || fabsf(theta) > 0.20943951f;
    survived += done ? 0.0f : 1.0f;
    x = done ? fresh(r.w[0]) : x;
    x_dot = done ? fresh(r.w[1]) : x_dot;
    theta = done ? fresh(r.w[2]) : theta;
    theta_dot = done ? fresh(r.w[3]) : theta_dot;
  }
  final_state[env] = x;
  final_state[ENVS + env] = x_dot;
  final_state[2 * ENVS + env] = theta;
  final_state[3 * ENVS + env] = theta_dot;
  reward[env] = survived;
}
