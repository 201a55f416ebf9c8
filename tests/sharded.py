"""A small fit and its draws, alone or divided over devices: `python sharded.py FILE all|quick [PORT NUMBER INDEX]`.

With two devices in one process, or two processes, the numbers must be those of one.
"""

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode.data import Dataset
from langenode.inference import Partition, TrainSettings, given_noise, objective, predict, sharding, train
from langenode.inference.predictions import sample_weights
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem
from langenode.inference.targets import Population, Posterior
from langenode.models import MLP, NeuralODE, OnConcatenation
from langenode.posteriors import Reference, cast, langevin

# The target, samples and chunks. Three samples cannot be divided by two, nor six by four, so that conditions are.
KINDS = {
    "population": (Population("quantile"), 8, 1),
    "few": (Population("quantile"), 6, 1),
    "odd": (Posterior(), 3, 1),
    "even": (Posterior(), 6, 1),
    "chunks": (Posterior(), 8, 2),
}
QUICK = ["population float64"]
CASES = [*QUICK, "even float32", "population float32", "few float64", "even float64", "odd float64", "chunks float32"]


def data() -> Dataset:
    """Decays from four starts, each read twice."""
    times, starts = np.linspace(0.0, 1.0, 5), np.repeat(np.linspace(0.5, 2.0, 4), 2)
    outputs = starts[:, None] * np.exp(-times) + 0.1 * np.random.default_rng(1).normal(size=(8, 5))
    return Dataset.from_arrays(times, outputs[..., None], initial=starts[:, None], condition=np.arange(8) // 2)


@functools.cache
def numbers(case: str) -> dict[str, Any]:
    """Losses of ten updates, draws and predictions."""
    name, precision = case.split()
    target, num_samples, num_chunks = KINDS[name]
    key = jax.random.key(3)
    model = NeuralODE(OnConcatenation(MLP((1, 3, 1), key=key)), num_hidden=1)
    partition = Partition.of(model, "all")
    dim = partition.dim
    prior = GaussianPrior(jnp.zeros(dim), jnp.ones(dim))
    posterior = langevin(Reference(partition.flatten(model), 0.1 * jnp.ones(dim)), num_steps=3, layers=(4,), key=key)
    likelihood = None if isinstance(target, Population) else given_noise(0.1, data())
    problem = cast(Problem(model, partition, prior, likelihood, target, posterior), precision)
    settings = TrainSettings(num_updates=10, num_samples=num_samples, num_chunks=num_chunks, block=5)
    seen = objective(problem, data(), precision)
    found = train(problem, seen, settings, key=key, validation=seen if likelihood is None else None)
    assert eqx.tree_equal(found.state.step, jnp.asarray(10))
    return {
        "history": found.state.history.tolist(),
        "validation": found.state.validation.tolist(),
        "draws": np.asarray(sample_weights(found.problem.posterior, 6, key=key)).tolist(),
        "predictions": np.asarray(predict(found.problem, data(), 6, key=key).outputs).tolist(),
    }


def main(file: str, is_all: str, *place: str) -> None:
    jax.config.update("jax_enable_x64", True)
    if place:
        port, number, index = map(int, place)
        jax.distributed.initialize(f"127.0.0.1:{port}", number, index)
    with sharding.over(jax.devices()):
        found: dict[str, Any] = {case: numbers(case) for case in (CASES if is_all == "all" else QUICK)}
    found["devices"] = len(jax.devices())
    if jax.process_index() == 0:
        Path(file).write_text(json.dumps(found))
    if place:
        jax.distributed.shutdown()


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main(*sys.argv[1:])
