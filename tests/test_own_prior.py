"""Weights in the user's units: the prior of a model of one's own, the search, the penalty, and other units."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langenode as ln
from langenode.config import ConfigError
from langenode.fitting import plan
from langenode.fitting.priors import make_prior, prior_layer
from langenode.inference.likelihood import given_noise
from langenode.inference.partition import Partition
from langenode.inference.point_fit import fit_mle
from langenode.inference.weight_scales import penalty_shift, prior_scales, search_units
from langenode.scores import verdict

NOISE = 20.0
TIMES = np.linspace(0.0, 1.0, 11)


class Line(eqx.Module):
    """y = slope t."""

    slope: jax.Array

    def __call__(self, times, inputs, initial):
        del inputs, initial
        return (self.slope * times)[:, None]


class Affine(eqx.Module):
    """y = inputs @ weights, in one leaf of several weights."""

    weights: jax.Array

    def __call__(self, times, inputs, initial):
        del times, initial
        return (inputs @ self.weights)[:, None]


def lines(slope=500.0, num=4, seed=0):
    rng = np.random.default_rng(seed)
    outputs = slope * TIMES + NOISE * rng.standard_normal((num, len(TIMES)))
    return ln.Dataset.from_arrays(TIMES, outputs, condition=np.arange(num))


def least_squares(data):
    """Slope and standard error of y = slope t with known noise."""
    rows = np.broadcast_to(data.times, data.outputs.shape[:2]).ravel()
    return rows @ data.outputs.ravel() / (rows @ rows), NOISE / np.sqrt(rows @ rows)


def fit(data, model, **options):
    given = {"noise": {"kind": "given", "sigma": NOISE}, "laplace": {"num": 2000}, **options.pop("options", {})}
    options = {"method": "laplace", "target": "posterior", **options}
    return ln.fit(data, model=model, options={"precision": "float64", **given}, progress=False, **options)


# The prior


@pytest.mark.parametrize(
    "start", [pytest.param(1.0, marks=[pytest.mark.slow]), 0.0, pytest.param(-3e4, marks=[pytest.mark.slow])]
)
def test_a_slope_of_500_is_found_with_its_standard_error(start):
    """The posterior of a line is known; the prior may narrow it by one reading in 44 at most."""
    data = lines()
    slope, error = least_squares(data)
    found = fit(data, Line(jnp.asarray(start)))
    (scale,), (centre,) = np.asarray(found.problem.prior.scale), np.asarray(found.problem.prior.mean)
    assert centre == pytest.approx(slope, rel=1e-6)
    assert scale == pytest.approx(max(abs(start), slope, np.sqrt(44) * error), rel=1e-4)
    exact = (error**-2 + scale**-2) ** -0.5
    assert error / np.sqrt(1 + 1 / 44) <= exact <= error
    draws = found.flat_sample(2000)
    assert draws.mean() == pytest.approx(slope, abs=5 * exact / np.sqrt(2000))
    assert draws.std() == pytest.approx(exact, rel=5 / np.sqrt(4000))
    assert found.diagnostics["prior_width_ratio"]["median"] == pytest.approx(exact / scale, rel=0.1)


@pytest.mark.slow
def test_the_default_method_finds_it_too():
    data = lines()
    slope, error = least_squares(data)
    found = ln.fit(data, model=Line(jnp.asarray(1.0)), target="posterior", progress=False,
                   options={"guided": {"num": 512, "num_steps": 8, "eta": 0.0, "num_checks": 0}})  # fmt: skip
    assert found.config.method == "guided" and found.config.mle.penalty == 0.0
    draws = found.flat_sample(512)
    sigma = np.sqrt(np.mean((data.outputs[..., 0] - slope * TIMES) ** 2)) / NOISE
    assert draws.mean() == pytest.approx(slope, abs=5 * error / np.sqrt(512))
    assert draws.std() == pytest.approx(sigma * error, rel=5 / np.sqrt(1024) + 1 / 44)


def collinear(num=30, dim=3, seed=1):
    """Columns that are nearly alike, of very different units."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(num, 1))
    inputs = (common + 0.05 * rng.normal(size=(num, dim))) * np.logspace(-3, 3, dim)
    outputs = (inputs @ np.logspace(3, -3, dim) + 0.1 * rng.normal(size=num))[:, None]
    return ln.Dataset.from_arrays(np.arange(num, dtype=float), outputs[None], inputs=inputs[None])


