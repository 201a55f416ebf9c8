"""Units with few readings: the generic curve, when it is chosen, and how uncertain what units share is."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langenode as ln
from langenode.experiments import own, unit_choices
from langenode.fitting import build, cross, plan
from langenode.fitting.units import candidates, families, solving
from langenode.fitting.units.candidates import Judged, error_of, log_score_of
from langenode.inference.hierarchical.uncertainty import has_effect, with_drawn_spreads, with_typical_spreads
from langenode.models import latent_curve, smooth_curve

TIMES = np.array([0.0, 0.5, 1.0, 2.0, 4.0, 8.0])


def curve(clock=0.0, **changes):
    options = {"num_inputs": 1, "num_outputs": 2, "num_latent": 3, "layers": (4,), "activation": "tanh"}
    return latent_curve(clock=clock, key=jax.random.key(1), **(options | changes))


def units(num=8, times=TIMES, inputs=None, seed=0):
    """Readings of exponential decay with a rate of each unit's own."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(num):
        values = rng.uniform(1, 3) * np.exp(-rng.uniform(0.1, 0.5) * times) + 0.05 * rng.standard_normal(len(times))
        one = {"times": times, "outputs": values, "unit": str(number)}
        made.append(one if inputs is None else one | {"inputs": inputs(number, times)})
    return ln.Dataset.from_list(made)


# --- the model


def test_a_known_start_is_where_the_curve_begins():
    start = jnp.array([0.3, -0.7])
    outputs = curve()(jnp.linspace(0.0, 1.0, 5), jnp.ones((5, 1)), start)
    np.testing.assert_allclose(outputs[0], start, rtol=1e-6)


def test_the_clock_stretches_the_beginning_and_keeps_both_ends():
    model, stretched = curve(), curve(clock=10.0)
    inputs, time = jnp.ones((3, 1)), 0.3
    place = np.log1p(10.0 * time) / np.log1p(10.0)
    expected = model(jnp.array([0.0, place, 1.0]), inputs)
    np.testing.assert_allclose(stretched(jnp.array([0.0, time, 1.0]), inputs), expected, rtol=1e-5)


def test_latent_inputs_shift_the_curve():
    model = curve()
    other = jax.tree.map(lambda leaf: leaf, model)
    object.__setattr__(other, "unit", jnp.ones(3))
    times, inputs = jnp.linspace(0.0, 1.0, 4), jnp.ones((4, 1))
    assert float(jnp.max(jnp.abs(model(times, inputs) - other(times, inputs)))) > 1e-2


# --- when it is chosen


def test_few_readings_of_many_units_are_fitted_as_units_that_differ():
    planned = own.plan(units(), {})
    assert planned.layer["target"] == "hierarchical"
    assert planned.layer["model"]["units"] == "auto"
    (why,) = [choice.why for choice in planned.choices if choice.what == "target"]
    assert "8 units with 6 readings each" in why


def replicates(num=24, *, levels=(0.0,), gap=0.0, shortest=6):
    """Units that begin alike, of as many kinds as there are levels of an input; a gap makes two groups of them."""
    rng, made = np.random.default_rng(3), []
    for number in range(num):
        level = levels[number % len(levels)]
        rate = 0.3 + 0.02 * rng.standard_normal() + (gap if number % 3 == 0 else 0.0)
        outputs = np.exp(-rate * TIMES) + level * TIMES / 8.0 + 0.005 * rng.standard_normal(len(TIMES))
        num_times = shortest if number % 2 else len(TIMES)
        one = {"times": TIMES, "outputs": outputs, "inputs": np.full((len(TIMES), 1), level)}
        made.append({name: values[:num_times] for name, values in one.items()})
    return ln.Dataset.from_list(made)


@pytest.mark.parametrize(
    ("data", "target"),
    [
        (replicates(), "hierarchical"),
        (replicates(levels=(0.0, 1.0)), "hierarchical"),
        (replicates(levels=(0.0, 1.0, 2.0)), "population"),  # an effect that is added in proportion is not enough
        (replicates(shortest=4), "hierarchical"),  # two conditions, for their times alone
        (replicates(gap=0.6), "population"),  # two groups are not normal
    ],
)
def test_replicates_are_units_that_differ_where_these_can_say_how(data, target):
    assert own.plan(data, {}).layer["target"] == target


