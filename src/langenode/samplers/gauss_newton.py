"""Where a path should end: the Gauss-Newton distribution of the end point given the state, and its algebra.

In whitened coordinates the end point of an OU path is distributed as `N(rho w, v I)` given its state w. With residuals
r and the Jacobian J of the predictions, both divided by sigma, the data turn this into about `N(x, C)`:

    C = (I/v + t J'J)^-1,    x <- x + c C [t J'r - (x - rho w)/v]    (c = 1, else 0.3, else 0 if the density falls)

All that is needed of C is a Cholesky factor of `I + k J'J` (the weights' form) or of `I + k J J'` (the data's form),
whichever is smaller.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from langenode._types import Array, Float, Int

Residual = Callable[[Array], Array]
Form = Literal["weights", "data"]

STEP_LENGTHS = (1.0, 0.3)  # and zero
ROUNDING = 1e-3  # rounding error of an objective in 32 bits: a step may lower it by as much


class WeightsFactor(NamedTuple):
    """The Cholesky factor L of `I + k J'J`: smaller than `DataFactor` where there are fewer weights than cells."""

    root: Float[Array, "*path dim dim"]

    @property
    def half_log_det(self) -> Float[Array, ""]:
        """`log det(I + k J'J) / 2`."""
        return _log_diagonal(self.root)

    def solve(self, vector: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """`(I + k J'J)^-1 vector`."""
        return jax.scipy.linalg.cho_solve((self.root, True), vector)

    def colour(self, white: Float[Array, " dim"], kept: Float[Array, ""]) -> tuple[Float[Array, " dim"], Array]:
        """Noise `A white` and `log det A`, with `A A' = kept I + (1 - kept) (I + k J'J)^-1`.

        `A = L'^-1 M`, where `M M' = kept L'L + (1 - kept) I`.
        """
        rest = self._rest(kept)
        return _solve_transposed(self.root, rest @ white), _log_diagonal(rest) - self.half_log_det

    def log_density(self, vectors: Float[Array, "other dim"], kept: Float[Array, ""]) -> Float[Array, " other"]:
        """Log density of `A white` at some vectors, without its constant `-(dim/2) log 2 pi`."""
        rest = self._rest(kept)
        white = jax.scipy.linalg.solve_triangular(rest, self.root.T @ vectors.T, lower=True)
        return self.half_log_det - _log_diagonal(rest) - 0.5 * jnp.sum(white**2, axis=0)

    def _rest(self, kept: Float[Array, ""]) -> Float[Array, "dim dim"]:
        """M of `colour`."""
        eye = jnp.eye(self.root.shape[0], dtype=self.root.dtype)
        return jnp.linalg.cholesky(kept * (self.root.T @ self.root) + (1.0 - kept) * eye)


class DataFactor(NamedTuple):
    """The Cholesky factor L of `I + k J J'`, with k, `J J'` and J: smaller where there are fewer cells than weights."""

    root: Float[Array, "*path cells cells"]
    strength: Float[Array, "*path"]
    gram: Float[Array, "*path cells cells"]
    jacobian: Float[Array, "*path cells dim"]

    @property
    def half_log_det(self) -> Float[Array, ""]:
        """`log det(I + k J'J) / 2`, which is that of `I + k J J'`."""
        return _log_diagonal(self.root)

    def solve(self, vector: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """`(I + k J'J)^-1 vector` by Woodbury: `vector - k J' (I + k J J')^-1 J vector`."""
        inside = jax.scipy.linalg.cho_solve((self.root, True), self.jacobian @ vector)
        return vector - self.strength * (inside @ self.jacobian)

    def colour(self, white: Float[Array, " dim"], kept: Float[Array, ""]) -> tuple[Float[Array, " dim"], Array]:
        """Noise `A white` and `log det A`, with `A A' = kept I + (1 - kept) (I + k J'J)^-1`.

        `A = I - (1 - kept) k J' L'^-1 (L + M)^-1 J`, where `M M' = I + kept k J J'` (Andrews' root of a Kalman update
        whose noise has root M).
        """
        rest = self._rest(kept)
        inside = jax.scipy.linalg.solve_triangular(self.root + rest, self.jacobian @ white, lower=True)
        noise = white - (1.0 - kept) * self.strength * (_solve_transposed(self.root, inside) @ self.jacobian)
        return noise, _log_diagonal(rest) - self.half_log_det

    def log_density(self, vectors: Float[Array, "other dim"], kept: Float[Array, ""]) -> Float[Array, " other"]:
        """Log density of `A white` at some vectors, without its constant `-(dim/2) log 2 pi`."""
        rest = self._rest(kept)
        seen = jax.scipy.linalg.solve_triangular(rest, self.jacobian @ vectors.T, lower=True)
        squares = jnp.sum(vectors**2, axis=1) + (1.0 - kept) * self.strength * jnp.sum(seen**2, axis=0)
        return self.half_log_det - _log_diagonal(rest) - 0.5 * squares

    def _rest(self, kept: Float[Array, ""]) -> Float[Array, "cells cells"]:
        """M of `colour`."""
        eye = jnp.eye(self.gram.shape[0], dtype=self.gram.dtype)
        return jnp.linalg.cholesky(eye + kept * self.strength * self.gram)


Factor = WeightsFactor | DataFactor


class WeightsCurvature(NamedTuple):
    """`J'J`."""

    gram: Float[Array, "*path dim dim"]

    def factorise(self, strength: Float[Array, ""]) -> WeightsFactor:
        """The factor at strength k."""
        return WeightsFactor(_root(self.gram, strength))


class DataCurvature(NamedTuple):
    """`J J'` and J."""

    gram: Float[Array, "*path cells cells"]
    jacobian: Float[Array, "*path cells dim"]

    def factorise(self, strength: Float[Array, ""]) -> DataFactor:
        """The factor at strength k."""
        return DataFactor(_root(self.gram, strength), strength, self.gram, self.jacobian)


class Linearised(NamedTuple):
    """The sum of squares about a point: its curvature, the pull `J'r` of the data, and the residuals r."""

    curvature: WeightsCurvature | DataCurvature
    pull: Float[Array, "*path dim"]
    residuals: Float[Array, "*path cells"]


def _root(gram: Array, strength: Array) -> Array:
    return jnp.linalg.cholesky(jnp.eye(gram.shape[0], dtype=gram.dtype) + strength * gram)


def _log_diagonal(root: Array) -> Array:
    return jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)


def _solve_transposed(root: Array, vector: Array) -> Array:
    return jax.scipy.linalg.solve_triangular(root, vector, lower=True, trans=1)


def smaller_form(num_cells: int, dim: int) -> Form:
    """The form with the smaller matrices."""
    return "weights" if dim <= num_cells else "data"


def has_forward_mode(function: Callable, *arguments: Any) -> bool:
    """Whether a function can be differentiated in forward mode: an adaptive solver's checkpoints allow reverse only."""
    try:
        jax.eval_shape(jax.jacfwd(function), *arguments)
    except TypeError:
        return False
    return True


