"""Material laws: stress from the history of strain, with internal variables and a potential.

- `PotentialStress`: a hyperelastic potential of the invariants (an observation for `NeuralODE`).
- `InternalVariableLaw`: the paper's law. Scalar internal variables evolve with the joint invariants of strain and
  rate; the potential depends on the strain's invariants and on them.
- `TensorLaw`: our law. Internal variables are strain-like tensors that relax to the logarithmic strain as in a
  generalised Maxwell solid, with neural corrections that cannot make the dissipation negative.

Inputs are components of Green's strain E (3 along the cube's axes, or 6), outputs the same components of the second
Piola-Kirchhoff stress S. A law can be used at a material point: `stress(strain, internal)` and `advance(internal,
strain, next_strain, dt)` act on 3 x 3 tensors, and their derivatives are the tangents (`mechanics.tangent`).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, PRNGKeyArray
from langenode.models.mechanics import (
    MANDEL,
    Tensor,
    components,
    invariants,
    joint_invariants,
    log_strain,
    stress_from_potential,
    tensor,
)
from langenode.models.networks import MLP, ConvexMLP, scale_last_layer
from langenode.models.sensitivities import at_every_time, evolve

NUM_JOINT = 10
_TRACES = np.array([0, 3])  # positions among the joint invariants of the traces of both tensors


class PotentialStress(eqx.Module):
    """`S = dW/dE` of a potential of E's three invariants and the internal variables.

    E is first divided by `strain_scale`, the same number for all components: in isochoric deformation the trace is
    small of second order, and separate scales would destroy that.

    A network's slope at E = 0 is a pressure in the unstrained material. With `stress_free` that slope times `tr E`, the
    only invariant with a slope at E = 0, is subtracted from the potential, so that `S = 0` at E = 0 (and internal
    variables 0) whatever the weights. A term linear in E leaves the convexity as it is.
    """

    potential: MLP | ConvexMLP
    strain_scale: float = eqx.field(static=True, default=1.0)
    stress_free: bool = eqx.field(static=True, default=False)

    def __call__(self, hidden: Float[Array, " state"], inputs: Float[Array, " component"]) -> Array:
        """Return the components of the stress for those of the strain."""
        return components(self.stress(tensor(inputs), hidden), inputs.shape[0])

    def stress(self, strain: Tensor, hidden: Float[Array, " state"]) -> Tensor:
        """Return the stress at a material point."""
        return stress_from_potential(lambda values: self._energy(values, hidden), strain / self.strain_scale)

    def energy(self, strain: Tensor, hidden: Float[Array, " state"]) -> Float[Array, ""]:
        """Return the potential at a material point."""
        return self.strain_scale * self._energy(invariants(strain / self.strain_scale), hidden)

    def _energy(self, values: Array, hidden: Array) -> Array:
        inputs = jnp.concatenate([values, hidden])
        energy = self.potential(inputs)[0]
        if not self.stress_free:
            return energy
        slope = jax.grad(lambda x: self.potential(x)[0])(jnp.zeros_like(inputs))
        return energy - slope[0] * values[0]


class RatePotentialStress(eqx.Module):
    """A potential of all ten joint invariants, as the paper's count of weights implies: the stress depends on the rate.

    The derivative with respect to E is taken at fixed rate. Kept as a preset; a potential should not depend on the
    rate.
    """

    potential: MLP

    def stress(self, strain: Tensor, rate: Tensor, hidden: Float[Array, " state"]) -> Tensor:
        """Return the stress at a material point; strain and rate are scaled."""

        def energy(values):
            return self.potential(jnp.concatenate([joint_invariants(values, rate), hidden]))[0]

        slope = jax.grad(energy)(strain)
        return 0.5 * (slope + slope.T)


class InternalVariableLaw(eqx.Module):
    """The paper's law: `dh/dt = R(I_joint(E, dE/dt), h)`, `S = dW(I(E), h)/dE`, h = 0 at the start.

    A step is Heun's, with the rate `(E_{n+1} - E_n) / dt` at both stages. The scales of strain and rate give the
    networks inputs of order one.
    """

    flow: MLP
    observation: PotentialStress | RatePotentialStress
    strain_scale: float = eqx.field(static=True)
    rate_scale: float = eqx.field(static=True)
    num_hidden: int = eqx.field(static=True)

    def __call__(
        self,
        times: Float[Array, " time"],
        inputs: Float[Array, "time component"],
        initial: Float[Array, " state"] | None = None,
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "time component"]:
        """Return the stresses of one loading; `initial` are the internal variables, zero if not given."""
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
        return jnp.zeros(self.num_hidden, dtype)

    def advance(
        self, hidden: Float[Array, " state"], strain: Tensor, next_strain: Tensor, dt: Float[Array, ""]
    ) -> Float[Array, " state"]:
        """Return the internal variables after a step."""
        rate = _rate(strain, next_strain, dt) / self.rate_scale

        def slope(strain, hidden):
            return self.flow(jnp.concatenate([joint_invariants(strain / self.strain_scale, rate), hidden]))

        first = slope(strain, hidden)
        second = slope(next_strain, hidden + dt * first)
        return hidden + 0.5 * dt * (first + second)

    def stress(self, strain: Tensor, hidden: Float[Array, " state"], rate: Tensor | None = None) -> Tensor:
        """Return the stress at a material point; only the 16-input preset uses the rate."""
        if isinstance(self.observation, PotentialStress):
            return self.observation.stress(strain, hidden)
        rate = jnp.zeros_like(strain) if rate is None else rate / self.rate_scale
        return self.observation.stress(strain / self.strain_scale, rate, hidden)


def _rate(strain: Array, next_strain: Array, dt: Array) -> Array:
    """Return `dE/dt` in an interval; zero in the padding, where the time step is zero."""
    return jnp.where(dt > 0.0, next_strain - strain, 0.0) / jnp.where(dt > 0.0, dt, 1.0)


class TensorLaw(eqx.Module):
    """A generalised Maxwell solid in logarithmic strain e, with a structural factor and neural corrections.

        W = G_0 |P e|^2 + sum_b G_b |P (e - a_b)|^2 + K/2 tr(e)^2 + N(joint invariants of e and s)
        da_b/dt = m_b / (2 G_b tau_b) A^-1 (-dW/da_b),    A = P'P,    s = sum_b G_b (e - a_b) / sum_b G_b

    P is a symmetric 3 x 3 factor on the three normal components; it describes how one microstructure is stiffer along
    some axes than another. Shear components, which loadings normal to the faces do not test, get its isotropic part.
    The mobilities `m_b = exp(NN(joint invariants))` are positive and A^-1 is positive definite, so the dissipation rate
    `sum_b (-dW/da_b) . da_b/dt` cannot be negative, whatever the networks' weights. N has zero slope in the unstrained
    state.

    Without networks a step is exact for a strain that is linear in time; with them it is of second order.
    """

    log_moduli: Float[Array, " branch_and_one"]
    log_times: Float[Array, " branch"]
    log_bulk: Float[Array, ""]
    structure: Float[Array, "6"]
    energy_correction: MLP | None
    mobility: MLP | None
    strain_scale: float = eqx.field(static=True)

    def __call__(
        self,
        times: Float[Array, " time"],
        inputs: Float[Array, "time component"],
        initial: Float[Array, " state"] | None = None,
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "time component"]:
        """Return the stresses of one loading that begins with the relaxed material."""
        del key, initial
        num = inputs.shape[1]
        # Logarithmic strains do not depend on the weights, so under `vmap` over weights they are computed once.
        strains = jax.vmap(lambda row: self._vector(tensor(row), num))(inputs)

        start = jnp.zeros((self.num_branches, num), inputs.dtype)
        ends = (strains[:-1], strains[1:], jnp.diff(times))
        later = evolve(lambda internal, ends: self._advance(internal, *ends), start, ends)
        conjugate = at_every_time(self._conjugate, strains, jnp.concatenate([start[None], later]))
        return jax.vmap(self._pull_back)(inputs, conjugate)

    @property
    def num_branches(self) -> int:
        """Number of internal tensors."""
        return self.log_times.shape[0]

    def start(self, dtype: Any) -> Float[Array, "branch 6"]:
        """Return the internal variables of the relaxed, unstrained material."""
        return jnp.zeros((self.num_branches, 6), dtype)

    def advance(
        self, internal: Float[Array, "branch 6"], strain: Tensor, next_strain: Tensor, dt: Float[Array, ""]
    ) -> Float[Array, "branch 6"]:
        """Return the internal variables after a step, at a material point."""
        return self._advance(internal, self._vector(strain, 6), self._vector(next_strain, 6), dt)

    def stress(self, strain: Tensor, internal: Float[Array, "branch 6"]) -> Tensor:
        """Return the stress at a material point."""
        row = components(strain)
        return tensor(self._pull_back(row, self._conjugate(self._vector(strain, 6), internal)))

    def energy(self, strain: Tensor, internal: Float[Array, "branch 6"]) -> Float[Array, ""]:
        """Return the potential at a material point."""
        return self.strain_scale * self._energy(self._vector(strain, 6), internal)

    def dissipation(self, strain: Tensor, internal: Float[Array, "branch 6"]) -> Float[Array, ""]:
        """Return the rate of energy loss at a material point: never negative."""
        vector = self._vector(strain, 6)
        force = -jax.grad(self._energy, argnums=1)(vector, internal)
        mobility, shift = self._kinetics(vector, internal)
        rate = (mobility / jnp.exp(self.log_times))[:, None] * (vector - internal + shift)
        return self.strain_scale * jnp.sum(force * rate)

    def _vector(self, strain: Tensor, num: int) -> Float[Array, " component"]:
        """Return the logarithmic strain over its scale, as a vector with the tensors' scalar product."""
        return _to_vector(log_strain(strain), num) / self.strain_scale

    def _pull_back(self, row: Float[Array, " component"], conjugate: Float[Array, " component"]) -> Array:
        """Return `S = (de/dE)' T`, conjugate to Green's strain, from T, conjugate to the logarithmic strain."""
        num = row.shape[0]
        # As a matrix: it does not depend on the weights, so under `vmap` over weights it is computed once.
        slope = jax.jacfwd(lambda r: _to_vector(log_strain(tensor(r)), num))(row)
        # A shear component stands for two entries of the tensor, and the derivative counts both.
        return conjugate @ slope / jnp.asarray(MANDEL[:num] ** 2, row.dtype)

    def _factor(self, vectors: Float[Array, "*rows component"]) -> Float[Array, "*rows component"]:
        """Apply P to vectors."""
        factor = tensor(self.structure)
        normal = vectors[..., :3] @ factor
        if vectors.shape[-1] == 3:
            return normal
        isotropic = self.structure[:3].mean() - self.structure[3:].mean()
        return jnp.concatenate([normal, isotropic * vectors[..., 3:]], axis=-1)

    def _energy(self, strain: Array, internal: Array) -> Array:
        moduli = jnp.exp(self.log_moduli)
        parts = self._factor(jnp.concatenate([strain[None], strain - internal]))
        energy = jnp.sum(moduli * jnp.sum(parts**2, axis=-1)) + 0.5 * jnp.exp(self.log_bulk) * strain[:3].sum() ** 2
        if self.energy_correction is None:
            return energy
        return energy + self._corrected(strain, self._overall(strain - internal))

    def _overall(self, elastic: Float[Array, "branch component"]) -> Float[Array, " component"]:
        """Return the mean of the elastic strains, weighted by the branch moduli."""
        return jax.nn.softmax(self.log_moduli[1:]) @ elastic

    def _joint(self, strain: Array, elastic: Array) -> Float[Array, "10"]:
        return joint_invariants(_to_tensor(strain), _to_tensor(elastic))

    def _corrected(self, strain: Array, elastic: Array) -> Array:
        """Return the network minus its slope in the two traces, the only invariants linear at the unstrained state.

        Removing the slope in the other invariants as well would leave a potential without a lower bound.
        """
        network = lambda values: self.energy_correction(values)[0]  # noqa: E731  # pyright: ignore[reportOptionalCall]
        slope = jax.grad(network)(jnp.zeros(NUM_JOINT, strain.dtype))
        values = self._joint(strain, elastic)
        return network(values) - slope[_TRACES] @ values[_TRACES]

    def _conjugate(self, strain: Array, internal: Array) -> Array:
        """Return T, the stress conjugate to the logarithmic strain, at fixed internal variables."""
        return jax.grad(self._energy)(strain, internal)

    def _kinetics(self, strain: Array, internal: Array) -> tuple[Array, Array]:
        """Return the mobilities m_b, and what the energy correction adds to the force on the elastic strains."""
        elastic = self._overall(strain - internal)
        mobility = jnp.ones(self.num_branches, strain.dtype)
        if self.mobility is not None:
            mobility = jnp.exp(self.mobility(self._joint(strain, elastic)))
        if self.energy_correction is None:
            return mobility, jnp.zeros_like(strain)
        pull = jax.grad(self._corrected, argnums=1)(strain, elastic)
        return mobility, self._solve(pull) / (2.0 * jnp.sum(jnp.exp(self.log_moduli[1:])))

    def _solve(self, vector: Array) -> Array:
        """Apply `A^-1` to a vector."""
        matrix = self._factor(jnp.eye(vector.shape[0], dtype=vector.dtype))
        return jnp.linalg.solve(matrix @ matrix, vector)

    def _advance(self, internal: Array, strain: Array, next_strain: Array, dt: Array) -> Array:
        now = self._kinetics(strain, internal)
        guess = self._relax(internal, strain, next_strain, dt, *now)
        if self.mobility is None and self.energy_correction is None:
            return guess
        mean = jax.tree.map(lambda a, b: 0.5 * (a + b), now, self._kinetics(next_strain, guess))
        return self._relax(internal, strain, next_strain, dt, *mean)

    def _relax(self, internal: Array, strain: Array, next_strain: Array, dt: Array, mobility: Array, shift: Array):
        """Relax over a step, exact for constant mobility and shift: with b = e - a, `b' = e' - (b + shift) m / tau`."""
        x = (dt * mobility / jnp.exp(self.log_times))[:, None]
        lost = -jnp.expm1(-x)
        gain = jnp.where(x > 1e-6, lost / jnp.where(x > 1e-6, x, 1.0), 1.0 - 0.5 * x)
        elastic = (1.0 - lost) * (strain - internal) + gain * (next_strain - strain) - lost * shift
        return next_strain - elastic


