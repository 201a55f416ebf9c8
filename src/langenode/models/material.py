"""Material laws: stress from the history of strain, with internal variables and a potential.

- `PotentialStress`: a hyperelastic potential of the invariants (an observation for `NeuralODE`).
- `InternalVariableLaw`: the paper's law. Scalar internal variables evolve with the joint invariants of strain and
  rate; the potential depends on the strain's invariants and on them.
- `tensor_law.TensorLaw`: our law. Internal variables are strain-like tensors that relax to the logarithmic strain as in
  a generalised Maxwell solid, with neural corrections that cannot make the dissipation negative.

Inputs are components of Green's strain E (3 along the cube's axes, or 6), outputs the same components of the second
Piola-Kirchhoff stress S. A law can be used at a material point: `stress(strain, internal)` and `advance(internal,
strain, next_strain, dt)` act on 3 x 3 tensors, and their derivatives are the tangents (`mechanics.tangent`).
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Float, PRNGKeyArray
from langenode.models.mechanics import (
    MANDEL,
    NUM_SYMMETRIC,
    Tensor,
    components,
    invariants,
    joint_invariants,
    positive_factor,
    stress_from_potential,
    tensor,
)
from langenode.models.networks import MLP, ConvexMLP
from langenode.models.ode import InputRule
from langenode.models.sensitivities import at_every_time, evolve

NUM_JOINT = 10


class PotentialStress(eqx.Module):
    """`S = dW/dE` of a potential of E's three invariants and the internal variables.

    E is first divided by `strain_scale`, the same number for all components: in isochoric deformation the trace is
    small of second order, and separate scales would destroy that.

    A network's slope at E = 0 is a pressure in the unstrained material. With `stress_free` that slope times `tr E`, the
    only invariant with a slope at E = 0, is subtracted from the potential, so that `S = 0` at E = 0 (and internal
    variables 0) whatever the weights. A term linear in E leaves the convexity as it is.

    With a `structure` the invariants are those of P E, where the symmetric factor P describes the anisotropy of one
    microstructure: 3 x 3 on the normal components (6 weights; shear gets its isotropic part) or a full positive 6 x 6
    factor (21 weights), as in `TensorLaw`. Without it the potential is isotropic.
    """

    potential: MLP | ConvexMLP
    strain_scale: float = eqx.field(static=True, default=1.0)
    stress_free: bool = eqx.field(static=True, default=False)
    structure: Float[Array, "6"] | Float[Array, "21"] | None = None

    def __call__(self, hidden: Float[Array, " state"], inputs: Float[Array, " component"]) -> Array:
        """Return the components of the stress for those of the strain."""
        return components(self.stress(tensor(inputs), hidden), inputs.shape[0])

    def stress(self, strain: Tensor, hidden: Float[Array, " state"]) -> Tensor:
        """Return the stress at a material point."""
        scaled = strain / self.strain_scale
        if self.structure is None:
            return stress_from_potential(lambda values: self._energy(values, hidden), scaled)
        factor = structural_factor(self.structure)
        inner = stress_from_potential(lambda values: self._energy(values, hidden), _apply(factor, scaled))
        return _apply(factor.T, inner)

    def energy(self, strain: Tensor, hidden: Float[Array, " state"]) -> Float[Array, ""]:
        """Return the potential at a material point."""
        scaled = strain / self.strain_scale
        if self.structure is not None:
            scaled = _apply(structural_factor(self.structure), scaled)
        return self.strain_scale * self._energy(invariants(scaled), hidden)

    def _energy(self, values: Array, hidden: Array) -> Array:
        inputs = jnp.concatenate([values, hidden])
        energy = self.potential(inputs)[0]
        if not self.stress_free:
            return energy
        slope = jax.grad(lambda x: self.potential(x)[0])(jnp.zeros_like(inputs))
        return energy - slope[0] * values[0]


def structural_factor(weights: Float[Array, "6"] | Float[Array, "21"]) -> Float[Array, "6 6"]:
    """Return the factor P of a microstructure's anisotropy, on the six components times `MANDEL`."""
    if weights.shape[0] == NUM_SYMMETRIC:
        return positive_factor(weights)
    isotropic = weights[:3].mean() - weights[3:].mean()
    return (
        jnp.zeros((6, 6), weights.dtype)
        .at[:3, :3]
        .set(tensor(weights))
        .at[jnp.arange(3, 6), jnp.arange(3, 6)]
        .set(isotropic)
    )


