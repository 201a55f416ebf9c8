"""The facade: what is chosen from data, a user's own model, one file for a fit, and its way into ArviZ."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

import dataclasses
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langenode as ln
from langenode.config import ConfigError
from langenode.experiments import own
from langenode.fitting import build
from langenode.fitting.plan import plan_model
from langenode.inference.density import whiten
from langenode.storage.container import FitFileError

QUICK = {
    "data": {"folds": None},
    "training": {"num_updates": 30, "num_samples": 8, "block": 10},
    "mle": {"num_adam": 30, "num_lbfgs": 10},
    "model": {"kind": "state", "layers": [4]},
    "langevin": {"num_steps": 3, "layers": [4]},
    "predict": {"num_samples": 64},
}


def relaxations(num=12, *, seed=0, noise=0.02, same_start=False, num_times=10):
    """dy/dt = -(y - 1) with noisy readings at irregular times, or on one grid from one start."""
    rng = np.random.default_rng(seed)
    records = []
    for _ in range(num):
        irregular = np.concatenate([[0.0], np.sort(rng.uniform(0.05, 3, num_times - 1))])
        times = np.linspace(0, 3, num_times) if same_start else irregular
        start = 3.0 if same_start else rng.uniform(2, 4)
        values = 1 + (start - 1) * np.exp(-times) + noise * rng.standard_normal(num_times)
        records.append({"times": times, "outputs": values})
    return ln.Dataset.from_list(records, output_names=("y",))


# What is chosen


def test_few_readings_mean_units_and_replicates_with_more_of_them_a_population():
    replicates = relaxations(same_start=True, num_times=20)
    assert own.plan(relaxations(), {}).layer["target"] == "hierarchical"
    assert own.plan(relaxations(same_start=True), {}).layer["target"] == "hierarchical"
    assert own.plan(relaxations(), {"method": "laplace"}).layer["target"] == "posterior"
    assert own.plan(replicates, {}).layer["target"] == "population"
    assert own.plan(replicates, {"target": "posterior"}).layer["target"] == "posterior"


def test_equal_times_from_different_starts_are_no_replicates():
    times = np.linspace(0, 3, 20)
    starts = np.linspace(2, 4, 8)
    data = ln.Dataset.from_arrays(times, 1 + (starts[:, None] - 1) * np.exp(-times))
    plan = own.plan(data, {})
    assert plan.layer["data"]["separate"] and plan.layer["target"] == "posterior"
    assert any(choice.what == "replicates" for choice in plan.choices)
    told = own.plan(data, {"data": {"separate": False}})
    assert not told.layer["data"]["separate"] and told.layer["target"] == "population"


def test_the_best_kind_on_validation_data_is_kept_unless_a_plainer_one_is_nearly_as_good(monkeypatch):
    from langenode.fitting import build, points

    config = own.OwnConfig(model=own.OwnModel(num_known=1))
    kinds = [candidate.model.kind for candidate in own.candidates(config).values()]
    assert kinds == ["state", "hidden", "observation"]
    errors = {"state": 0.100, "hidden": 0.097, "observation": 0.090}
    monkeypatch.setattr(points, "fit_point", lambda config, *_, **__: config.model.kind)
    monkeypatch.setattr(points, "untrained", lambda experiment, config: None)
    monkeypatch.setattr(points, "rms_error", lambda model, data: errors[model])
    data = build.Prepared(relaxations(3), None, ln.Scaling.identity(relaxations(3)))
    chosen = points.choose_model(own.EXPERIMENT, config, data)
    assert chosen.config.model.kind == "observation" and [one["error"] for one in chosen.tried] == [0.100, 0.097, 0.090]


# A fit of the generic model


@pytest.fixture(scope="module")
def generic():
    data = relaxations()
    train, valid, test = data.split(0.6, 0.2, 0.2, seed=0)
    return ln.fit(train, validation=valid, seed=1, options=QUICK), test


def test_bands_come_as_xarray_in_the_data_s_own_units(generic):
    fit, test = generic
    bands = fit.predict(test)
    assert dict(bands.sizes) == {"sample": 64, "condition": 2, "time": 10, "out": 1, "level": 7, "weight": 7}
    # The start is a reading: samples begin there with the noise of a reading.
    begins = bands["outputs"][:, :, 0, 0].to_numpy() - test.outputs[:, 0, 0]
    noise = fit.noise_factor[0] * np.exp(bands["weights"][:, -1].to_numpy()) * fit.scaling.output_scale[0]
    standard = begins / noise[:, None]
    assert abs(standard.mean()) < 5 / np.sqrt(128) and abs(standard.std() - 1.0) < 5 / np.sqrt(2 * 128)
    inner, outer = bands["quantiles"].sel(level=[0.05, 0.95]), bands["observation_quantiles"].sel(level=[0.05, 0.95])
    assert float((outer[1] - outer[0]).mean()) > float((inner[1] - inner[0]).mean())
    np.testing.assert_allclose(bands["mean"], bands["outputs"].mean("sample"), rtol=1e-5)


def test_a_fit_is_one_file_and_predicts_the_same_without_data(generic, tmp_path):
    fit, test = generic
    fit.save(tmp_path / "law.langenode")
    assert [entry.name for entry in tmp_path.iterdir()] == ["law.langenode"]
    again = ln.load_fit(tmp_path / "law.langenode")
    for name in ("outputs", "observation_quantiles"):
        np.testing.assert_array_equal(again.predict(test)[name], fit.predict(test)[name])
    np.testing.assert_array_equal(again.flat_sample(5, seed=3), fit.flat_sample(5, seed=3))
    assert again.sample(5, seed=3).identical(fit.sample(5, seed=3))


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_warning_names_what_lies_far_outside_of_the_training_data(generic, tmp_path):
    fit, _ = generic
    fit.save(tmp_path / "law.langenode")
    inside = ln.Dataset.from_arrays(np.linspace(0, 3, 10), np.full((1, 10), 3.0), output_names=("y",))
    further = ln.Dataset.from_arrays(np.linspace(0, 9, 10), np.full((1, 10), 30.0), output_names=("y",))
    for one in (fit, ln.load_fit(tmp_path / "law.langenode")):
        one.predict(inside, num_samples=4)
        with pytest.warns(
            UserWarning, match=r"durations up to 9 \(training: .*starts of 'y' from 30 to 30 \(training: "
        ):
            one.predict(further, num_samples=4)


def test_other_columns_than_those_fitted_are_refused(generic):
    fit, test = generic
    other = ln.Dataset.from_arrays(test.times, test.outputs, output_names=("z",))
    with pytest.raises(ln.DataError, match="must have the outputs of the fit"):
        fit.predict(other)


def test_what_could_not_be_learned_from_is_refused_before_any_work():
    with pytest.raises(ln.DataError, match="at least 2 trajectories"):
        ln.fit(relaxations(1))
    with pytest.raises(ConfigError, match=r"did you mean training\.num_updates"):
        ln.fit(relaxations(), options={"training": {"num_update": 3}})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:Estimated shape parameter")  # of 40 draws
def test_arviz_has_draws_predictions_and_log_likelihoods(generic):
    import arviz as az

    fit, test = generic
    found = fit.to_arviz(test, num_samples=40)
    assert {"posterior", "posterior_predictive", "log_likelihood", "observed_data"} <= set(found.groups())
    num_cells = int(test.mask.sum()) - 2  # one start per trajectory is known
    assert found["log_likelihood"]["outputs"].shape == (1, 40, num_cells)
    # The likelihood takes the start of a trajectory as known.
    noise = fit.config.noise.model_copy(update={"in_start": False})
    known = dataclasses.replace(fit, config=fit.config.model_copy(update={"noise": noise}))
    bands = known.predict(test, num_samples=40)
    weights = bands["weights"].to_numpy()
    stored = np.concatenate([found["posterior"][n].to_numpy()[0].reshape(40, -1) for n in found["posterior"]], axis=1)
    np.testing.assert_array_equal(stored, weights)
    # The density of the first scored cell, by hand: the factor that calibrates bands is not in the likelihood.
    scale = np.exp(weights[:, -1]) * fit.scaling.output_scale[0]
    error = (test.outputs[0, 1, 0] - bands["outputs"].to_numpy()[:, 0, 1, 0]) / scale
    expected = -0.5 * error**2 - np.log(scale) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(found["log_likelihood"]["outputs"][0, :, 0], expected, rtol=1e-5)
    assert np.isfinite(az.loo(found).elpd_loo)


def test_arviz_log_likelihoods_are_those_of_the_model_as_fitted_whatever_calibrates_its_bands(generic):
    fit, test = generic
    known = fit.config.noise.model_copy(update={"in_start": False})
    fit = dataclasses.replace(fit, config=fit.config.model_copy(update={"noise": known}))
    wider = dataclasses.replace(fit, noise_factor=2.0 * fit.noise_factor)
    plain, wide = (one.to_arviz(test, num_samples=40) for one in (fit, wider))
    np.testing.assert_array_equal(wide["log_likelihood"]["outputs"], plain["log_likelihood"]["outputs"])
    # Bands keep the factor.
    model = fit.predict(test, num_samples=40)["outputs"].to_numpy()[:, :, 1:, 0].reshape(40, -1)
    noise = [one["posterior_predictive"]["outputs"].to_numpy()[0] - model for one in (plain, wide)]
    np.testing.assert_allclose(noise[1], 2.0 * noise[0], rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of what ArviZ does with pandas and matplotlib
def test_arviz_compares_methods_on_their_training_data(generic):
    import arviz as az
    import matplotlib.pyplot as plt

    fit, _ = generic
    assert fit.train is not None
    sizes = {"laplace": {"num": 64}, "noise": {"calibrate": False}}
    other = ln.fit(fit.train, method="laplace", seed=1, options={**QUICK, **sizes})
    found = {"langevin": fit.to_arviz(num_samples=64), "laplace": other.to_arviz(num_samples=64)}
    assert found["laplace"].posterior.attrs["method"] == "laplace"
    assert np.isfinite(found["laplace"].posterior.attrs["log_evidence"])
    table = az.compare(found)
    assert set(table.index) == set(found) and np.isfinite(table["elpd_loo"]).all()
    az.plot_ppc(found["laplace"], num_pp_samples=8)
    plt.close("all")
    # A draw's log-likelihoods sum up to what the fit's own likelihood says, in the data's units.
    density = whiten(other.problem, build.scaled(other.config, other.scaling, other.prepared(fit.train)), float)
    weights = other.flat_sample(64)
    own_values = [float(density.log_likelihood(other.problem.prior.to_standard(w))) for w in jnp.asarray(weights)]
    sums = found["laplace"].log_likelihood["outputs"].sum("outputs_dim_0").to_numpy()[0]
    num_cells = found["laplace"].log_likelihood["outputs"].sizes["outputs_dim_0"]
    expected = np.array(own_values) - num_cells * np.log(other.scaling.output_scale[0])
    np.testing.assert_allclose(sums, expected, rtol=1e-4, atol=1e-2)


# A user's own model


class KnownPlusNetwork(eqx.Module):
    """dy/dt = -k y + network(y): a known decay and an unknown source."""

    log_rate: jax.Array
    network: ln.MLP

    def __call__(self, hidden, inputs):
        del inputs
        return -jnp.exp(self.log_rate) * hidden + self.network(hidden)


def own_model():
    dynamics = KnownPlusNetwork(jnp.zeros(()), ln.MLP((1, 4, 1), key=jax.random.key(2)))
    return ln.NeuralODE(dynamics, num_hidden=1, log_noise=jnp.full(1, -2.0), solver=ln.Heun(2))


@pytest.fixture(scope="module")
def user_fit():
    data = ln.with_observed_start(relaxations())
    options = {key: value for key, value in QUICK.items() if key not in ("model", "data")}
    options["laplace"] = {"num": 16}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the draws of laplace are not to be trusted")
        return ln.fit(data, model=own_model(), stochastic=chosen_parts, method="laplace", options=options), data


def chosen_parts(model):
    return model.dynamics.network, model.log_noise


@pytest.mark.slow
def test_only_the_chosen_parts_of_a_user_s_model_vary(user_fit):
    fit, data = user_fit
    names = fit.problem.partition.names
    assert len(names) == 13 + 1 and not any("log_rate" in name for name in names)
    assert fit.config.stochastic == "function" and fit.config.scaling == "none"
    _, config = plan_model(own_model(), data, {}, chosen_parts)
    assert config.method == "guided" and config.target == fit.config.target  # 14 weights


@pytest.mark.slow
def test_a_user_s_model_is_given_again_when_its_file_is_read(user_fit, tmp_path):
    fit, data = user_fit
    fit.save(tmp_path / "law.langenode")
    with pytest.raises(FitFileError, match="model="):
        ln.load_fit(tmp_path / "law.langenode")
    again = ln.load_fit(tmp_path / "law.langenode", model=own_model())
    np.testing.assert_array_equal(again.predict(data)["outputs"], fit.predict(data)["outputs"])
    wrong = ln.NeuralODE(KnownPlusNetwork(jnp.zeros(()), ln.MLP((1, 5, 1), key=jax.random.key(2))), num_hidden=1)
    with pytest.raises(FitFileError, match="must match the model"):
        ln.load_fit(tmp_path / "law.langenode", model=wrong)


def test_inferred_noise_needs_a_place_in_the_model():
    model = ln.NeuralODE(KnownPlusNetwork(jnp.zeros(()), ln.MLP((1, 4, 1), key=jax.random.key(2))), num_hidden=1)
    data = ln.with_observed_start(relaxations())
    with pytest.raises(ConfigError, match="log_noise"):
        ln.fit(data, model=model, target="posterior", options={"noise": {"kind": "inferred"}})


def test_no_further_candidate_is_tried_where_replicates_could_not_show_it(monkeypatch):
    from langenode.fitting import build, points

    config = own.OwnConfig(model=own.OwnModel(num_known=1))
    rng = np.random.default_rng(0)
    noisy = ln.Dataset.from_arrays(np.arange(4.0), rng.normal(size=(16, 4, 1)), initial=np.zeros((16, 1)))
    common = points.replicates_mean(noisy)
    assert common.cases.num_trajectories == 1
    np.testing.assert_allclose(common.cases.outputs[0], noisy.outputs.mean(0), rtol=1e-12)
    expected = np.sqrt(np.mean(noisy.outputs.var(0, ddof=1) / 16))
    assert common.standard_error == pytest.approx(expected)
    monkeypatch.setattr(points, "fit_point", lambda config, *_, **__: config.model.kind)
    monkeypatch.setattr(points, "untrained", lambda experiment, config: None)
    for error, num in ((0.9 * expected, 1), (1.1 * expected, 3)):
        monkeypatch.setattr(points, "rms_error", lambda model, data, error=error: error)
        chosen = points.choose_model(own.EXPERIMENT, config, build.Prepared(noisy, None, ln.Scaling.identity(noisy)))
        assert len(chosen.tried) == num and chosen.name == "state"
