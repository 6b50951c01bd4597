"""One step of the Cartpole, for any array library with `sin`, `cos` and `abs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autofuse.zoo.cartpole import (
    ANGLE_LIMIT,
    CART,
    DT,
    GRAVITY,
    HALF_LENGTH,
    POLE,
    X_LIMIT,
)

_MASS, _MOMENT = CART + POLE, POLE * HALF_LENGTH


def dynamics(xp: Any, state: Sequence[Any], force: Any) -> tuple[Any, ...]:
    """The four state arrays after one Euler step."""
    x, x_dot, theta, theta_dot = state
    sin, cos = xp.sin(theta), xp.cos(theta)
    temp = (force + _MOMENT * theta_dot * theta_dot * sin) / _MASS
    theta_acc = (GRAVITY * sin - cos * temp) / (
        HALF_LENGTH * (4.0 / 3.0 - POLE * cos * cos / _MASS)
    )
    x_acc = temp - _MOMENT * theta_acc * cos / _MASS
    return (
        x + DT * x_dot,
        x_dot + DT * x_acc,
        theta + DT * theta_dot,
        theta_dot + DT * theta_acc,
    )


def is_done(xp: Any, x: Any, theta: Any) -> Any:
    """Whether the cart or the pole is out of bounds."""
    return (xp.abs(x) > X_LIMIT) | (xp.abs(theta) > ANGLE_LIMIT)
