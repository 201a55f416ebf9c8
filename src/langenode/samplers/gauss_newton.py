"""Where a path should end: the Gauss-Newton law of the end point given the state, and its algebra.

In whitened coordinates the end point of an OU path has the law `N(rho w, v I)` given its state w. With residuals r and
the Jacobian J of the predictions, both divided by sigma, the data turn it into about `N(x, C)`:

    C = (I/v + t J'J)^-1,    x <- x + c C [t J'r - (x - rho w)/v]    (c = 1, else 0.3, else 0 if the density falls)

All that is needed of C is a Cholesky factor of `I + k J'J` (weights) or of `I + k J J'` (data), whichever is smaller.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from langenode._types import Array, Float

Residual = Callable[[Array], Array]
Form = Literal["weights", "data"]

STEP_LENGTHS = (1.0, 0.3)  # and zero
ROUNDING = 1e-3  # of an objective in 32 bits: a step that lowers it by less is as good as none


class Curvature(NamedTuple):
    """`J'J` (weights' form), or `J J'` with J itself (data's form)."""

    gram: Float[Array, "*path rank rank"]
    jacobian: Float[Array, "*path cells dim"] | None


class Linearised(NamedTuple):
    """The sum of squares about a point: its curvature, the pull `J'r` of the data, and the residuals r."""

    curvature: Curvature
    pull: Float[Array, "*path dim"]
    residuals: Float[Array, "*path cells"]


class Factor(NamedTuple):
    """The Cholesky factor L of `I + k J'J`, or of `I + k J J'` in the data's form."""

    root: Float[Array, "*path rank rank"]
    strength: Float[Array, "*path"]
    curvature: Curvature

    @property
    def half_log_det(self) -> Float[Array, ""]:
        """`log det(I + k J'J) / 2`, the same in both forms."""
        return _log_diagonal(self.root)

    def solve(self, vector: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """`(I + k J'J)^-1 vector`, in the data's form by Woodbury: `vector - k J' (I + k J J')^-1 J vector`."""
        jacobian = self.curvature.jacobian
        if jacobian is None:
            return jax.scipy.linalg.cho_solve((self.root, True), vector)
        inside = jax.scipy.linalg.cho_solve((self.root, True), jacobian @ vector)
        return vector - self.strength * (inside @ jacobian)

    def colour(self, white: Float[Array, " dim"], kept: Float[Array, ""]) -> tuple[Float[Array, " dim"], Array]:
        """Noise `A white` and `log det A`, with `A A' = kept I + (1 - kept) (I + k J'J)^-1`.

        Weights' form: `A = L'^-1 M`, where `M M' = kept L'L + (1 - kept) I`. Data's form: `A = I - (1 - kept) k J'
        L'^-1 (L + M)^-1 J`, where `M M' = I + kept k J J'` (Andrews' root of a Kalman update whose noise has root M).
        """
        rest, jacobian = self._rest(kept), self.curvature.jacobian
        if jacobian is None:
            noise = _solve_transposed(self.root, rest @ white)
        else:
            inside = jax.scipy.linalg.solve_triangular(self.root + rest, jacobian @ white, lower=True)
            noise = white - (1.0 - kept) * self.strength * (_solve_transposed(self.root, inside) @ jacobian)
        return noise, _log_diagonal(rest) - self.half_log_det

    def log_density(self, vectors: Float[Array, "other dim"], kept: Float[Array, ""]) -> Float[Array, " other"]:
        """Log density of the law of `A white` at some vectors, but for `-(dim/2) log 2 pi`."""
        rest, jacobian = self._rest(kept), self.curvature.jacobian
        seen = self.root.T if jacobian is None else jacobian
        white = jax.scipy.linalg.solve_triangular(rest, seen @ vectors.T, lower=True)
        squares = jnp.sum(white**2, axis=0)
        if jacobian is not None:
            squares = jnp.sum(vectors**2, axis=1) + (1.0 - kept) * self.strength * squares
        return self.half_log_det - _log_diagonal(rest) - 0.5 * squares

    def _rest(self, kept: Float[Array, ""]) -> Float[Array, "rank rank"]:
        """M of `colour`."""
        gram = self.curvature.gram
        eye = jnp.eye(gram.shape[0], dtype=gram.dtype)
        if self.curvature.jacobian is None:
            return jnp.linalg.cholesky(kept * (self.root.T @ self.root) + (1.0 - kept) * eye)
        return jnp.linalg.cholesky(eye + kept * self.strength * gram)


def _log_diagonal(root: Array) -> Array:
    return jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)


def _solve_transposed(root: Array, vector: Array) -> Array:
    return jax.scipy.linalg.solve_triangular(root, vector, lower=True, trans=1)


def smaller_form(num_cells: int, dim: int) -> Form:
    """The form with the smaller matrices."""
    return "weights" if dim <= num_cells else "data"


def has_forward_mode(function: Callable, *arguments: Any) -> bool:
    """Whether a function can be differentiated forwards: an adaptive solver's checkpoints go backwards only."""
    try:
        jax.eval_shape(jax.jacfwd(function), *arguments)
    except TypeError:
        return False
    return True


def jacobian_at(
    residual: Residual, x: Float[Array, " dim"], form: Form
) -> tuple[Float[Array, "cells dim"], Float[Array, " cells"]]:
    """The predictions' derivatives, by weight in the weights' form (where a model can), else by cell; and residuals.

    A Jacobian that is not finite (a solution that blew up) counts as 0.
    """
    is_forward = form == "weights" and has_forward_mode(residual, x)
    derivative = jax.jacfwd if is_forward else jax.jacrev
    jacobian, residuals = derivative(lambda z: (residual(z),) * 2, has_aux=True)(x)
    return -jnp.where(jnp.all(jnp.isfinite(jacobian)), jacobian, 0.0), residuals


def linearise(residual: Residual, x: Float[Array, " dim"], form: Form) -> Linearised:
    """The sum of squares about x."""
    jacobian, residuals = jacobian_at(residual, x, form)
    pull = jnp.sum(residuals[:, None] * jacobian, axis=0)  # no product of matrices: its rounding depends on chunks
    pull = jnp.where(jnp.all(jnp.isfinite(pull)), pull, 0.0)
    if form == "weights":
        return Linearised(Curvature(jacobian.T @ jacobian, None), pull, residuals)
    return Linearised(Curvature(jacobian @ jacobian.T, jacobian), pull, residuals)


def factorise(curvature: Curvature, strength: Float[Array, ""]) -> Factor:
    """The factor at strength k."""
    eye = jnp.eye(curvature.gram.shape[0], dtype=curvature.gram.dtype)
    return Factor(jnp.linalg.cholesky(eye + strength * curvature.gram), strength, curvature)


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


def improve(
    objective: Objective,
    old: Found,
    form: Form,
    damping: Float[Array, ""] | float = 0.0,
    reach: Float[Array, ""] | float = 1.0,
) -> tuple[Found, Float[Array, ""]]:
    """The longest step `c ((1 + m) I + k J'J)^-1 [k J'r - (x - centre)]` that does not lower the objective; and its c.

    Zero is a length, too. With `reach = 0` the point stays, and is looked at.
    """
    factor = factorise(old.here.curvature, objective.strength / (1.0 + damping))
    step = factor.solve(objective.scaled_gradient(old.x, old.here.pull)) / (1.0 + damping)
    lengths = jnp.asarray((*STEP_LENGTHS, 0.0), step.dtype)
    candidates = old.x + reach * lengths[:, None] * step
    is_allowed = jnp.append(jax.vmap(objective)(candidates[:-1]) >= old.value - ROUNDING, True)
    chosen = jnp.argmax(is_allowed)
    x = candidates[chosen]
    here = linearise(objective.residual, x, form)
    return Found(x, objective.value(x, here.residuals), here), lengths[chosen]


def search(objective: Objective, x: Float[Array, " dim"], form: Form, num_iterations: int) -> Found:
    """Damped Gauss-Newton from x, the damping m tenfold after a failure."""

    def iterate(carry, reach):
        found, damping = carry
        found, length = improve(objective, found, form, damping, reach)
        change = jnp.where(length == 0.0, 10.0, jnp.where(length == STEP_LENGTHS[0], 0.1, 1.0))
        return (found, jnp.clip(damping * change, 1e-3, 1e8).astype(x.dtype)), None

    # The first iteration only looks, so that the model is differentiated, and compiled, in one place.
    shapes = jax.eval_shape(lambda x: linearise(objective.residual, x, form), x)
    unseen = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    start = Found(x, jnp.asarray(-jnp.inf, x.dtype), unseen)
    reaches = jnp.minimum(jnp.arange(num_iterations + 1), 1).astype(x.dtype)
    return jax.lax.scan(iterate, (start, jnp.asarray(10.0, x.dtype)), reaches)[0][0]