def test_trajectories_of_units_in_several_conditions_are_a_population():
    data = ln.Dataset.from_list(
        [
            {"times": TIMES, "outputs": np.exp(-0.1 * (1 + unit + level) * TIMES), "unit": str(unit)}
            | {"inputs": np.full((len(TIMES), 1), level)}
            for unit in range(10)
            for level in (0.0, 1.0)
        ]
    )
    assert data.has_crossed_units and own.plan(data, {}).layer["target"] == "population"


def driven(number, times):
    return np.sin(number + times)[:, None]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (units(3), "3 units are too few"),
        (units(times=np.linspace(0, 8, 30)), "30 readings per trajectory show its state"),
        (units(inputs=driven), "inputs vary in time"),
    ],
)
def test_other_data_are_fitted_by_one_model_for_all(data, why):
    planned = own.plan(data, {})
    assert planned.layer["target"] == "posterior"
    assert why in next(choice.why for choice in planned.choices if choice.what == "target")


def test_inputs_that_vary_in_time_need_rates():
    planned = own.plan(units(inputs=driven), {"target": "hierarchical"})
    assert planned.layer["model"]["units"] == "rates" and planned.layer["noise"] == {"in_start": False}
    assert any("rates of units are followed from it" in choice.why for choice in planned.choices)
    curves = own.plan(units(), {})
    assert curves.layer["noise"] == {"in_start": True}
    asked = own.plan(units(), {"target": "hierarchical", "model": {"units": "rates"}})
    assert asked.layer["noise"] == {"in_start": False}


def test_covariates_that_are_constant_do_not():
    data = units(inputs=lambda number, times: np.full((len(times), 1), float(number)))
    assert own.plan(data, {}).layer["model"]["units"] == "auto"


@pytest.mark.parametrize(("times", "clock"), [(np.linspace(0, 8, 9), 0.0), (TIMES, 30.0)])
def test_the_clock_follows_the_times_of_the_readings(times, clock):
    assert unit_choices.clock_of(units(times=times)) == clock


# --- what all units share


def family_of(data):
    experiment, config = plan.plan_data(data, {"model": {"num_latent": 1}})
    prepared = build.prepare(config, plan.as_fitted(data, config), None)
    with families.in_64_bits():
        return families.make_family(config, build.untrained(experiment, config), prepared.scaling)


def test_uncertain_are_last_layers_and_noise():
    family = family_of(units())
    chosen = solving.of_last_layers(family)
    network = family.model.network
    assert chosen.shape == has_effect(family).shape
    assert chosen.sum() == network.layers[-1].weight.size + network.layers[-1].bias.size + family.model.log_noise.size


def test_drawn_spreads_are_those_of_a_standard_deviation_of_few_numbers():
    """The mean of `n / chi^2` with n - 1 degrees of freedom is n / (n - 3)."""
    num, draws = 12, 4000
    found = with_drawn_spreads([family_of(units())] * draws, num, np.random.default_rng(3))
    scales = np.array([np.asarray(getattr(family.effects, "scale")) for family in found])  # noqa: B009
    squares = scales[:, 0] ** 2
    error = squares.std() / np.sqrt(draws)
    assert abs(squares.mean() - num / (num - 3)) < 5 * error
    assert np.all(scales[:, 1:] == 0.0)


def test_typical_spreads_are_quantiles_of_the_drawn_ones():
    family, num = family_of(units()), 12
    typical = with_typical_spreads(family, num, 8)
    squares = np.sort([float(np.asarray(getattr(one.effects, "scale"))[0]) ** 2 for one in typical])  # noqa: B009
    drawn = num / np.random.default_rng(0).chisquare(num - 1, 100_000)
    expected = np.quantile(drawn, (np.arange(8) + 0.5) / 8)
    np.testing.assert_allclose(squares, expected, rtol=0.02)


# --- whole fits


@pytest.mark.slow
@pytest.mark.parametrize("num_latent", [0, 1])
def test_a_fit_with_and_without_latent_inputs_is_scored_and_kept_in_a_file(num_latent, tmp_path):
    data = units(10, seed=4)
    small = {"hierarchical": {"num_laplace": 15, "num_draws": 2}, "model": {"num_latent": num_latent, "layers": [3]}}
    small |= {"data": {"folds": None}, "predict": {"num_samples": 32}}
    options = {"target": "hierarchical", "options": small, "progress": False}
    fit = ln.fit(data.select(slice(8)), validation=data.select(slice(7, 8)), **options)
    assert len(fit.diagnostics["hierarchical"]["effects"]) == num_latent
    found = fit.evaluate(data.select(slice(8, 10)))
    assert 0.0 < found["skill"]["ratio"] < 100.0 and found["new_units"]["num_units"] == 2
    fit.save(tmp_path / "a.langenode")
    again = ln.load_fit(tmp_path / "a.langenode").predict(data.select(slice(8, 10)))
    np.testing.assert_array_equal(again["outputs"], fit.predict(data.select(slice(8, 10)))["outputs"])


