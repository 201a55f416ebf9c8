"""Smooth curves of units: their covariance, what is integrated in closed form, and whole fits."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import langenode as ln
from langenode.config import ConfigError
from langenode.experiments import own, unit_choices
from langenode.fitting import plan
from langenode.inference.hierarchical import linear
from langenode.inference.hierarchical.conditional import condition, stacked
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.units import by_unit
from langenode.inference.partition import Partition
from langenode.models.smooth_curve import CLOCK_RANGE, NUM_COMMON, Sizes, smooth_curve, smooth_features
from langenode.posteriors import Standard, cast

TIMES = np.array([0.0, 0.1, 0.3, 0.6, 1.0])


@pytest.fixture(autouse=True)
def in_64_bits():
    with jax.enable_x64(True):
        yield


def units(num=5, *, has_start=False, seed=0, num_inputs=1):
    """Readings of units; some are missing."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(num):
        values = 1.0 - np.exp(-rng.uniform(1, 4) * TIMES) + 0.1 * rng.standard_normal(len(TIMES))
        values[rng.integers(1, len(TIMES))] = np.nan
        inputs = np.full((len(TIMES), num_inputs), rng.standard_normal())
        made.append({"times": TIMES, "outputs": values, "inputs": inputs, "unit": str(number)})
        if has_start:
            made[-1]["initial"] = np.array([0.1 * number])
    return ln.Dataset.from_list(made)


def model(num_inputs=1, clock=3.0):
    return cast(smooth_curve(num_inputs=num_inputs, num_outputs=1, clock=clock), jnp.float64)


def family(**options):
    one = model(**options)
    return Family(Standard(scale=jnp.ones(one.unit.shape[0])), one, Partition.of(one, "unit"), None)


def vector():
    return linear._prior()[0] + 0.3 * np.random.default_rng(5).standard_normal(11)


def dense(data, at):
    """All readings with their features, and the covariance of readings given the sizes."""
    common, own_features, values, unit = [], [], [], []
    for row in range(data.num_trajectories):
        seen = data.mask[row, :, 0]
        found = model().features(
            Sizes(*jnp.asarray(at[:-1])),
            jnp.asarray(data.times[row]),
            jnp.asarray(data.inputs[row]),
            is_anchored=data.initial is not None,
        )
        start = 0.0 if data.initial is None else data.initial[row, 0]
        common.append(np.asarray(found.common)[seen])
        own_features.append(np.asarray(found.own)[seen])
        values.append(data.outputs[row, seen, 0] - np.asarray(found.of_start)[seen] * start)
        unit.append(np.full(seen.sum(), row))
    common, own_features, values, unit = (np.concatenate(part) for part in (common, own_features, values, unit))
    noise = np.exp(2.0 * at[-1]) + linear.LEAST_NOISE**2
    own_covariance = np.where(unit[:, None] == unit, own_features @ own_features.T, 0.0) + noise * np.eye(len(values))
    return common, values, own_covariance


def test_sines_have_the_covariance_of_a_smooth_process():
    place, length = jnp.linspace(-0.5, 0.5, 30) * CLOCK_RANGE, 0.4
    features = np.asarray(smooth_features(place, jnp.asarray(length), NUM_COMMON))
    distance = np.subtract.outer(place, place)
    np.testing.assert_allclose(features @ features.T, np.exp(-0.5 * (distance / length) ** 2), atol=5e-3)


@pytest.mark.parametrize("has_start", [False, True])
def test_the_log_density_is_that_of_all_readings_together(has_start):
    data, at = units(has_start=has_start), vector()
    value, _ = linear._log_posterior(jnp.asarray(at), model(), by_unit(data), jnp.asarray(0))
    common, values, covariance = dense(data, at)
    expected = multivariate_normal(cov=covariance + common @ common.T).logpdf(values)
    assert float(value - linear._log_prior(jnp.asarray(at))) == pytest.approx(expected, rel=1e-9)


