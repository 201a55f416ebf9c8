"""Algorithm 1: chunking, mini-batches, the guard, early stopping and resuming."""

# What a test knows of its objects is more than their declared types say.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportOptionalSubscript=false
# pyright: reportCallIssue=false, reportFunctionMemberAccess=false, reportOptionalMemberAccess=false

import operator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.data import Dataset
from langenode.inference.algorithm1 import PassOptions, generate, loss_and_gradient
from langenode.inference.errors import FitError
from langenode.inference.importance import log_weights
from langenode.inference.likelihood import given_noise, inferred_noise
from langenode.inference.objectives import LikelihoodObjective, objective
from langenode.inference.partition import Partition
from langenode.inference.predictions import predict
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem, draw_members, simulate
from langenode.inference.targets import Population, Posterior, Tempered
from langenode.inference.training import TrainSettings, initial_state, train, trained_numbers
from langenode.models import MLP, NeuralODE, OnConcatenation
from langenode.posteriors import Empirical, Reference, bottleneck, gaussian, langevin
from langenode.storage import container

KEY = jax.random.key(3)


def small_data(num=12, num_times=7, *, missing=False, seed=0):
    rng = np.random.default_rng(seed)
    times = np.linspace(0.0, 1.0, num_times)
    start = rng.normal(2.0, 0.05, num)
    rate, level = rng.normal(3.0, 0.3, num), rng.normal(1.0, 0.1, num)
    outputs = level[:, None] + (start - level)[:, None] * np.exp(-rate[:, None] * times)
    outputs += 0.01 * rng.normal(size=outputs.shape)
    if missing:
        outputs[rng.random(outputs.shape) < 0.2] = np.nan
        outputs[:, 0] = start
    return Dataset.from_arrays(times, outputs[..., None], initial=start[:, None])


def small_model(layers=()):
    return NeuralODE(OnConcatenation(MLP((1, *layers, 1), key=KEY)), num_hidden=1)


def small_problem(target, *, data=None, posterior=None, layers=(), where="all", noise=0.1) -> Any:
    data = small_data() if data is None else data
    model = small_model(layers)
    partition = Partition.of(model, where)
    weights = partition.flatten(model)
    prior = GaussianPrior(weights, jnp.ones_like(weights))
    if posterior is None:
        posterior = langevin(Reference(weights, 0.5 * jnp.ones_like(weights)), num_steps=4, layers=(8,), key=KEY)
    likelihood = None if isinstance(target, Population) else given_noise(noise, data)
    problem = Problem(model, partition, prior, likelihood, target, posterior)
    return problem, objective(problem, data, float)


def quick_problem(target, *, estimator="reparametrised", layers=(), where="all", **options) -> Any:
    """The same with a Gaussian, which compiles sooner than a chain, for tests of what is around the posterior."""
    model = small_model(layers)
    weights = Partition.of(model, where).flatten(model)
    posterior = gaussian(Reference(weights, 0.5 * jnp.ones_like(weights)), estimator=estimator, key=KEY)
    return small_problem(target, posterior=posterior, layers=layers, where=where, **options)


TARGETS = {
    "posterior": Posterior(),
    "tempered": Tempered(10.0),
    "energy": Population("energy", moment_weight=0.1),
    "quantile": Population("quantile"),
    "log_mean_exp": Population("log_mean_exp"),
}


def gradient_of(problem, data, **options):
    """The terms and the gradient of sampler and rest, as a compiled function of the trained numbers, and these."""
    params, static = eqx.partition(problem, trained_numbers(problem, TrainSettings(refit_rest=True)))
    return jax.jit(lambda p: loss_and_gradient(p, static, data, PassOptions(12, **options), key=KEY)), params


def assert_same_gradient(found, expected):
    norm = np.sqrt(sum(float(jnp.sum(g**2)) for g in jax.tree.leaves(expected)))
    assert norm > 0.0
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10 * norm)