def num_passes(residual: Residual, x: jax.ShapeDtypeStruct, form: Form) -> int:
    """How often `jacobian_at` runs the model: once per weight forwards, once per cell backwards."""
    if form == "weights" and has_forward_mode(residual, x):
        return x.shape[0]
    return jax.eval_shape(residual, x).shape[0]


def jacobian_at(
    residual: Residual, x: Float[Array, " dim"], form: Form
) -> tuple[Float[Array, "cells dim"], Float[Array, " cells"]]:
    """The predictions' derivatives, weight by weight in the weights' form (if the model can), else cell by cell.

    The residuals come with them. A Jacobian that is not finite (a solution that blew up) counts as 0.
    """
    is_forward = form == "weights" and has_forward_mode(residual, x)
    derivative = jax.jacfwd if is_forward else jax.jacrev
    jacobian: Array
    jacobian, residuals = derivative(lambda z: (residual(z),) * 2, has_aux=True)(x)
    return -jnp.where(jnp.all(jnp.isfinite(jacobian)), jacobian, 0.0), residuals


def linearise(residual: Residual, x: Float[Array, " dim"], form: Form) -> Linearised:
    """The sum of squares about x."""
    jacobian, residuals = jacobian_at(residual, x, form)
    pull = jnp.sum(residuals[:, None] * jacobian, axis=0)  # no product of matrices: its rounding depends on chunks
    pull = jnp.where(jnp.all(jnp.isfinite(pull)), pull, 0.0)
    if form == "weights":
        return Linearised(WeightsCurvature(jacobian.T @ jacobian), pull, residuals)
    return Linearised(DataCurvature(jacobian @ jacobian.T, jacobian), pull, residuals)