def _apply(factor: Float[Array, "6 6"], values: Tensor) -> Tensor:
    """Apply a linear map of six components to a symmetric tensor."""
    mandel = jnp.asarray(MANDEL, values.dtype)
    return tensor(factor @ (components(values) * mandel) / mandel)


class RatePotentialStress(eqx.Module):
    """A potential of all ten joint invariants, as the paper's count of weights implies: the stress depends on the rate.

    The derivative with respect to E is taken at fixed rate. Kept as a preset; a potential should not depend on the
    rate.
    """

    potential: MLP | ConvexMLP

    def stress(self, strain: Tensor, rate: Tensor, hidden: Float[Array, " state"]) -> Tensor:
        """Return the stress at a material point; strain and rate are scaled."""

        def energy(values):
            return self.potential(jnp.concatenate([joint_invariants(values, rate), hidden]))[0]

        slope = jax.grad(energy)(strain)
        return 0.5 * (slope + slope.T)


class InternalVariableLaw(eqx.Module):
    """The paper's law: `dh/dt = R(I_joint(E, dE/dt), h)`, `S = dW(I(E), h)/dE`, h = `initial` (or 0) at the start.

    A step is Heun's, with the rate `(E_{n+1} - E_n) / dt` at both stages, and the strain at both ends of the step or,
    by the rule printed in the paper, at its end for both stages. Within an interval, which may be divided into
    `substeps`, the strain is linear in time. The scales of strain and rate give the networks inputs of order one.
    """

    flow: MLP
    observation: PotentialStress | RatePotentialStress
    strain_scale: float = eqx.field(static=True)
    rate_scale: float = eqx.field(static=True)
    num_hidden: int = eqx.field(static=True)
    input_rule: InputRule = eqx.field(static=True, default="trapezoid")
    substeps: int = eqx.field(static=True, default=1)
    initial: Float[Array, " state"] | None = None

    def __call__(
        self,
        times: Float[Array, " time"],
        inputs: Float[Array, "time component"],
        initial: Float[Array, " state"] | None = None,
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "time component"]:
        """Return the stresses of one loading; `initial` are internal variables in place of the law's own start."""
        del key
        strains = jax.vmap(tensor)(inputs)
        steps = jnp.diff(times)

        start = self.start(times.dtype) if initial is None else initial
        later = evolve(lambda hidden, ends: self.advance(hidden, *ends), start, (strains[:-1], strains[1:], steps))
        hidden = jnp.concatenate([start[None], later])
        rates = jax.vmap(_rate)(strains[:-1], strains[1:], steps)
        rates = jnp.concatenate([jnp.zeros_like(rates[:1]), rates])
        num = inputs.shape[1]
        return at_every_time(lambda e, r, h: components(self.stress(e, h, r), num), strains, rates, hidden)

    def start(self, dtype: Any) -> Float[Array, " state"]:
        """Return the internal variables of the unstrained material."""
        return jnp.zeros(self.num_hidden, dtype) if self.initial is None else self.initial.astype(dtype)

    def advance(
        self, hidden: Float[Array, " state"], strain: Tensor, next_strain: Tensor, dt: Float[Array, ""]
    ) -> Float[Array, " state"]:
        """Return the internal variables after a step."""
        rate = _rate(strain, next_strain, dt) / self.rate_scale
        dt = dt / self.substeps

        def slope(strain, hidden):
            return self.flow(jnp.concatenate([joint_invariants(strain / self.strain_scale, rate), hidden]))

        def substep(hidden, number):
            left, right = (strain + (n / self.substeps) * (next_strain - strain) for n in (number, number + 1.0))
            first = slope(right if self.input_rule == "paper" else left, hidden)
            second = slope(right, hidden + dt * first)
            return hidden + 0.5 * dt * (first + second), None

        if self.substeps == 1:
            return substep(hidden, 0.0)[0]
        return jax.lax.scan(substep, hidden, jnp.arange(self.substeps, dtype=hidden.dtype))[0]

    def stress(self, strain: Tensor, hidden: Float[Array, " state"], rate: Tensor | None = None) -> Tensor:
        """Return the stress at a material point; only the 16-input preset uses the rate."""
        if isinstance(self.observation, PotentialStress):
            return self.observation.stress(strain, hidden)
        rate = jnp.zeros_like(strain) if rate is None else rate / self.rate_scale
        return self.observation.stress(strain / self.strain_scale, rate, hidden)