OBJECTIVES = ["posterior", "tempered", "energy", "energy-missing", "quantile", "log_mean_exp"]
SLOW = ("tempered", "energy", "log_mean_exp", "quantile")  # to compile; their neighbours have the same parts


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in OBJECTIVES])
def test_gradient_equals_finite_differences_and_chunked_equals_unchunked(name):
    data = small_data(missing=name.endswith("missing") or name in ("quantile", "posterior"))
    # One of them with a chain; a chain has differences of its own in test_langevin.py.
    make, first = (quick_problem, "shift") if name == "energy-missing" else (small_problem, "start.mean")
    problem, seen = make(TARGETS[name.split("-")[0]], data=data, layers=(3,), where="last_layer")
    evaluate, params = gradient_of(problem, seen)
    terms, gradient = evaluate(params)
    step = 1e-5
    sampler = operator.attrgetter(f"posterior.{first}")
    for where in (sampler, lambda p: p.model.dynamics.network.layers[0].bias):
        up, down = (eqx.tree_at(where, params, where(params).at[0].add(s)) for s in (step, -step))
        difference = (evaluate(up)[0].loss - evaluate(down)[0].loss) / (2 * step)
        np.testing.assert_allclose(where(gradient)[0], difference, rtol=2e-5, atol=1e-8)
    evaluate, params = gradient_of(problem, seen, num_chunks=4)
    chunked_terms, chunked = evaluate(params)
    np.testing.assert_allclose(chunked_terms.loss, terms.loss, rtol=1e-12)
    assert_same_gradient(chunked, gradient)


def test_padding_to_a_size_class_changes_neither_loss_nor_gradient_nor_score():
    data = small_data(5, missing=True)
    problem, plain = quick_problem(Posterior(), data=data)
    found = []
    for seen in (plain, objective(problem, data, float, is_whole=True)):
        evaluate, params = gradient_of(problem, seen)
        score = jax.jit(lambda keys, seen=seen: seen.score(problem, generate(problem, seen, keys)))
        found.append((*evaluate(params), score(jax.random.split(KEY, 8))))
    assert found[1][0].loss != 0.0 and seen.batch.times.shape == (6, 8)
    np.testing.assert_allclose(found[1][0].loss, found[0][0].loss, rtol=1e-10)
    assert_same_gradient(found[1][1], found[0][1])
    np.testing.assert_allclose(found[1][2], found[0][2], rtol=1e-10)


@pytest.mark.parametrize("estimator", [pytest.param("sticking", marks=[pytest.mark.slow]), "log_variance"])
def test_chunked_equals_unchunked_for_the_other_estimators(estimator):
    problem, data = quick_problem(Posterior(), estimator=estimator)
    results = []
    for chunks in (1, 3):
        evaluate, params = gradient_of(problem, data, num_chunks=chunks)
        results.append(evaluate(params))
    np.testing.assert_allclose(results[1][0].loss, results[0][0].loss, rtol=1e-10)
    assert_same_gradient(results[1][1], results[0][1])


@pytest.mark.parametrize("name", [pytest.param("posterior", marks=[pytest.mark.slow]), "energy", "quantile"])
def test_masked_cells_are_as_if_dropped_and_poison_nothing(name):
    """The last times masked with NaN give the loss and the gradient of the data without those times."""
    whole = small_data()
    outputs = whole.outputs.copy()
    outputs[:, 5:] = np.nan
    masked = Dataset.from_arrays(whole.times[0], outputs, initial=whole.initial)
    dropped = Dataset.from_arrays(whole.times[0, :5], whole.outputs[:, :5], initial=whole.initial)
    if name == "energy":  # fewer cells, other principal directions: compare the maps' effect at given directions
        maps = quick_problem(TARGETS[name], data=masked)[1].observed.projection
        assert not np.any(np.asarray(maps)[..., 5:, :])
    results = []
    for data in (masked, dropped) if name != "energy" else (masked,):
        evaluate, params = gradient_of(*quick_problem(TARGETS[name], data=data))
        results.append(evaluate(params))
    assert all(np.isfinite(np.asarray(g)).all() for g in jax.tree.leaves(results[0][1]))
    if name != "energy":
        np.testing.assert_allclose(results[0][0].loss, results[1][0].loss, rtol=1e-10)
        assert_same_gradient(results[0][1], results[1][1])