def test_common_weights_have_their_exact_mean_and_precision():
    data, at = units(), vector()
    mean, factor = linear._common(jnp.asarray(at), model(), by_unit(data), jnp.asarray(0))
    common, values, covariance = dense(data, at)
    precision = np.eye(common.shape[1]) + common.T @ np.linalg.solve(covariance, common)
    np.testing.assert_allclose(np.asarray(factor) @ np.asarray(factor).T, precision, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(
        mean, np.linalg.solve(precision, common.T @ np.linalg.solve(covariance, values)), rtol=1e-6
    )


def test_padding_and_the_order_of_units_change_nothing():
    data, at = units(), jnp.asarray(vector())
    value, _ = linear._log_posterior(at, model(), by_unit(data), jnp.asarray(0))
    padded, _ = linear._log_posterior(at, model(), by_unit(data, num=8), jnp.asarray(0))
    turned, _ = linear._log_posterior(at, model(), by_unit(data.select(np.arange(5)[::-1])), jnp.asarray(0))
    np.testing.assert_allclose([padded, turned], float(value), rtol=1e-10)


def test_a_known_start_is_where_the_curve_begins_and_is_forgotten():
    """Far from the start what a start adds is what a unit's level has in common there."""
    one = eqx.tree_at(lambda m: m.weights, model(), 0.3 * jnp.ones_like(model().weights))
    times, inputs = jnp.linspace(0.0, 1.0, 9), jnp.ones((9, 1))
    low, high = one(times, inputs, jnp.array([-0.7])), one(times, inputs, jnp.array([0.3]))
    np.testing.assert_allclose([low[0, 0], high[0, 0]], [-0.7, 0.3], rtol=1e-10)
    assert np.all(np.abs(np.diff(high - low, axis=0)[:2]) > 0) and abs(float(high[-1, 0] - low[-1, 0])) < 1.0


def test_importance_weights_of_a_linear_model_are_all_but_equal():
    """The law about the mode is exact; one point in eight is of the distribution of units, for safety."""
    data = by_unit(units())
    fit = linear.fit_smooth(family(), data, seed=0)
    found = condition(stacked([fit.family]), data, 64, num_points=256, key=jax.random.key(0))
    assert found.relative_ess.min() > 0.8
    parts = [
        linear._integrate(
            jnp.asarray(fit.outputs[0].mode), fit.family.model, by_unit(units().select([k])), jnp.asarray(0)
        )
        for k in range(5)
    ]
    weights = np.asarray(fit.family.model.weights[0])
    whole = [
        float(
            -0.5
            * (p.square + weights @ (p.factor @ (p.factor.T @ weights)) - weights @ weights - 2 * weights @ p.projected)
        )
        for p in parts
    ]
    np.testing.assert_allclose(found.log_evidence, whole, atol=0.05)


def test_draws_of_the_noise_cover_it():
    """Twenty data sets of the model itself: 90 % intervals of the noise hold it in most (binomial bound)."""
    at = vector()
    rng, inside = np.random.default_rng(11), 0
    data = units(12, seed=1)
    common, _, covariance = dense(data, at)
    root = np.linalg.cholesky(covariance + common @ common.T)
    for number in range(20):
        outputs = np.zeros_like(data.outputs)
        outputs[data.mask] = root @ rng.standard_normal(len(root))
        made = by_unit(dataclasses.replace(data, outputs=outputs))
        fit = linear.fit_smooth(family(), made, seed=number)
        drawn = linear.draw_smooth(fit, made, 40, rng=rng)
        low, high = np.quantile([float(one.model.log_noise[0]) for one in drawn], [0.05, 0.95])
        inside += low <= at[-1] <= high
    assert inside >= 14  # of 20, 13 or fewer have a probability of 0.2 % if 90 % are held


def test_units_that_begin_alike_and_grow_apart_are_predicted_from_their_starts():
    """A reading at the start, where units differ a tenth as much as at the end, says how its unit grows."""
    rng, made = np.random.default_rng(4), []
    for number in range(30):
        own = 0.3 * rng.standard_normal()
        values = 1.0 + TIMES + own * (0.1 + TIMES) + 0.005 * rng.standard_normal(len(TIMES))
        made.append({"times": TIMES, "outputs": values, "unit": str(number)})
    data = ln.Dataset.from_list(made)
    fit = linear.fit_smooth(family(num_inputs=0, clock=0.0), by_unit(data), seed=0)
    assert np.tanh(float(fit.family.model.sizes.own_growth[0])) > 0.7
    first = dataclasses.replace(data, mask=data.mask & (TIMES == 0.0)[:, None])
    found = condition(stacked([fit.family]), by_unit(first), 256, num_points=256, key=jax.random.key(0))
    ends = jax.vmap(jax.vmap(lambda xi: fit.family.respond(xi, jax.tree.map(lambda leaf: leaf[0], by_unit(first)))))(
        found.xi
    ).outputs[:, :, 0, -1, 0]
    assert np.corrcoef(ends.mean(1), data.outputs[:, -1, 0])[0, 1] > 0.9
    assert ends.std(1).mean() < 0.5 * data.outputs[:, -1, 0].std()


def test_what_inputs_add_begins_and_grows_as_what_units_add():
    """With a growth of one everything that tells units apart is nearly zero at the start, and double at the end."""
    sizes = Sizes(*(part[0] for part in model().sizes))
    features = [
        model(clock=0.0).features(
            sizes._replace(own_growth=growth), jnp.asarray(TIMES), jnp.ones((5, 1)), is_anchored=False
        )
        for growth in (jnp.asarray(0.0), jnp.asarray(20.0))
    ]
    num = NUM_COMMON + 2
    plain, growing = (np.concatenate([one.common[:, num:], one.own], axis=1) for one in features)
    np.testing.assert_allclose(growing[[0, -1]], plain[[0, -1]] * np.array([[1e-3], [2.0]]), rtol=1e-9)
    np.testing.assert_array_equal(features[0].common[:, :num], features[1].common[:, :num])


def test_a_factor_on_the_spread_of_units_is_one_on_all_that_is_their_own():
    more = model().spread_by(jnp.array([2.0]))
    plain, wide = (
        one.features(Sizes(*(part[0] for part in one.sizes)), jnp.asarray(TIMES), jnp.ones((5, 1)), is_anchored=False)
        for one in (model(), more)
    )
    np.testing.assert_allclose(wide.own, 2.0 * plain.own, rtol=1e-12)
    np.testing.assert_allclose(wide.common, plain.common, rtol=1e-12)
    np.testing.assert_allclose(jnp.exp(more.log_noise), 2.0 * jnp.exp(model().log_noise), rtol=1e-12)


# --- choices


def exponential(num=8, *, is_log=True):
    """Decay of units that differ by factors, with noise in proportion; or growth at levels, with noise of one size."""
    rng, times = np.random.default_rng(2), np.linspace(0.0, 6.0, 8)
    made = []
    for number in range(num):
        values = rng.lognormal(1.0, 0.6) * np.exp(-rng.uniform(0.5, 0.8) * times)
        noise = rng.standard_normal(8)
        level = 2.0 + 6.0 * times + rng.standard_normal()
        noisy = values * np.exp(0.05 * noise) if is_log else np.maximum(level + noise, 0.1)
        made.append({"times": times, "outputs": noisy, "unit": str(number)})
    return ln.Dataset.from_list(made, output_names=["conc"])


@pytest.mark.parametrize("is_log", [True, False])
def test_the_evidence_of_a_scale_is_that_of_the_noise(is_log):
    layer = {"model": {"clock": 0.0}}
    linear_scale, log_scale = (
        unit_choices._log_evidence(exponential(is_log=is_log), 0, layer, kind) for kind in ("linear", "log")
    )
    # Curves of units that fade or grow take up much of what would be noise of another size.
    assert log_scale - linear_scale > unit_choices.LEAST_EVIDENCE if is_log else log_scale < linear_scale


def test_a_scale_with_more_evidence_replaces_that_of_the_spread():
    layer = {"model": {"clock": 0.0}, "output_scale": ("positive",)}
    replaced, (choice,) = unit_choices.scale_layer(exponential(), layer)
    assert replaced == {"output_scale": ("log",)} and choice.what == "scale of conc"
    assert unit_choices.scale_layer(exponential(), {**layer, **replaced}) == ({}, [])


def test_units_with_few_readings_have_smooth_curves_or_a_network():
    with jax.enable_x64(False):
        assert own.plan(exponential(), {}).layer["model"]["units"] == "auto"


@pytest.mark.parametrize(
    "asked",
    [
        {"hierarchical": {"quantification_limit": [0.1]}},
        {"hierarchical": {"occasions": True}},
        {"method": "bottleneck"},
        {"model": {"num_latent": 2}},
    ],
)
def test_what_is_not_linear_and_normal_has_a_network(asked):
    layer = unit_choices.model_layer(exponential(), {**asked, "target": "hierarchical"})
    assert layer["units"] == "curve"


def test_a_smooth_curve_is_refused_where_it_cannot_be_fitted():
    asked = {"target": "hierarchical", "model": {"units": "smooth"}, "hierarchical": {"occasions": True}}
    with pytest.raises(ConfigError, match="closed form"):
        plan.plan_data(exponential(), asked)


def test_a_fit_of_smooth_curves_is_kept_in_a_file_and_given_readings_narrow_its_bands(tmp_path):
    data = exponential(9)
    small = {"model": {"units": "smooth"}, "data": {"folds": None}, "predict": {"num_samples": 64}}
    small |= {"hierarchical": {"num_draws": 4}}
    with jax.enable_x64(False):
        fit = ln.fit(data.select(slice(8)), target="hierarchical", options=small, progress=False)
        fit.save(tmp_path / "a.langenode")
        again, new = ln.load_fit(tmp_path / "a.langenode"), data.select([8])
        np.testing.assert_array_equal(again.predict(new)["outputs"], fit.predict(new)["outputs"])
        known = dataclasses.replace(new, mask=new.mask & (np.arange(8) < 4)[:, None])
        widths = [
            float(np.ptp(found["quantiles"].sel(level=[0.05, 0.95]).values, axis=0)[..., 4:, :].mean())
            for found in (fit.predict(new), fit.condition(known).predict(new))
        ]
    assert widths[1] < widths[0]
    assert fit.diagnostics["hierarchical"]["effects"] == ["level", "slope"]
