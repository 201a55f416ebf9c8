"""The learned drift beside the exact score of the two weights (paper, appendix C).

A Langevin SDE whose drift is the score of a density, `dw = score dtau + sqrt(2) dB`, has that density in the long run;
the paper calls its learned drift a score for this reason. A chain of few steps whose drift also depends on the
pseudo-time reaches its distribution without such a drift; there the score of that distribution itself is compared.
"""

from typing import Any

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
    return jax.lax.map(jax.grad(lambda w: sampler.log_end_density(w, before)), points, batch_size=16)


def score_metrics(results: Results, parameters: ou.OUParameters, drawn: np.ndarray) -> dict[str, Any]:
    """Return how far the learned score is from the exact one, over weights that the generator drew."""
    sampler = results.problem.posterior
    assert isinstance(sampler, Langevin)
    exact, learned = _both(results, parameters, drawn[:NUM_POINTS])
    lengths = np.linalg.norm(exact, axis=1) * np.linalg.norm(learned, axis=1)
    error = np.sum((learned - exact) ** 2) / np.sum(exact**2)
    return {
        "of": "drift" if isinstance(sampler.control, AutonomousDrift) else "end of the chain",
        "relative_error": float(np.sqrt(error)),
        "cosine": float(np.mean(np.sum(exact * learned, axis=1) / np.maximum(lengths, 1e-300))),
    }


def _both(results: Results, parameters: ou.OUParameters, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sampler = results.problem.posterior
    assert isinstance(sampler, Langevin)
    at = jnp.asarray(points, sampler.reference.mean.dtype)
    exact = jax.jit(jax.vmap(lambda w: ou.score(w, parameters)))(jnp.asarray(points))
    learned = jax.jit(lambda w: learned_score(sampler, w, key=results.key))(at)
    return np.asarray(exact, float), np.asarray(learned, float)


def score_figure(results: Results, parameters: ou.OUParameters, drawn: np.ndarray) -> Drawing:
    """Draw the two fields as arrows, and their components against each other at weights of the generator."""
    from langenode import plots

    moments = ou.exact_moments(parameters)
    sides = [np.linspace(m - 2.2 * s, m + 2.2 * s, NUM_ARROWS) for m, s in zip(moments.mean, moments.std, strict=True)]
    mesh = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    likely = np.asarray(jax.vmap(lambda w: ou.log_density(w, parameters))(jnp.asarray(mesh)))
    mesh = mesh[likely > likely.max() - 3.5]
    found = results.metrics["score"]
    is_drift = found["of"] == "drift"
    name = "learned drift" if is_drift else "score of the learned distribution"
    field = plots.ScoreField(mesh, *_both(results, parameters, mesh))
    points = drawn[:NUM_POINTS]
    figure = plots.score_fields(field, plots.ScoreField(points, *_both(results, parameters, points)), name)
    caption = (
        "The exact score of the two weights (appendix C of the paper), the drift of a Langevin equation that samples "
        f"them, beside the {name}. Left: as arrows to one scale, where weights are likely. Right: components at "
        "weights that the generator drew; points beyond the frame are not shown."
    )
    if not is_drift:
        caption += (
            " The drift of this chain depends on its pseudo-time and is no score; the density of its end has one."
        )
    numbers = [
        ("error relative to the exact score", f"{found['relative_error']:.3f}"),
        ("mean cosine of the angle between them", f"{found['cosine']:.3f}"),
    ]
    return Drawing(figure, "Score", caption, "Arrows of two vector fields, and scatter of their components.", numbers)