def test_a_mini_batch_estimates_the_whole_log_likelihood_without_bias():
    problem, data = quick_problem(Posterior())
    weights = problem.posterior.sample(1, key=KEY)
    problem = eqx.tree_at(
        lambda p: p.posterior, problem, gaussian(Reference(weights[0], 1e-9 + 0 * weights[0]), key=KEY)
    )

    @eqx.filter_jit
    def mean_loglik(part):
        return part.log_likelihood(problem, generate(problem, part, KEY[None])).sum() * part.weight

    whole = float(mean_loglik(data))
    parts = eqx.filter_jit(jax.vmap(lambda k: mean_loglik(data.pick(k, 4, None))))(jax.random.split(KEY, 200))
    error = float(parts.std()) / np.sqrt(len(parts))
    assert abs(float(parts.mean()) - whole) < 5 * error


SETTINGS = TrainSettings(num_updates=25, num_samples=8, block=10, learning_rate=1e-2)


@pytest.mark.parametrize(
    ("name", "rest"), [("posterior", True), pytest.param("energy", False, marks=[pytest.mark.slow])]
)
def test_resumed_equals_uninterrupted_bit_for_bit_and_the_rest_moves_only_if_refitted(tmp_path, name, rest):
    make = quick_problem if rest else small_problem
    problem, data = make(TARGETS[name], layers=(3,), where="last_layer")
    settings = SETTINGS._replace(refit_rest=rest, batch_trajectories=6, patience=50)
    whole = train(problem, data, settings, key=KEY, validation=data)
    stored = []
    path = tmp_path / "checkpoint.langenode"

    def keep(state, progress, _):
        stored.append(progress.step)
        if progress.step == 10:
            path.write_bytes(container.to_bytes({}, state))

    train(problem, data, settings, key=KEY, validation=data, on_block=keep)
    assert stored == [10, 20, 25]
    state = container.read_tree(path, initial_state(problem, settings), is_finite=False)
    resumed = train(problem, data, settings, key=KEY, validation=data, state=state)
    for a, b in zip(jax.tree.leaves(whole.state), jax.tree.leaves(resumed.state), strict=True):
        np.testing.assert_array_equal(a, b)
    first = lambda model: np.asarray(model.dynamics.network.layers[0].weight)  # noqa: E731
    has_moved = not np.array_equal(first(whole.problem.model), first(problem.model))
    assert has_moved == rest  # what is not stochastic moves only where it is refitted


def test_non_finite_updates_are_skipped_and_counted():
    """A model that leaves the finite numbers for some draws: those updates leave no trace."""
    problem, data = quick_problem(Posterior())

    class Sometimes(eqx.Module):
        inner: NeuralODE

        def __call__(self, times, inputs, initial=None, *, key=None):
            outputs = self.inner(times, inputs, initial, key=key)
            weight = self.inner.dynamics.network.layers[0].weight[0, 0]
            return jnp.where(weight > problem.posterior.reference.mean[0] + 0.2, jnp.nan, outputs)

    model = Sometimes(problem.model)
    partition = Partition.of(model)
    problem = Problem(model, partition, problem.prior, problem.likelihood, Posterior(), problem.posterior)
    result = train(problem, data, SETTINGS._replace(num_samples=2), key=KEY)
    losses = np.asarray(result.state.history[:, 0])
    assert 0 < int(result.state.skipped) < 25
    assert np.isnan(losses).sum() == int(result.state.skipped)
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(result.state.params))


@pytest.mark.slow
def test_persistent_non_finite_updates_stop_the_fit_with_a_clear_error():
    data = small_data()
    problem, _ = quick_problem(Posterior(), data=data)
    spoiled = data.arrays(float)._replace(outputs=jnp.full(data.outputs.shape, jnp.nan))
    bad = LikelihoodObjective(Posterior(), spoiled, problem.likelihood)
    with pytest.raises(FitError, match=r"must stay finite.*lower training.learning_rate"):
        train(problem, bad, SETTINGS._replace(largest_skips=10), key=KEY)


