"""The learned drift beside the exact score of the two weights (paper, appendix C).

A Langevin SDE whose drift is the score of a density, `dw = score dtau + sqrt(2) dB`, has that density in the long run;
the paper calls its learned drift a score for this reason. A chain of few steps whose drift also depends on the
pseudo-time reaches its distribution without such a drift; there the score of that distribution itself is compared.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, PRNGKeyArray
from langenode.experiments.base import Drawing, Results
from langenode.posteriors import Langevin
from langenode.posteriors.controls import AutonomousDrift
from langenode.simulators import ou

# Runs of the chain behind the density of its end, points of the exact distribution, and arrows along each axis.
NUM_RUNS, NUM_POINTS, NUM_ARROWS = 16384, 256, 11


def has_score(results: Results) -> bool:
    """Whether the sampler is a chain over the two weights."""
    return isinstance(results.problem.posterior, Langevin) and results.problem.posterior.dim == 2


def learned_score(sampler: Langevin, points: Float[Array, "point 2"], *, key: PRNGKeyArray) -> Float[Array, "point 2"]:
    """Return the drift of an autonomous chain in units of a score, or else the score of the chain's end."""
    if isinstance(sampler.control, AutonomousDrift):
        scale, control = sampler.reference.scale, sampler.control
        standard = jax.vmap(sampler.reference.to_standard)(points)
        drift = jax.vmap(lambda z: control(z, jnp.asarray(0)) - z)(standard)
        return drift / (scale * sampler.diffusion**2)
    before = jax.vmap(lambda k: sampler.path(key=k)[-2])(jax.random.split(key, NUM_RUNS))
    return jax.grad(lambda w: jnp.sum(sampler.log_end_density(w, before)))(points)


class Fields(NamedTuple):
    """Points (point, 2), and the exact and the learned score there."""

    points: np.ndarray
    exact: np.ndarray
    learned: np.ndarray

    def at(self, keep: slice) -> "Fields":
        """Return some of the points."""
        return Fields(*(part[keep] for part in self))


def _fields(results: Results, parameters: ou.OUParameters, drawn: np.ndarray) -> tuple[Fields, Fields]:
    """Return both scores on a mesh and at weights of the generator, by one program."""
    sampler = results.problem.posterior
    assert isinstance(sampler, Langevin)
    moments = ou.exact_moments(parameters)
    sides = [np.linspace(m - 2.2 * s, m + 2.2 * s, NUM_ARROWS) for m, s in zip(moments.mean, moments.std, strict=True)]
    mesh = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    points = jnp.asarray(np.concatenate([mesh, drawn[:NUM_POINTS]]), sampler.reference.mean.dtype)
    exact, learned = _evaluate(sampler, points, parameters, results.key)
    found = Fields(*(np.asarray(part, float) for part in (points, exact, learned)))
    return found.at(slice(len(mesh))), found.at(slice(len(mesh), None))


@eqx.filter_jit
def _evaluate(sampler: Langevin, points: Array, parameters: ou.OUParameters, key: PRNGKeyArray) -> tuple[Array, Array]:
    return jax.vmap(lambda w: ou.score(w, parameters))(points), learned_score(sampler, points, key=key)


def score_metrics(results: Results, parameters: ou.OUParameters, drawn: np.ndarray) -> dict[str, Any]:
    """Return how far the learned score is from the exact one, over weights that the generator drew.

    Medians, since where the chain seldom ends the score of its end is that of single runs.
    """
    sampler = results.problem.posterior
    assert isinstance(sampler, Langevin)
    _, found = _fields(results, parameters, drawn)
    lengths = [np.linalg.norm(part, axis=1) for part in (found.exact, found.learned, found.learned - found.exact)]
    cosines = np.sum(found.exact * found.learned, axis=1) / np.maximum(lengths[0] * lengths[1], 1e-300)
    return {
        "of": "drift" if isinstance(sampler.control, AutonomousDrift) else "end of the chain",
        "relative_error": float(np.median(lengths[2]) / np.median(lengths[0])),
        "cosine": float(np.median(cosines)),
    }


def score_figure(results: Results, parameters: ou.OUParameters, drawn: np.ndarray) -> Drawing:
    """Draw the two fields as arrows, and their components against each other at weights of the generator."""
    from langenode import plots

    field, sample = _fields(results, parameters, drawn)
    likely = np.asarray(jax.vmap(lambda w: ou.log_density(w, parameters))(jnp.asarray(field.points)))
    found = results.metrics["score"]
    is_drift = found["of"] == "drift"
    name = "learned drift" if is_drift else "score of the learned distribution"
    shown = Fields(*(part[likely > likely.max() - 3.5] for part in field))
    figure = plots.score_fields(plots.ScoreField(*shown), plots.ScoreField(*sample), name)
    caption = (
        "The exact score of the two weights (appendix C of the paper), the drift of a Langevin equation that samples "
        f"them, beside the {name}. Left: as arrows to one scale, where weights are likely. Right: components at "
        "weights that the generator drew; points beyond the frame are not shown."
    )
    if not is_drift:
        caption += " The drift of this chain depends on its pseudo-time and is no score, but its end has one."
    numbers = [
        ("median error over the median exact score", f"{found['relative_error']:.3f}"),
        ("median cosine of the angle between them", f"{found['cosine']:.3f}"),
    ]
    return Drawing(figure, "Score", caption, "Arrows of two vector fields, and scatter of their components.", numbers)