def test_the_prior_holds_at_most_d_nths_of_the_information_in_any_direction():
    data = collinear()
    model = Affine(jnp.asarray(np.logspace(3, -3, 3) * 1e-6))  # a start that is far too small: no help
    partition, noise = Partition.of(model), given_noise(0.1, data)
    found = prior_scales(model, model, partition, data, noise, is_population=False)
    information = data.inputs[0].T @ data.inputs[0] / 0.1**2
    np.testing.assert_allclose(found.scale, np.sqrt(30 * np.diag(np.linalg.inv(information))), rtol=1e-6)
    root = np.linalg.cholesky(np.linalg.inv(information))
    share = np.linalg.eigvalsh(root.T @ np.diag(found.scale**-2.0) @ root)
    assert share.max() <= 3 / 30 + 1e-9 and found.unidentified == ()


class Redundant(eqx.Module):
    """Only the product of `a` and `b` matters; `idle` is not used; `net` makes a function."""

    a: jax.Array
    b: jax.Array
    idle: jax.Array
    offset: jax.Array
    net: ln.MLP
    log_noise: jax.Array

    def __call__(self, times, inputs, initial):
        del inputs, initial
        bend = jax.vmap(self.net)(times[:, None])
        return (self.a * self.b * times + self.offset)[:, None] + 0.0 * self.idle.sum() + bend


def redundant():
    net = ln.MLP((1, 3, 1), key=jax.random.key(0))
    return Redundant(jnp.asarray(2.0), jnp.asarray(5.0), jnp.zeros(2), jnp.asarray(0.0), net, jnp.zeros(1))


def test_weights_that_no_data_determine_are_named_and_have_their_own_magnitude():
    data = lines(slope=10.0)
    model = redundant()
    partition, noise = Partition.of(model), given_noise(NOISE, data)
    found = prior_scales(model, model, partition, data, noise, is_population=False)
    assert found.unidentified == ("a", "b", "idle[0]", "idle[1]")
    scale = dict(zip(partition.names, found.scale, strict=True))
    assert (scale["a"], scale["b"], scale["idle[0]"], scale["log_noise[0]"]) == (2.0, 5.0, 1.0, 1.0)
    first = np.asarray(model.net.layers[0].weight)
    assert scale["net.layers[0].weight[0,0]"] == pytest.approx(np.sqrt(np.mean(first**2)))
    # The offset beside a network whose weights are held by their own priors: at most the sum of both widths.
    assert NOISE / np.sqrt(44) * np.sqrt(44) < scale["offset"] < np.inf


@pytest.mark.slow
def test_undetermined_weights_are_said_in_a_warning_and_in_the_verdict():
    data = lines(slope=10.0)
    where = lambda m: (m.idle, m.offset)  # noqa: E731
    with pytest.warns(UserWarning, match=r"do not determine idle\[0\], idle\[1\]"):
        found = fit(data, redundant(), stochastic=where)
    assert found.diagnostics["unidentified"] == ["idle[0]", "idle[1]"]
    ratio = found.diagnostics["prior_width_ratio"]
    assert ratio["share_near_one"] == pytest.approx(2 / 3) and set(ratio["widest"]) == {"idle[0]", "idle[1]", "offset"}
    said = found.evaluate(data)["verdict"]
    assert said["level"] != "trust" and "do not determine idle[0], idle[1]" in said["text"]
    # A prior that is given is a statement: nothing is left to name.
    assert "unidentified" not in fit(data, redundant(), stochastic=where, prior={"idle": 0.5}).diagnostics


def stated(prior, model):
    """The prior that `ln.fit(prior=...)` states, without a fit."""
    data = collinear()
    asked = {"target": "posterior", "precision": "float64", **prior_layer(prior)}
    _, config = plan.plan_model(model, data, asked, None)
    return make_prior(config, model, model, Partition.of(model), given_noise(0.1, data), data).prior