def far_data():
    """Data that a fit to the others predicts worse and worse."""
    far = small_data(seed=5)
    return Dataset.from_arrays(far.times[0], far.outputs + 3.0 * far.times[..., None], initial=far.initial)


def test_early_stopping_keeps_the_best_state():
    """Validation data far from the training data: the score worsens as the fit improves."""
    problem, data = quick_problem(TARGETS["energy"])
    other = objective(problem, far_data(), float)
    settings = SETTINGS._replace(num_updates=400, learning_rate=5e-2, patience=3)
    result = train(problem, data, settings, key=KEY, validation=other)
    scores = np.asarray(result.state.validation)
    seen = scores[np.isfinite(scores)]
    assert len(seen) == np.argmin(seen) + 1 + 3 < 40
    np.testing.assert_array_equal(result.problem.posterior.shift, result.state.best.posterior.shift)


@pytest.mark.slow
def test_without_a_finite_validation_score_the_average_is_kept_with_a_warning():
    problem, data = quick_problem(TARGETS["energy"])
    spoiled = eqx.tree_at(lambda o: o.observed.projection, data, jnp.nan * data.observed.projection)
    settings = SETTINGS._replace(patience=3)
    with pytest.warns(UserWarning, match=r"finite validation score; none was found.*training.patience=0"):
        result = train(problem, data, settings, key=KEY, validation=spoiled)
    assert np.isnan(result.state.validation).all()
    kept = result.problem.posterior.shift
    np.testing.assert_array_equal(kept, result.state.averaged.posterior.shift)
    assert np.all(kept != problem.posterior.shift)


@pytest.mark.slow
def test_the_diffusion_follows_its_schedule_and_the_best_state_keeps_the_one_it_was_found_with():
    problem, data = small_problem(TARGETS["energy"])
    schedule = lambda step: 2.0 - 0.01 * step  # noqa: E731
    settings = SETTINGS._replace(learning_rate=5e-2, patience=3, diffusion=schedule)
    seen = []
    result = train(
        problem,
        data,
        settings,
        key=KEY,
        validation=objective(problem, far_data(), float),
        on_block=lambda state, progress, current: seen.append(float(current.posterior.diffusion)),
    )
    np.testing.assert_allclose(seen, [schedule(9), schedule(19), schedule(24)], rtol=1e-12)
    best = int(np.nanargmin(result.state.validation))
    np.testing.assert_allclose(result.problem.posterior.diffusion, seen[best], rtol=1e-12)


def test_a_bottleneck_is_refused_for_a_likelihood_target():
    weights = jnp.zeros(2)
    with pytest.raises(ValueError, match=r"bottleneck has none.*population"):
        small_problem(Posterior(), posterior=bottleneck(weights, key=KEY))


def test_stored_draws_are_not_trained():
    problem, data = small_problem(Posterior(), posterior=Empirical(jnp.zeros((3, 2))))
    with pytest.raises(TypeError, match="stored draws are final"):
        train(problem, data, SETTINGS, key=KEY)


@pytest.mark.slow
def test_log_weights_give_the_evidence_of_an_inferred_noise_model_by_quadrature():
    """One weight and the noise's log scale, integrated on a grid; the chain is untrained: the weights do the work."""
    rng = np.random.default_rng(0)
    times = np.linspace(0.0, 1.0, 6)
    data = Dataset.from_arrays(times, (0.7 + 0.3 * rng.normal(size=(2, 6)))[..., None])

    class Level(eqx.Module):
        value: jax.Array
        log_noise: jax.Array

        def __call__(self, times, inputs, initial=None, *, key=None):
            return jnp.full((times.shape[0], 1), self.value)

    model = Level(jnp.asarray(0.5), jnp.log(jnp.asarray([0.4])))
    partition = Partition.of(model)
    prior = GaussianPrior(partition.flatten(model), jnp.asarray([1.0, 0.5]))
    posterior = langevin(Reference(partition.flatten(model), jnp.asarray([0.3, 0.4])), num_steps=4, key=KEY)
    problem = Problem(model, partition, prior, inferred_noise(), Posterior(), posterior)
    _, logs = log_weights(problem, data, 4000, key=KEY)
    grid = np.stack(np.meshgrid(np.linspace(-3, 4, 700), np.linspace(-4, 2.5, 650), indexing="ij"), -1).reshape(-1, 2)
    residual = data.outputs.reshape(1, -1) - grid[:, :1]
    log_joint = np.sum(-0.5 * (residual / np.exp(grid[:, 1:])) ** 2 - grid[:, 1:] - 0.5 * np.log(2 * np.pi), 1)
    log_joint += np.asarray(jax.vmap(prior.log_density)(jnp.asarray(grid)))
    exact = np.log(np.exp(log_joint - log_joint.max()).sum() * (7 / 699) * (6.5 / 649)) + log_joint.max()
    weights = np.exp(np.asarray(logs) - exact)
    assert abs(weights.mean() - 1.0) < 5 * weights.std() / np.sqrt(len(weights))