@pytest.mark.parametrize("score", [-1e6, -800.0, 1e6, np.nan, -np.inf])
def test_a_candidate_that_is_no_use_or_too_good_has_a_score_that_can_be_stored(score):
    """Held-out readings a thousand standard deviations away are no reason to end a fit."""
    found = log_score_of(error_of(score))
    assert abs(found) <= np.log(1e9) + 1e-12 and (found > 0) == (score > 0)


@pytest.mark.parametrize(("units_of", "expected"), [("curve", "two"), ("auto", "none")])
def test_the_number_of_latent_inputs_is_that_of_most_folds(units_of, expected):
    """One unit unlike all others, in the first fold, must not decide for all; smooth curves stay the safe choice."""
    scores = {"none": [-0.6, -1.4, -1.9, -0.7, -0.8], "two": [-9.0, -0.7, -1.3, -0.6, -0.5]}
    config = plan.plan_data(units(), {})[1]
    config = config.model_copy(update={"model": config.model.model_copy(update={"units": units_of})})
    folds = [cross.FoldPoints({}, {name: np.exp(-scores[name][k]) for name in scores}, 20) for k in range(5)]
    chosen, tried = cross.choose_kind(folds, config)
    assert config.target == "hierarchical" and chosen == expected
    assert [one["error"] for one in tried] == pytest.approx([np.exp(0.8), np.exp(0.7)])


def test_a_network_replaces_smooth_curves_where_most_folds_and_the_mean_are_for_it():
    scores = {"smooth": [-0.6, -1.4, -1.9, -0.7, -0.8], "one": [-0.5, -1.1, -1.3, -0.6, -0.5]}
    config = plan.plan_data(units(), {})[1]
    config = config.model_copy(update={"model": config.model.model_copy(update={"units": "auto"})})
    folds = [cross.FoldPoints({}, {name: np.exp(-scores[name][k]) for name in scores}, 20) for k in range(5)]
    assert cross.choose_kind(folds, config)[0] == "one"


# --- networks in place of smooth curves


def judged(*scores):
    """Candidates with a log score of every unit, of four readings each."""
    found = [solving.LogScore(np.asarray(score, float), np.full(len(score), 4)) for score in scores]
    names = [f"candidate {number}" for number in range(len(scores))]
    errors = {name: error_of(one.mean) for name, one in zip(names, found, strict=True)}
    return Judged({}, errors, {}, dict(zip(names, found, strict=True)))


def test_a_gain_counts_beyond_its_standard_error_over_units():
    plain = np.array([1.0, 2.0, 0.5, 1.5, 1.0])
    assert judged(plain, plain + 0.4).best == "candidate 1"  # 0.1 per reading, of every unit
    assert judged(plain, plain + 0.1).best == "candidate 0"  # 0.025 per reading
    assert judged(plain, plain + np.array([4.0, -1.0, 0.2, -0.6, -0.3])).best == "candidate 0"  # one unit's gain


def test_the_standard_error_of_a_gain_is_that_of_a_mean_where_units_have_equally_many_readings():
    gains = np.random.default_rng(0).standard_normal(12)
    plain, better = (solving.LogScore(values, np.full(12, 3)) for values in (np.zeros(12), gains))
    assert better.error_of_gain(plain) == pytest.approx(gains.std(ddof=1) / np.sqrt(12) / 3)


def test_a_network_whose_means_are_worse_gains_nothing(monkeypatch):
    data = replicates(8)
    config = plan.plan_data(data, {"target": "hierarchical"})[1]
    smooth = smooth_curve(num_inputs=0, num_outputs=1, clock=0.0)
    families = {name: (config, SimpleNamespace(model=smooth)) for name in ("smooth", "good", "poor")}
    means = {"smooth": 1.0, "good": 0.9, "poor": 1.1}
    by_family = {id(family): means[name] for name, (_, family) in families.items()}
    monkeypatch.setattr(candidates, "error_from_start", lambda _, family, *__: by_family[id(family)])
    scores = {"smooth": 1.0, "good": 0.5, "poor": 0.4}
    found = candidates._without_poor_means(families, scores, data, ln.Scaling.identity(data))
    assert found == {"smooth": 1.0, "good": 0.5, "poor": 1.0}
