"""Parameters by name that differ between units: `Effects(ka=LogNormal(1.5, 0.6), V=LogNormal(30, 0.3), n=Fixed(1.0))`.

A unit's parameter is `transform(value)` with a value that is normal between units: the parameter itself, its
logarithm, or the logit of its place between two bounds.
"""

import collections
import math
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Float

Scale = Literal["linear", "log", "logit"]


class Effect(NamedTuple):
    """How one parameter is distributed between units. Made by `Normal`, `LogNormal`, `LogitNormal` and `Fixed`.

    `spread` is the standard deviation between units on the scale named, None where all units have the same value; both
    numbers are where a fit starts. `occasion` is the same within a unit, from one of its trajectories to another.
    """

    typical: float
    spread: float | None
    scale: Scale = "linear"
    low: float = 0.0
    high: float = 1.0
    occasion: float | None = None

    def to_value(self) -> float:
        """The typical parameter on its scale."""
        if self.scale == "linear":
            return self.typical
        if self.scale == "log":
            return math.log(self.typical)
        share = (self.typical - self.low) / (self.high - self.low)
        return math.log(share / (1.0 - share))

    def to_parameter(self, value: Float[Array, ""]) -> Float[Array, ""]:
        """The parameter of a value on its scale."""
        if self.scale == "linear":
            return value
        if self.scale == "log":
            return jnp.exp(value)
        return self.low + (self.high - self.low) * jax.nn.sigmoid(value)


def Normal(typical: float, spread: float, *, occasion: float | None = None) -> Effect:  # noqa: N802
    """A parameter that is normal between units."""
    return _checked(Effect(typical, spread, "linear", occasion=occasion))


def LogNormal(typical: float, spread: float, *, occasion: float | None = None) -> Effect:  # noqa: N802
    """A positive parameter whose logarithm is normal between units; `spread` is that of the logarithm."""
    return _checked(Effect(typical, spread, "log", occasion=occasion))


def LogitNormal(  # noqa: N802
    typical: float, spread: float, *, low: float = 0.0, high: float = 1.0, occasion: float | None = None
) -> Effect:
    """A parameter between two bounds; `spread` is that of the logit of its place between them."""
    return _checked(Effect(typical, spread, "logit", low, high, occasion))


def Fixed(typical: float, *, is_positive: bool = False) -> Effect:  # noqa: N802
    """A parameter that all units share; it is estimated, too."""
    return _checked(Effect(typical, None, "log" if is_positive else "linear"))


def _checked(effect: Effect) -> Effect:
    # Plain numbers: an effect is a static part of a model, where NumPy's own scalars do not belong.
    numbers = {name: part for name, part in effect._asdict().items() if part is not None and name != "scale"}
    effect = effect._replace(**{name: float(part) for name, part in numbers.items()})
    for name in ("spread", "occasion"):
        value = getattr(effect, name)
        if value is not None and not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"the {name} of an effect must be a positive number; got {value}; give where to start")
    inside = {
        "linear": math.isfinite(effect.typical),
        "log": 0.0 < effect.typical < math.inf,
        "logit": effect.low < effect.typical < effect.high,
    }
    if not inside[effect.scale]:
        bounds = {"linear": "finite", "log": "positive", "logit": f"between {effect.low:g} and {effect.high:g}"}
        raise ValueError(f"the typical value must be {bounds[effect.scale]}; got {effect.typical}; give another")
    return effect


class Effects(eqx.Module):
    """The parameters of one unit, by name; `effects()` gives them as a named tuple, in their own units.

    `values` differ between units and `shared` do not; both are on the scales on which effects are normal.
    """

    values: Float[Array, " random"]
    shared: Float[Array, " shared"]
    effects: tuple[tuple[str, Effect], ...] = eqx.field(static=True)

    def __init__(self, **effects: Effect):
        wrong = [name for name, effect in effects.items() if not isinstance(effect, Effect)]
        if wrong or not effects:
            raise ValueError(
                f"effects must be distributions; got {wrong or 'none'}; e.g. Effects(ka=LogNormal(1.5, 0.6))"
            )
        self.effects = tuple(effects.items())
        self.values = jnp.asarray([e.to_value() for _, e in self.effects if e.spread is not None], float)
        self.shared = jnp.asarray([e.to_value() for _, e in self.effects if e.spread is None], float)

    @property
    def random(self) -> tuple[tuple[str, Effect], ...]:
        """The effects that differ between units, in the order of `values`."""
        return tuple((name, effect) for name, effect in self.effects if effect.spread is not None)

    @property
    def fixed(self) -> tuple[tuple[str, Effect], ...]:
        """The effects that all units share, in the order of `shared`."""
        return tuple((name, effect) for name, effect in self.effects if effect.spread is None)

    def __call__(self) -> Any:
        """The parameters as a named tuple: `p = effects(); p.ka`."""
        values, shared = iter(self.values), iter(self.shared)
        found = [effect.to_parameter(next(shared if effect.spread is None else values)) for _, effect in self.effects]
        return collections.namedtuple("Parameters", [name for name, _ in self.effects])(*found)
