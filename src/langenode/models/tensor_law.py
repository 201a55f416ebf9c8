"""A material law with tensor internal variables, which can carry deviatoric stress at zero strain."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, PRNGKeyArray
from langenode.models.material import NUM_JOINT
from langenode.models.mechanics import (
    MANDEL,
    NUM_SYMMETRIC,
    Tensor,
    components,
    joint_invariants,
    log_strain,
    positive_factor,
    tensor,
)
from langenode.models.networks import MLP, ConvexMLP, scale_last_layer, shrink_convex
from langenode.models.sensitivities import at_every_time, evolve

_TRACES = np.array([0, 3])  # positions among the joint invariants of the traces of both tensors


class TensorLaw(eqx.Module):
    """A generalised Maxwell solid in logarithmic strain e, with a structural factor and neural corrections.

        W = G_0 |P e|^2 + sum_b G_b |P (e - a_b)|^2 + K/2 tr(e)^2 + N(joint invariants of e and s)
        da_b/dt = m_b / (2 G_b tau_b) A^-1 (-dW/da_b),    A = P'P,    s = sum_b G_b (e - a_b) / sum_b G_b

    P is a symmetric factor that describes how one microstructure is stiffer in some directions than another. With 6
    weights it is 3 x 3, of the three normal components; shear components, which loadings normal to the faces do not
    test, get its isotropic part. With 21 weights it is a full positive 6 x 6 factor, for data with shear (`mechanics.
    positive_factor`; components times `MANDEL`).
    The mobilities `m_b = exp(NN(joint invariants))` are positive and A^-1 is positive definite, so the dissipation rate
    `sum_b (-dW/da_b) . da_b/dt` cannot be negative, whatever the networks' weights. N has zero slope in the unstrained
    state.

    Without networks a step is exact for a strain that is linear in time; with them it is of second order.
    """

    log_moduli: Float[Array, " branch_and_one"]
    log_times: Float[Array, " branch"]
    log_bulk: Float[Array, ""]
    structure: Float[Array, "6"] | Float[Array, "21"]
    energy_correction: MLP | ConvexMLP | None
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
        if self.structure.shape[0] == NUM_SYMMETRIC:
            num = vectors.shape[-1]
            return vectors @ positive_factor(self.structure)[:num]
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
        return jnp.linalg.solve(matrix @ matrix.T, vector)

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


def tensor_law(
    *,
    num_branches: int,
    correction_layers: tuple[int, ...] | None,
    strain_scale: float,
    shortest: float,
    longest: float,
    bulk_ratio: float,
    convex: bool = False,
    shear: bool = False,
    key: PRNGKeyArray,
) -> TensorLaw:
    """Build our law before training: equal moduli, log-spaced times, no anisotropy, networks with zero output.

    `bulk_ratio` is the bulk modulus over the shear modulus: isochoric loadings carry no information about it. With
    `convex` the correction of the energy is convex in the joint invariants, and starts small instead of zero. With
    `shear` the structural factor is the full one of 21 weights.
    """
    energy = mobility = None
    if correction_layers is not None:
        key_energy, key_mobility = jax.random.split(key)
        sizes = (NUM_JOINT, *correction_layers, 1)
        if convex:
            energy = shrink_convex(ConvexMLP(sizes, key=key_energy))
        else:
            energy = scale_last_layer(MLP(sizes, "tanh", key=key_energy), 0.0)
        mobility = MLP((NUM_JOINT, *correction_layers, num_branches), "tanh", key=key_mobility)
        mobility = scale_last_layer(mobility, 0.0)
    times = jnp.linspace(jnp.log(shortest), jnp.log(longest), num_branches)
    modulus = jnp.log(0.5 / (num_branches + 1))
    return TensorLaw(
        log_moduli=jnp.full(num_branches + 1, modulus),
        log_times=times,
        log_bulk=jnp.log(jnp.asarray(bulk_ratio)),
        structure=jnp.zeros(NUM_SYMMETRIC) if shear else jnp.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]),
        energy_correction=energy,
        mobility=mobility,
        strain_scale=strain_scale,
    )