def test_the_prior_can_be_given_by_leaf():
    model = Affine(jnp.asarray([4.0, 5.0, 6.0]))
    found = stated({"weights": ([1.0, 2.0, 3.0], 0.25)}, model)
    np.testing.assert_array_equal(found.mean, [1, 2, 3])
    np.testing.assert_array_equal(found.scale, [0.25] * 3)
    found = stated({"weights": np.array([0.1, 0.2, 0.3])}, model)
    np.testing.assert_array_equal(found.scale, [0.1, 0.2, 0.3])
    np.testing.assert_array_equal(found.mean, model.weights)  # the point estimate
    np.testing.assert_array_equal(stated(7, model).scale, [7.0] * 3)
    assert np.all(np.asarray(stated(None, model).scale) != 1.0)


def test_a_given_prior_and_the_data_are_weighed_against_each_other():
    """Normal times normal, in closed form."""
    data = lines()
    slope, error = least_squares(data)
    found = fit(data, Line(jnp.asarray(1.0)), prior={"slope": (400.0, 10.0)})
    variance = 1.0 / (error**-2 + 10.0**-2)
    draws = found.flat_sample(2000)
    exact = variance * (slope / error**2 + 400.0 / 10.0**2)
    assert draws.mean() == pytest.approx(exact, abs=float(5 * np.sqrt(variance / 2000)))
    assert draws.std() == pytest.approx(np.sqrt(variance), rel=5 / np.sqrt(4000))
    assert found.config.prior.scales == {"slope": 10.0} and found.config.prior.means == {"slope": 400.0}


@pytest.mark.parametrize(
    ("prior", "match"),
    [
        ({"weight": 1.0}, "got 'weight'; did you mean 'weights'"),
        ({"weights": [1.0, 2.0]}, "'weights' has 3 weights and 2 numbers were given"),
        ({"weights": (1.0, 2.0, 3.0)}, r"a scale or \(mean, scale\)"),
        ({"weights": -1.0}, "greater than 0"),
        ("wide", "a prior must be a number, or map names"),
    ],
)
def test_a_prior_that_does_not_fit_is_refused(prior, match):
    with pytest.raises(ConfigError, match=match):
        fit(collinear(), Affine(jnp.ones(3)), prior=prior)  # before any work


def test_a_posterior_as_wide_as_its_prior_is_a_reservation():
    def level(share, **more):
        ratio = {"median": share, "share_near_one": share, "widest": {"k": 0.97}}
        return verdict.judge({"posterior": {"prior_width_ratio": ratio}, **more})

    assert level(0.4)["level"] == "trust" and level(0.5)["level"] == "caution"
    assert "(k) is as wide as their prior" in level(1.0)["text"]
    moved = level(0.0, mle={"penalty_shift": 1.5})
    assert moved["level"] == "caution" and "by 1.5 standard errors" in moved["text"]
    assert level(0.0, mle={"penalty_shift": 0.5})["level"] == "trust"


# The search and its penalty


def test_a_penalty_s_shift_is_that_of_ridge_regression():
    data = collinear()
    start = Affine(jnp.asarray(np.logspace(3, -3, 3)))
    units = search_units(start, data)
    penalty = 1e-3
    model = fit_mle(start, data, num_adam=0, num_lbfgs=200, penalty=penalty, units=units).model
    free = fit_mle(start, data, num_adam=0, num_lbfgs=200, units=units).model
    rows, values = data.inputs[0], data.outputs[0, :, 0]
    curvature = rows.T @ rows / (values.var() * len(values))
    ridge = np.linalg.solve(curvature + penalty * np.eye(3) / units.weights**2, rows.T @ values / (values.var() * 30))
    np.testing.assert_allclose(model.weights, ridge, rtol=1e-5)
    np.testing.assert_allclose(free.weights, np.linalg.lstsq(rows, values)[0], rtol=1e-5)
    noise = given_noise(0.1, data)
    shift = penalty_shift(model, Partition.of(model), data, noise, penalty=penalty, units=units)
    away = np.asarray(free.weights) - ridge
    assert shift == pytest.approx(np.sqrt(away @ (rows.T @ rows / 0.1**2) @ away / 3), rel=1e-4)


@pytest.mark.slow
def test_a_penalty_that_is_asked_for_is_measured():
    options = {"mle": {"penalty": 0.1}}
    found = fit(lines(), Line(jnp.asarray(1.0)), options=options)
    assert found.diagnostics["mle"]["penalty_shift"] > 1.0
    metrics = found.evaluate(lines(seed=1))
    assert metrics["mle"]["penalty_shift"] > 1.0 and "penalty on the weights moved" in metrics["verdict"]["text"]
    assert "mle" not in fit(lines(), Line(jnp.asarray(1.0))).diagnostics