def _to_vector(values: Tensor, num: int) -> Array:
    return components(values, num) * jnp.asarray(MANDEL[:num], values.dtype)


def _to_tensor(vector: Array) -> Tensor:
    return tensor(vector / jnp.asarray(MANDEL[: vector.shape[0]], vector.dtype))


def hyperelastic_potential(
    layers: tuple[int, ...],
    activation: str,
    *,
    convex: bool,
    strain_scale: float,
    stress_free: bool = False,
    key: PRNGKeyArray,
) -> PotentialStress:
    """Build a potential of the three invariants: 3-3-3-1 has 28 weights, convex in the invariants or not.

    The paper's potential has a stress in the unstrained material; one that is `stress_free` has none.
    """
    sizes = (3, *layers, 1)
    network = ConvexMLP(sizes, key=key) if convex else MLP(sizes, activation, key=key)
    return PotentialStress(network, strain_scale, stress_free)


def internal_variable_law(
    *,
    num_hidden: int,
    layers: tuple[int, ...],
    rate_potential: bool,
    strain_scale: float,
    rate_scale: float,
    key: PRNGKeyArray,
) -> InternalVariableLaw:
    """Build the paper's law: six internal variables, layers 16-16, a flow of 646 weights and a potential of 449.

    With `rate_potential` the potential takes 16 inputs, which gives the paper's count of 561 weights.
    """
    key_flow, key_potential = jax.random.split(key)
    flow = MLP((NUM_JOINT + num_hidden, *layers, num_hidden), "tanh", key=key_flow)
    num_inputs = (NUM_JOINT if rate_potential else 3) + num_hidden
    potential = MLP((num_inputs, *layers, 1), "softplus", key=key_potential)
    observation = RatePotentialStress(potential) if rate_potential else PotentialStress(potential, strain_scale)
    return InternalVariableLaw(flow, observation, strain_scale, rate_scale, num_hidden)


