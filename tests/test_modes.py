"""Several groups of units: the dip test, its false alarms and power, and the loss that follows."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

import langenode as ln
from langenode.data.modes import FALSE_ALARMS, critical_dip, dip, find_modes
from langenode.experiments import own
from langenode.fitting import build, plan, points
from langenode.models import neural_ode

TIMES = np.linspace(0.25, 3.0, 12)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def nearest_with_one_mode(values: np.ndarray) -> float:
    """The dip by its definition: linear programmes, one per place of the mode, for the distribution at the points.

    It is convex up to the mode and concave from there, where it may jump, and within d of the empirical one, which has
    a lower and an upper value at every point.
    """
    x, num = np.sort(values), len(values)
    found = []
    for mode in range(num):
        left, right = np.arange(mode + 1), np.arange(mode, num)
        points = np.concatenate([left, right])  # the mode twice: below and above its jump
        lower, upper = points / num, (points + 1) / num
        upper[mode], lower[mode + 1] = lower[mode], upper[mode + 1]
        rows = [_row(len(points), (k, 1.0)) for k in range(len(points))]
        sides = [lower, -upper]
        above = [np.array(rows), -np.array(rows)]
        shape = [_row(len(points), (mode, 1.0), (mode + 1, -1.0))]
        for start, stop, sign in ((0, mode + 1, 1.0), (mode + 1, len(points), -1.0)):
            gaps = np.diff(x[points[start:stop]])
            for k in range(len(gaps) - 1):
                first, second = sign / gaps[k], sign / gaps[k + 1]
                shape.append(
                    _row(len(points), (start + k, -first), (start + k + 1, first + second), (start + k + 2, -second))
                )
        matrix = np.concatenate([*above, np.array(shape)])
        slack = np.concatenate([np.ones(2 * len(points)), np.zeros(len(shape))])
        bounds = np.concatenate([*sides, np.zeros(len(shape))])
        solved = linprog(
            [0.0] * len(points) + [1.0],
            A_ub=np.column_stack([matrix, -slack]),
            b_ub=bounds,
            bounds=[(None, None)] * len(points) + [(0.0, None)],
        )
        found.append(solved.fun)
    return min(found)


def _row(size: int, *entries: tuple[int, float]) -> np.ndarray:
    row = np.zeros(size)
    for index, value in entries:
        row[index] = value
    return row


@pytest.mark.parametrize("gap", [0.0, 3.0])
def test_the_dip_is_the_distance_from_the_nearest_distribution_with_one_mode(rng, gap):
    for num in (5, 9, 14):
        values = rng.normal(size=num) + gap * (rng.uniform(size=num) < 0.5)
        np.testing.assert_allclose(dip(values), nearest_with_one_mode(values), rtol=1e-7)


def test_dips_that_are_known():
    np.testing.assert_allclose(dip(np.arange(10.0)), 0.05, rtol=1e-12)
    np.testing.assert_allclose(dip(np.repeat([0.0, 1.0], 500) + 1e-9 * np.arange(1000)), 0.25, rtol=0.01)
    assert dip(np.ones(8)) == 0.5 / 8


def test_uniform_samples_exceed_the_critical_dip_as_often_as_stated(rng):
    # Sizes between those of the table, too.
    for num, level in ((20, 0.05), (35, 0.02), (70, 0.05)):
        exceeded = [dip(rng.uniform(size=num)) > critical_dip(num, level) for _ in range(800)]
        error = np.sqrt(level * (1.0 - level) / len(exceeded))
        assert abs(np.mean(exceeded) - level) < 5.0 * error, (num, level)


def made(weights: np.ndarray, rng: np.random.Generator, noise: float = 0.05, **more) -> ln.Dataset:
    """Trajectories that rise to the first weight and drift by the second."""
    curves = weights[:, :1] * (1.0 - np.exp(-TIMES)) + weights[:, 1:] * TIMES / 3.0
    return ln.Dataset.from_arrays(TIMES, (curves + noise * rng.standard_normal(curves.shape))[..., None], **more)


def two_groups(num: int, rng: np.random.Generator) -> np.ndarray:
    centres = np.array([[0.5, 0.7], [1.8, 0.3]])[np.arange(num) % 2]
    return centres + 0.1 * rng.standard_normal((num, 2))


def one_group(kind: str, num: int, rng: np.random.Generator) -> np.ndarray:
    normal = np.array([1.0, 0.5]) + np.array([0.3, 0.2]) * rng.standard_normal((num, 2))
    return {"normal": normal, "log-normal": np.exp(normal), "uniform": rng.uniform(size=(num, 2))}[kind]


@pytest.mark.parametrize("kind", ["normal", "log-normal", "uniform"])
def test_one_group_is_seldom_called_several(rng, kind):
    alarms = [find_modes(made(one_group(kind, 20, rng), rng)) is not None for _ in range(200)]
    error = np.sqrt(FALSE_ALARMS * (1.0 - FALSE_ALARMS) / len(alarms))
    assert np.mean(alarms) < FALSE_ALARMS + 3.0 * error


def test_two_clear_groups_are_found(rng):
    found = [find_modes(made(two_groups(20, rng), rng)) for _ in range(100)]
    assert np.mean([modes is not None and modes.component == 0 for modes in found]) > 0.9


def test_groups_of_starts_are_no_groups_of_units(rng):
    weights, starts = one_group("normal", 40, rng), np.repeat([0.0, 5.0], 20)[:, None]
    data = made(weights, rng)
    shifted = ln.Dataset.from_arrays(TIMES, data.outputs + starts[:, None], initial=starts)
    assert find_modes(ln.Dataset.from_arrays(TIMES, shifted.outputs)) is not None
    assert find_modes(shifted) is None


def test_groups_choose_the_loss_that_keeps_them_unless_one_is_asked_for(rng):
    data = made(two_groups(20, rng), rng)
    suggested = own.plan(data, {"target": "population"})
    assert suggested.layer["population"] == {"loss": "quantile", "saturation": 0.5}
    (choice,) = [choice for choice in suggested.choices if choice.what == "population loss"]
    assert "of 20 units fall into groups" in choice.why
    assert "population" not in own.plan(data, {"target": "posterior"}).layer
    assert "population" not in own.plan(data, {"target": "population", "population": {"loss": "energy"}}).layer
    single = made(one_group("normal", 20, rng), rng)
    assert "population" not in own.plan(single, {"target": "population"}).layer


class Response(eqx.Module):
    """Rises to `gain` and drifts: the model behind `made`."""

    gain: jax.Array
    drift: jax.Array

    def __call__(self, times, inputs, initial=None):
        return (self.gain * (1.0 - jnp.exp(-times)) + self.drift * times / 3.0)[:, None]


def response() -> Response:
    return Response(jnp.asarray(0.7), jnp.asarray(0.0))


def test_groups_choose_the_loss_of_a_users_network_but_not_of_few_weights(rng):
    data = made(two_groups(20, rng), rng)
    network = neural_ode(num_inputs=0, num_outputs=1, num_hidden=2, key=jax.random.key(0))
    for model, loss in ((network, "quantile"), (response(), "energy")):
        _, config = plan.plan_model(model, data, {"target": "population"}, None)
        assert config.population.loss == loss


def test_populations_have_noise_and_new_units_by_default(rng):
    data = made(one_group("normal", 20, rng), rng)
    _, config = plan.plan_model(response(), data, {"target": "population"}, None)
    _, generic = plan.plan_data(data, {"target": "population"})
    assert config.population == generic.population
    assert (config.population.noise, config.population.new_units) == ("estimated", True)
    given = {"target": "population", "noise": {"sigma": 0.05}}
    assert plan.plan_model(response(), data, given, None)[1].population.noise == "given"
    kernel = {"target": "population", "population": {"loss": "log_mean_exp"}}
    assert plan.plan_model(response(), data, kernel, None)[1].population.noise == "none"


def test_weights_spread_as_units_do_however_precisely_these_are_measured(rng):
    weights = one_group("normal", 20, rng)
    data = made(weights, rng, noise=0.0)
    experiment, config = plan.plan_model(response(), data, {"target": "population", "mle": {"num_adam": 0}}, None)
    prepared = build.prepare(config, data, None)
    point = points.choose_model(experiment, config, prepared)
    problem = build.assemble(point.config, point.model, prepared, start=point.start).problem
    # Of the weights independence is assumed, which 20 units have only up to 1 / sqrt(20).
    reference = problem.variational.reference  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(reference.scale, weights.std(0), rtol=1.0 / np.sqrt(20))


@pytest.mark.slow
def test_a_population_keeps_both_groups_and_does_not_take_noise_for_spread(rng):
    num, noise = 20, 0.05
    weights = two_groups(num, rng)
    drawn = ln.fit(made(weights, rng, noise), model=response(), target="population", progress=False).flat_sample(4000)
    for group in (weights[::2], weights[1::2]):
        near = np.all(np.abs(drawn - group.mean(0)) < 4.0 * 0.1, axis=1)
        assert near.mean() > 0.25  # half of its share
    # What least squares of single units would add to the variance of the weights, and the error of the variance.
    columns = np.stack([1.0 - np.exp(-TIMES), TIMES / 3.0], axis=1)
    added = noise**2 * np.diag(np.linalg.inv(columns.T @ columns)) / weights.var(0)
    error = np.sqrt(2.0 / (num - 1)) * (1.0 + added)
    assert np.all(np.abs(drawn.var(0) / weights.var(0) - 1.0) < 3.0 * error)