def test_units_of_the_search_are_those_of_the_weights():
    """The unit of a slope: what moves y by its spread, rms. Networks and log noise have none."""
    data = lines()
    spread = data.outputs.std()
    # Sixteen random combinations of the readings know a mean square to sqrt(2 / 16).
    expected = spread / np.sqrt(np.mean(TIMES**2))
    assert search_units(Line(jnp.asarray(100.0)), data).slope == pytest.approx(expected, rel=5 * np.sqrt(2 / 16) / 2)
    assert search_units(Line(jnp.asarray(1e-3)), data).slope == pytest.approx(0.1)  # a hundredfold at most
    units = search_units(redundant(), data)
    assert set(jax.tree.leaves((units.net, units.log_noise))) == {1.0} and units.idle == 1.0


# Other units


class Decay(eqx.Module):
    """y = start exp(-rate t) + source t (1 + inputs), with weights and data in units that are 1 in the reference."""

    rate: jax.Array
    source: jax.Array
    log_noise: jax.Array
    time: float = eqx.field(static=True, default=1.0)
    output: float = eqx.field(static=True, default=1.0)
    drive: float = eqx.field(static=True, default=1.0)

    def __call__(self, times, inputs, initial):
        decayed = initial * jnp.exp(-self.rate * times[:, None])
        return decayed + self.source * times[:, None] * (1.0 + inputs / self.drive)


def decays(num=10, seed=3):
    """Members of two conditions, each with its own rate."""
    rng = np.random.default_rng(seed)
    times = np.linspace(0.0, 2.0, 7)
    rate, drive = rng.uniform(0.5, 1.5, (num, 1)), np.repeat([0.5, 2.0], num // 2)[:, None]
    outputs = 3.0 * np.exp(-rate * times) + 0.3 * times * (1.0 + drive) + 0.05 * rng.standard_normal((num, 7))
    inputs = np.broadcast_to(drive[..., None], (num, 7, 1))
    return ln.Dataset.from_arrays(times, outputs[..., None], inputs=inputs, initial=np.full((num, 1), 3.0))


def converted(data, time, output, drive):
    return ln.Dataset.from_arrays(
        data.times * time,
        data.outputs * output,
        inputs=data.inputs * drive,
        initial=None if data.initial is None else data.initial * output,
    )


SMALL = {
    "precision": "float64",
    "mle": {"num_adam": 20, "num_lbfgs": 0},
    "training": {"num_updates": 4, "num_samples": 8},
    "langevin": {"num_steps": 2, "layers": [4]},
    "predict": {"num_samples": 32, "num_weights": 64},
    "tempered": {"temperature": 5.0},
}


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        pytest.param("own", "population", marks=SLOW),
        pytest.param("own", "posterior", marks=SLOW),
        pytest.param("own", "tempered", marks=SLOW),
        pytest.param("generic", "population", marks=SLOW),
        pytest.param("generic", "posterior", marks=SLOW),
        pytest.param("generic", "tempered", marks=SLOW),
    ],
)
def test_the_same_data_in_other_units_give_the_same_predictions(kind, target):
    """Milli-units, minutes for hours, another unit of the input: to rounding, which a few updates hardly enlarge."""
    predictions = []
    for time, output, drive in ((1.0, 1.0, 1.0), (60.0, 1000.0, 0.01)):
        data = converted(decays(), time, output, drive)
        model, options = None, dict(SMALL)
        if kind == "own":
            weights = (jnp.asarray(0.7 / time), jnp.asarray(0.1 * output / time), jnp.log(jnp.full(1, 0.1 * output)))
            model = Decay(*weights, time, output, drive)
        else:
            options["model"] = {"kind": "state", "layers": [4], "largest_step": "none"}
        found = ln.fit(data, model=model, target=target, method="langevin", options=options, progress=False)
        predictions.append(found.predict(data)["outputs"].to_numpy() / output)
    assert predictions[0].std(0).max() > 1e-3
    np.testing.assert_allclose(predictions[1], predictions[0], rtol=1e-7, atol=1e-9)