def test_a_draw_without_a_likelihood_has_no_weight():
    problem, _ = quick_problem(Posterior(), data=small_data(2))

    class Sometimes(eqx.Module):
        inner: NeuralODE

        def __call__(self, times, inputs, initial=None, *, key=None):
            outputs = self.inner(times, inputs, initial, key=key)
            weight = self.inner.dynamics.network.layers[0].weight[0, 0]
            return jnp.where(weight > problem.posterior.reference.mean[0], jnp.nan, outputs)

    model = Sometimes(problem.model)
    failing = Problem(model, Partition.of(model), problem.prior, problem.likelihood, problem.target, problem.posterior)
    weights, logs = log_weights(failing, small_data(2), 64, key=KEY)
    np.testing.assert_array_equal(np.isneginf(logs), weights[:, 0] > problem.posterior.reference.mean[0])
    assert not np.isnan(logs).any() and 0 < np.isfinite(logs).sum() < 64


@pytest.mark.parametrize("somebody_is_absent", [False, True])
def test_members_are_drawn_among_those_who_are_present(somebody_is_absent):
    present = np.ones((5, 3), bool)
    if somebody_is_absent:
        present[[0, 3], [1, 2]] = False
    members = np.asarray(draw_members(KEY, jnp.asarray(present), 4000))
    if somebody_is_absent:
        expected = jax.random.categorical(KEY, jnp.where(present, 0.0, -jnp.inf).T[None], axis=-1, shape=(4000, 3))
    else:
        expected = np.broadcast_to(jax.random.randint(KEY, (4000, 1), 0, 5), (4000, 3))
    np.testing.assert_array_equal(members, expected)
    for condition in range(3):
        assert set(members[:, condition]) == set(np.flatnonzero(present[:, condition]))


def test_numbers_for_absent_members_are_drawn_in_a_branch_of_their_own():
    """Also for many keys at once: a choice between two results would have to make both."""
    many = jax.vmap(lambda key, present: draw_members(key, present, 1), in_axes=(0, None))
    assert "cond[" in str(jax.make_jaxpr(many)(jax.random.split(KEY, 4), jnp.ones((5, 3), bool)))


def test_predictions_start_where_members_of_the_condition_did():
    problem, _ = quick_problem(TARGETS["energy"])
    data = small_data()
    outputs, weights = predict(problem, data, 300, key=KEY)
    assert outputs.shape == (300, 1, 7, 1) and weights.shape == (300, 2)
    starts = np.unique(np.asarray(outputs[:, 0, 0, 0]))
    assert set(starts) <= set(data.initial[:, 0]) and len(starts) > 6


def test_simulate_equals_one_model_at_a_time():
    problem, _ = quick_problem(TARGETS["energy"], layers=(3,), where="last_layer")
    batch = small_data(2).arrays(float)
    weights = problem.posterior.sample(3, key=KEY)
    together = simulate(problem.model, problem.partition, weights, batch.times, batch.inputs, batch.initial)
    for i in range(3):
        model = problem.partition.combine(problem.model, weights[i])
        alone = jnp.stack([model(batch.times[j], batch.inputs[j], batch.initial[j]) for j in range(2)])
        np.testing.assert_allclose(together[i], alone, rtol=1e-12)