def tensor_law(
    *,
    num_branches: int,
    correction_layers: tuple[int, ...] | None,
    strain_scale: float,
    shortest: float,
    longest: float,
    bulk_ratio: float,
    key: PRNGKeyArray,
) -> TensorLaw:
    """Build our law before training: equal moduli, log-spaced times, no anisotropy, networks with zero output.

    `bulk_ratio` is the bulk modulus over the shear modulus: isochoric loadings carry no information about it.
    """
    energy = mobility = None
    if correction_layers is not None:
        key_energy, key_mobility = jax.random.split(key)
        energy = scale_last_layer(MLP((NUM_JOINT, *correction_layers, 1), "tanh", key=key_energy), 0.0)
        mobility = MLP((NUM_JOINT, *correction_layers, num_branches), "tanh", key=key_mobility)
        mobility = scale_last_layer(mobility, 0.0)
    times = jnp.linspace(jnp.log(shortest), jnp.log(longest), num_branches)
    modulus = jnp.log(0.5 / (num_branches + 1))
    return TensorLaw(
        log_moduli=jnp.full(num_branches + 1, modulus),
        log_times=times,
        log_bulk=jnp.log(jnp.asarray(bulk_ratio)),
        structure=jnp.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]),
        energy_correction=energy,
        mobility=mobility,
        strain_scale=strain_scale,
    )
