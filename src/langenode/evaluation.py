"""The numbers of metrics.json that every experiment has: distances, scores, bands and importance diagnostics."""

from typing import Any

import jax
import numpy as np

from langenode import metrics
from langenode._types import PRNGKeyArray
from langenode.assembly import Streams
from langenode.data import Dataset
from langenode.experiments import Results
from langenode.inference import log_weights
from langenode.likelihood import Likelihood
from langenode.problem import Problem, TrajectoryView, predict, sample_weights, view


def common_metrics(results: Results, noise_sigma: list[float] | None, keys: Streams) -> dict[str, Any]:
    """What was asked, and W1, scores, coverage and moments of the weights."""
    config, splits = results.config, results.splits
    noise = _Noise(results, noise_sigma, keys)
    found: dict[str, Any] = {
        name: getattr(config, name) for name in ("experiment", "method", "target", "stochastic", "rest", "seed")
    }
    found["w1"] = _w1(results, splits.train, noise, keys)
    # Two samplings lie between the fit and held-out data; the training data's own distance says how much that is.
    held_out, train = splits.test.replicates(), splits.train.replicates()
    own = metrics.w1(train.outputs, held_out.outputs, mask_b=held_out.mask) if splits.train.is_complete else np.nan
    found["w1_held_out"] = _w1(results, splits.test, noise, keys) | {"data": float(np.nanmean(own))}
    found |= _held_out_scores(results, noise)
    found["weights"] = metrics.weight_moments(results.weights)
    return found


class _Noise:
    """The observation noise in the data's own units, and the law that new data are compared with."""

    def __init__(self, results: Results, sigma: list[float] | None, keys: Streams):
        self.results, self.sigma, self.keys = results, sigma, keys
        self.rng = np.random.default_rng(results.config.seed)

    def add(self, samples: np.ndarray) -> np.ndarray:
        """Samples with noise."""
        return samples + self._scale(len(samples)) * self.rng.standard_normal(samples.shape)

    def predictive(self, samples: np.ndarray) -> np.ndarray:
        """For a posterior the model plus observation noise, else the push-forward.

        (A tempered fit's sigma is the spread between trajectories, which its push-forward is meant to have already.)
        """
        return self.add(samples) if self.results.config.target == "posterior" else samples

    def _scale(self, num_samples: int) -> np.ndarray:
        problem, scaling = self.results.problem, self.results.scaling
        if self.sigma is not None:
            return scaling.unscale_spread(np.asarray(self.sigma))
        key_weights = jax.random.split(self.keys.prediction)[0]  # the weights behind the stored predictions
        weights = sample_weights(problem.posterior, num_samples, key=key_weights)
        log_noise = jax.vmap(lambda w: problem.partition.combine(problem.model, w).log_noise)(weights)
        return scaling.unscale_spread(np.exp(np.asarray(log_noise)))[:, None, None, :]


def _w1(results: Results, data: Dataset, noise: _Noise, keys: Streams) -> dict[str, Any]:
    """W1 of the marginals to a data set: the median of several draws, and the floor of two such samples."""
    replicates = data.replicates()
    size, num_draws = len(replicates.outputs), results.config.predict.num_w1_draws
    distances = []
    for key in jax.random.split(jax.random.fold_in(keys.evaluation, 1), num_draws):
        outputs, _ = predict(results.problem, data, size, key=key, scaling=results.scaling)
        samples = noise.predictive(outputs.astype(float))
        distances.append(metrics.w1(samples, replicates.outputs, mask_b=replicates.mask))
    means = [float(np.nanmean(d)) for d in distances]
    rng = np.random.default_rng(results.config.seed)
    floor = metrics.w1_floor_from_data(replicates.outputs, size, mask=replicates.mask, rng=rng)
    return {
        "mean": float(np.median(means)),
        "floor": floor.median,
        "ratio": float(np.median(means)) / floor.median,
        "low": float(np.quantile(means, 0.1)),
        "high": float(np.quantile(means, 0.9)),
        "num_draws": num_draws,
        "num_samples": size,
        "per_time": np.nanmedian(np.nanmean(np.stack(distances), axis=(1, 3)), axis=0),
    }


def _held_out_scores(results: Results, noise: _Noise) -> dict[str, Any]:
    """Scores of the predictive law on test trajectories; both bands where there is a likelihood."""
    replicates = results.splits.test.replicates()
    outputs, mask = replicates.outputs, replicates.mask
    samples = noise.predictive(results.predictions)
    found: dict[str, Any] = {
        "energy_score": metrics.energy_score(samples, outputs, mask=mask),
        "crps": metrics.crps(samples, outputs, mask=mask),
        "coverage": metrics.coverage(samples, outputs, mask=mask),
    }
    if results.config.target != "population":
        found["coverage_model"] = metrics.coverage(results.predictions, outputs, mask=mask)
        found["coverage_noise"] = metrics.coverage(noise.add(results.predictions), outputs, mask=mask)
    return found


def posterior_diagnostics(
    problem: Problem, noise: Likelihood, train: Dataset, num_samples: int, *, key: PRNGKeyArray
) -> dict[str, Any]:
    """How wrong the sampler says it is: ELBO, log-evidence, relative ESS, k-hat. `train` is scaled."""
    full = Problem(problem.model, problem.partition, problem.prior, noise, problem.target, problem.posterior)
    data = view(full, train, problem.prior.mean.dtype)
    assert isinstance(data, TrajectoryView)
    logs = np.asarray(log_weights(full, data, num_samples, key=key)[1], float)
    evidence = metrics.log_evidence(logs)
    return {
        "elbo": float(logs.mean()),
        "elbo_se": float(logs.std() / np.sqrt(len(logs))),
        "log_evidence": evidence.value,
        "log_evidence_se": evidence.standard_error,
        "relative_ess": metrics.relative_ess(logs),
        "k_hat": metrics.k_hat(logs),
    }
