"""Small arrays in long loops, after reports of users: `jax_jit` beside two releases of JAX."""