class Objective(NamedTuple):
    """`-t |r(x)|^2 / 2 - |x - centre|^2 / (2 v)`: the log density of the end point, softened by t."""

    residual: Residual
    centre: Float[Array, " dim"]
    variance: Float[Array, ""]
    softening: Float[Array, ""]

    @property
    def strength(self) -> Float[Array, ""]:
        """k = t v: the data's weight in units of the path's own freedom."""
        return self.softening * self.variance

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """The value; minus infinity where the model gives no number."""
        return self.value(x, self.residual(x))

    def value(self, x: Float[Array, " dim"], residuals: Float[Array, " cells"]) -> Float[Array, ""]:
        """The value where the residuals are known."""
        squares = self.strength * jnp.sum(residuals**2) + jnp.sum((x - self.centre) ** 2)
        value = -0.5 * squares / self.variance
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    def scaled_gradient(self, x: Float[Array, " dim"], pull: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """v times the gradient: `k J'r - (x - centre)`."""
        return self.strength * pull - (x - self.centre)


class Found(NamedTuple):
    """A point, its objective, and the sum of squares about it."""

    x: Float[Array, "*path dim"]
    value: Float[Array, "*path"]
    here: Linearised


class Step(NamedTuple):
    """Where a step led, its length, and the number of steps for a sum over all: one."""

    found: Found
    length: Float[Array, ""]
    num_steps: Int[Array, ""]


class Search(NamedTuple):
    """Where a search ended, and how many steps it took."""

    found: Found
    num_steps: Int[Array, "*path"]


def step_cost(num_passes: int) -> int:
    """Runs of the model in one step: the passes of its Jacobian, and one for each length that is tried."""
    return num_passes + len(STEP_LENGTHS)


def improve(
    objective: Objective,
    old: Found,
    form: Form,
    damping: Float[Array, ""] | float = 0.0,
    reach: Float[Array, ""] | float = 1.0,
) -> Step:
    """The longest step `c ((1 + m) I + k J'J)^-1 [k J'r - (x - centre)]` that does not lower the objective.

    A zero step is always accepted. With `reach=0` the point is only linearised.
    """
    factor = old.here.curvature.factorise(objective.strength / (1.0 + damping))
    step = factor.solve(objective.scaled_gradient(old.x, old.here.pull)) / (1.0 + damping)
    lengths = jnp.asarray((*STEP_LENGTHS, 0.0), step.dtype)
    candidates = old.x + reach * lengths[:, None] * step
    is_allowed = jnp.append(jax.vmap(objective)(candidates[:-1]) >= old.value - ROUNDING, True)
    chosen = jnp.argmax(is_allowed)
    x = candidates[chosen]
    here = linearise(objective.residual, x, form)
    return Step(Found(x, objective.value(x, here.residuals), here), lengths[chosen], jnp.ones((), int))


def search(objective: Objective, x: Float[Array, " dim"], form: Form, num_iterations: int) -> Search:
    """Damped Gauss-Newton from x, the damping m tenfold after a failure."""

    def iterate(carry, reach):
        found, damping, num_steps = carry
        step = improve(objective, found, form, damping, reach)
        change = jnp.where(step.length == 0.0, 10.0, jnp.where(step.length == STEP_LENGTHS[0], 0.1, 1.0))
        damping = jnp.clip(damping * change, 1e-3, 1e8).astype(x.dtype)
        return (step.found, damping, num_steps + step.num_steps), None

    # The first iteration only linearises, so that the model is differentiated, and compiled, in one place.
    shapes = jax.eval_shape(lambda x: linearise(objective.residual, x, form), x)
    unseen = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    start = Found(x, jnp.asarray(-jnp.inf, x.dtype), unseen)
    reaches = jnp.minimum(jnp.arange(num_iterations + 1), 1).astype(x.dtype)
    carry = (start, jnp.asarray(10.0, x.dtype), jnp.zeros((), int))
    found, _, num_steps = jax.lax.scan(iterate, carry, reaches)[0]
    return Search(found, num_steps)
