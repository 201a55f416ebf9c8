"""Arrays padded to size classes: the same results as without, and one shape for tables of about the same size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.data import Dataset, class_of, size_classes
from langenode.inference.likelihood import given_noise, inferred_noise
from langenode.inference.objectives import objective
from langenode.inference.partition import Partition
from langenode.inference.point_fit import fit_mle, fitted_outputs
from langenode.inference.predictions import Rule, predict
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem
from langenode.inference.references import compiled_jacobians, laplace_reference
from langenode.inference.targets import Posterior
from langenode.models import MLP, NeuralODE, OnConcatenation
from langenode.posteriors import Empirical

KEY = jax.random.key(3)


def relaxations(num=5, num_times=7, seed=0):
    """Some trajectories end early, some readings are missing; every one has a start and an input of its own."""
    rng = np.random.default_rng(seed)
    times = np.linspace(0.0, 1.0, num_times)
    level, start = rng.normal(size=(2, num, 1))
    outputs = level + (start - level) * np.exp(-2.0 * times) + 0.05 * rng.normal(size=(num, num_times))
    outputs[1:, 1:][rng.random((num - 1, num_times - 1)) < 0.2] = np.nan
    parts = [
        {"times": times[:end], "outputs": outputs[i, :end], "inputs": np.full((end, 1), level[i]), "initial": start[i]}
        for i, end in enumerate([num_times - 2, *[num_times] * (num - 1)])
    ]
    return Dataset.from_list(parts)


def model_of(log_noise=None):
    return NeuralODE(OnConcatenation(MLP((2, 3, 1), key=KEY)), num_hidden=1, log_noise=log_noise)


def problem_of(data, *, is_inferred):
    model = model_of(jnp.array([-1.0]) if is_inferred else None)
    partition = Partition.of(model)
    weights = partition.flatten(model)
    prior = GaussianPrior(weights, jnp.full_like(weights, 0.3))
    noise = inferred_noise() if is_inferred else given_noise(0.1, data)
    return Problem(model, partition, prior, noise, Posterior(), Empirical(weights[None]))


@pytest.fixture
def without_classes(monkeypatch):
    """A function that calls another one with arrays as they are."""

    def call(function):
        with monkeypatch.context() as patched:
            patched.setattr(size_classes, "MOST_PADDED_CELLS", 0)
            return function()

    return call


def test_there_are_two_classes_to_an_octave():
    sizes = [size_classes.size_class(size) for size in range(1, 100)]
    assert sorted(set(sizes)) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128]
    assert all(size <= found <= 1.5 * size for size, found in enumerate(sizes, 1))
    assert class_of(38, 19) == class_of(40, 20) == (48, 24)
    assert class_of(1000, 100) == (1000, 100)


def test_a_padded_batch_has_the_data_first_and_observes_nothing_else():
    data = relaxations()
    batch, padded = data.arrays(float), data.arrays(float).in_class()
    assert padded.times.shape == (6, 8)
    assert int(padded.mask.sum()) == int(data.mask.sum())
    for part, whole in zip(batch, padded, strict=True):
        assert part is not None and whole is not None
        index = tuple(slice(size) for size in part.shape)
        np.testing.assert_array_equal(whole[index], part)
    assert np.all(np.diff(padded.times) >= 0.0)  # no time before the one before it


def test_model_outputs_and_derivatives_are_the_same(without_classes):
    data, model = relaxations(), model_of()
    partition = Partition.of(model)
    found = fitted_outputs(model, data), *compiled_jacobians(model, partition, data.arrays(float))
    expected = without_classes(
        lambda: (fitted_outputs(model, data), *compiled_jacobians(model, partition, data.arrays(float)))
    )
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("weighting", ["spread", "given"])
def test_point_fits_take_the_same_steps(without_classes, weighting):
    data = relaxations()
    sigma = None if weighting == "spread" else np.full(data.outputs.shape, 0.1)
    fit = lambda: fit_mle(model_of(), data, num_adam=20, num_lbfgs=0, sigma=sigma)  # noqa: E731
    found, expected = fit(), without_classes(fit)
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-9)


@pytest.mark.parametrize("is_inferred", [True, False])
def test_references_and_predictions_are_the_same(without_classes, is_inferred):
    data = relaxations()
    problem = problem_of(data, is_inferred=is_inferred)
    noise = problem.likelihood
    assert noise is not None

    def both():
        reference = laplace_reference(problem.model, problem.partition, data, problem.prior, noise)
        return reference.mean, reference.scale, predict(problem, data, 4, Rule(largest_step=0.1), key=KEY).outputs

    for a, b in zip(both(), without_classes(both), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("is_inferred", [True, False])
def test_objectives_of_tables_of_one_class_have_one_shape(is_inferred):
    """And are those of all data, not of mini-batches, which are chosen among what is there."""
    shapes = []
    for size in ((5, 7), (6, 8)):
        data = relaxations(*size)
        found = objective(problem_of(data, is_inferred=is_inferred), data, float, is_whole=True)
        shapes.append((jax.tree.structure(found), [leaf.shape for leaf in jax.tree.leaves(found)]))
    assert shapes[0] == shapes[1]
    data = relaxations(5, 7)
    plain = objective(problem_of(data, is_inferred=is_inferred), data, float)
    assert plain.num_conditions == data.num_trajectories
