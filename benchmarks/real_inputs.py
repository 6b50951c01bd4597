"""Programs written by others, as jax functions with arguments: CartPole of gymnax, and the
seawater equation of state of veros."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def gymnax_cartpole(n_envs: int = 2048) -> Program:
    """(step, (keys, states, actions)): CartPole-v1 `step_env` of gymnax under vmap.

    Keys are u32[n_envs, 2], actions i32[n_envs]; states spread over the legal range. About 104
    primitives.
    """
    import gymnax
    import jax
    import jax.numpy as jnp
    from gymnax.environments.classic_control.cartpole import EnvState

    env, parameters = gymnax.make("CartPole-v1")
    keys = jax.random.split(jax.random.PRNGKey(0), n_envs)
    draw = jax.random.uniform(jax.random.PRNGKey(1), (4, n_envs), minval=-1.0, maxval=1.0)
    limits = jnp.array([3.0, 2.0, 0.3, 2.0])[:, None]
    x, x_dot, theta, theta_dot = draw * limits
    time = jnp.arange(n_envs, dtype=jnp.int32) % 600
    states = EnvState(x=x, x_dot=x_dot, theta=theta, theta_dot=theta_dot, time=time)
    actions = jnp.arange(n_envs, dtype=jnp.int32) % 2

    def step(keys: Any, states: Any, actions: Any) -> Any:
        return jax.vmap(env.step_env, in_axes=(0, 0, 0, None))(keys, states, actions, parameters)

    return step, (keys, states, actions)


def veros_gsw_dhdt(n: int = 1_000_000) -> Program:
    """(gsw_dHdT, (sa, ct, p)): d(dynamic enthalpy)/dT of n points of sea water, all f32[n].

    Absolute salinity in g/kg, conservative temperature in degrees C, pressure in dbar. 366
    elementwise primitives. Veros is set to its jax backend in single precision, so that jax
    keeps its default dtypes.
    """
    import jax.numpy as jnp
    import numpy as np

    dhdt = _veros_dhdt()
    rng = np.random.default_rng(0)
    ranges = ((30.0, 40.0), (-1.0, 30.0), (1.0, 6000.0))
    arguments = tuple(jnp.asarray(rng.uniform(*r, n).astype(np.float32)) for r in ranges)
    return dhdt, arguments


def _veros_dhdt() -> Callable[..., Any]:
    """Importing veros.core fixes its settings, so they are made first.

    Its log would go to stdout and warnings with it: both are kept as they were.
    """
    import veros
    from loguru import logger

    with warnings.catch_warnings():
        assert veros.logger is not None  # reading it sets up the log
        settings = veros.runtime_settings
        if not settings.__locked__:
            settings.backend, settings.float_type = "jax", "float32"
        if (settings.backend, settings.float_type) != ("jax", "float32"):
            raise RuntimeError("veros is already set up with another backend or precision")
        logger.disable("veros")
        from veros.core.density import gsw

    function: Callable[..., Any] = gsw.gsw_dHdT
    return function