def _rate(strain: Array, next_strain: Array, dt: Array) -> Array:
    """Return `dE/dt` in an interval; zero in the padding, where the time step is zero."""
    return jnp.where(dt > 0.0, next_strain - strain, 0.0) / jnp.where(dt > 0.0, dt, 1.0)


def hyperelastic_potential(
    layers: tuple[int, ...],
    activation: str,
    *,
    convex: bool,
    strain_scale: float,
    stress_free: bool = False,
    structure: Literal["no", "normal", "full"] = "no",
    key: PRNGKeyArray,
) -> PotentialStress:
    """Build a potential of the three invariants: 3-3-3-1 has 28 weights, convex in the invariants or not.

    The paper's potential has a stress in the unstrained material; one that is `stress_free` has none. With a
    `structure`, of the `normal` components or of all (`full`), it has 6 or 21 weights more.
    """
    sizes = (3, *layers, 1)
    network = ConvexMLP(sizes, key=key) if convex else MLP(sizes, activation, key=key)
    weights = {"no": None, "normal": jnp.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]), "full": jnp.zeros(NUM_SYMMETRIC)}
    return PotentialStress(network, strain_scale, stress_free, weights[structure])


def internal_variable_law(
    *,
    num_hidden: int,
    layers: tuple[int, ...],
    potential_layers: tuple[int, ...] | None = None,
    rate_potential: bool,
    strain_scale: float,
    rate_scale: float,
    input_rule: InputRule = "trapezoid",
    substeps: int = 1,
    convex: bool = False,
    trainable_start: bool = False,
    key: PRNGKeyArray,
) -> InternalVariableLaw:
    """Build the paper's law: six internal variables, layers 16-16, a flow of 646 weights and a potential of 449.

    With `rate_potential` the potential takes 16 inputs, which gives the paper's count of 561 weights. Its text has 9
    inputs; with `potential_layers` (9, 9) the potential has 190 weights. The flow has `layers`. A potential that is
    `convex` is so in all its inputs. With `trainable_start` the internal variables start at weights, not at zero.
    """
    key_flow, key_potential = jax.random.split(key)
    flow = MLP((NUM_JOINT + num_hidden, *layers, num_hidden), "tanh", key=key_flow)
    num_inputs = (NUM_JOINT if rate_potential else 3) + num_hidden
    widths = layers if potential_layers is None else potential_layers
    sizes = (num_inputs, *widths, 1)
    potential = ConvexMLP(sizes, key=key_potential) if convex else MLP(sizes, "softplus", key=key_potential)
    observation = RatePotentialStress(potential) if rate_potential else PotentialStress(potential, strain_scale)
    start = jnp.zeros(num_hidden) if trainable_start else None
    return InternalVariableLaw(flow, observation, strain_scale, rate_scale, num_hidden, input_rule, substeps, start)
