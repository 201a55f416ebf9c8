"""The paper's method as printed, and its switches."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import problems
from langenode.config import ConfigError
from langenode.data import DataError, Dataset
from langenode.experiments import EXPERIMENTS
from langenode.fitting import build
from langenode.fitting.choose import configure
from langenode.fitting.methods.langevin import Options as Annealed
from langenode.fitting.methods.langevin import annealed_diffusion
from langenode.inference.algorithm1 import generate
from langenode.inference.likelihood import given_noise, mode_membership, replicate_spread, split_membership
from langenode.inference.memory import estimate_correlation_time
from langenode.inference.objectives import LikelihoodObjective, objective
from langenode.inference.partition import Partition
from langenode.inference.point_fit import fit_mle
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem
from langenode.inference.targets import Tempered
from langenode.models import MLP, internal_variable_law, num_parameters
from langenode.models.mechanics import joint_invariants
from langenode.posteriors import Departures, langevin, paper_langevin
from langenode.posteriors.controls import AutonomousDrift
from langenode.scores import verdict
from langenode.scores.motion import motion

KEY = jax.random.key(0)

# --- the facts, section by section


def test_section_3_the_sampler_and_its_training():
    """Every printed choice of the method that all demonstrations share."""
    for name in ("ou", "schlogl", "hyperelastic", "viscoelastic"):
        config = configure(name, [{"method": "paper"}])
        options, training = config.options, config.training
        assert config.target == "tempered"
        assert (options.drift, options.contraction, options.start, options.step) == ("autonomous", 0.0, "mle", "euler")
        assert options.start_variance == 1e-5 and options.diffusion == 1.0 and options.noise == "fixed"
        assert options.kl_rate == "half" and options.end_term == "dropped" and options.annealing == "variance"
        assert options.reference == "prior" and config.prior.mean == "mle" and config.prior.scale == 1.0
        assert config.mle.weighting == "replicates" and config.noise.kind == "replicates"
        # Adam, of which nothing further is printed
        assert training.clip is None and training.average == 0.0 and training.final_rate == 1.0
        if name != "hyperelastic":  # which has no hidden state
            assert config.model.input_rule == "paper"


def test_section_4_1_ou():
    config = configure("ou", [{"method": "paper"}])
    assert config.data.num_trajectories == 1024 and config.data.num_times == 100
    assert config.options.num_steps == 10_000 and config.options.layers is None and config.model.layers == ()
    assert config.options.diffusion_start is None


def test_section_4_1_schlogl():
    config = configure("schlogl", [{"method": "paper"}])
    assert config.options.layers == (101, 101) and config.model.layers == (16, 16)
    assert config.options.diffusion_start == 2.0 and config.noise.num_modes == 2
    assert num_parameters(build.untrained(EXPERIMENTS["schlogl"], config)) == 321


def test_section_4_2_1_hyperelastic():
    config = configure("hyperelastic", [{"method": "paper"}])
    assert 5_000 <= config.options.num_steps <= 20_000 and config.options.pseudo_time_step == 1e-3
    assert config.training.num_samples == 50 and config.model.activation == "softplus"
    assert num_parameters(build.untrained(EXPERIMENTS["hyperelastic"], config)) == 28
    ways = {(c.stochastic, c.rest) for c in EXPERIMENTS["hyperelastic"].companions(config).values()}
    assert ways | {(config.stochastic, config.rest)} == {
        ("all", "fixed"),
        ("last_layer", "fixed"),
        ("last_layer", "refit"),
    }


def test_section_4_2_2_viscoelastic():
    config = configure("viscoelastic", [{"method": "paper"}])
    assert 5_000 <= config.options.num_steps <= 20_000 and config.training.num_samples == 50
    assert (config.stochastic, config.rest) == ("last_layer", "refit")
    law = build.untrained(EXPERIMENTS["viscoelastic"], config)
    assert num_parameters(law) == 1207 and num_parameters(law.flow) == 646
    assert config.data.num_microstructures == 32 and config.data.num_walks + config.data.num_tensions == 100
    text = {"rate_potential": False, "potential_layers": (9, 9)}  # 9 inputs and width 9, as the text has it
    other = configure("viscoelastic", [{"method": "paper", "model": text}])
    assert num_parameters(build.untrained(EXPERIMENTS["viscoelastic"], other).observation) == 190


# --- switches


def chain(**switches):
    reference = problems.reference_of(2)
    options = {"num_steps": 6, "pseudo_time_step": 0.1, "layers": (3,), "key": KEY}
    return paper_langevin(reference, reference.mean + 0.5, departures=Departures(**switches), **options)


def test_with_every_switch_turned_the_chain_is_ours():
    reference = problems.reference_of(2)
    turned = Departures("quarter", "time", "learned", "exact", "full", "graded", "kept", "time")
    theirs = paper_langevin(
        reference, reference.mean, num_steps=6, pseudo_time_step=0.25, layers=(3,), departures=turned, key=KEY
    )
    ours = langevin(reference, num_steps=6, horizon=1.5, layers=(3,), key=KEY)
    assert eqx.tree_equal(theirs, ours)


def test_the_drift_as_printed_is_the_network_alone():
    sampler, z = chain(), jnp.array([0.3, -0.8])
    assert isinstance(sampler.control, AutonomousDrift)
    drift = sampler.control(z, jnp.asarray(0)) - z  # the reference's drift is -z
    np.testing.assert_allclose(drift, sampler.control.network(z), rtol=1e-12)


class Line(eqx.Module):
    """Outputs `slope t + level`."""

    slope: jax.Array
    level: jax.Array

    def __call__(self, times, inputs, initial=None, *, key=None):
        return (self.slope * times + self.level)[:, None]


def line_data(num, noise, seed=0):
    """Lines with one slope; the noise may differ from time to time."""
    rng, times = np.random.default_rng(seed), np.linspace(0.0, 1.0, 4)
    outputs = 2.0 * times - 1.0 + noise * rng.normal(size=(num, 4))
    return Dataset.from_arrays(times, outputs[..., None])


@pytest.mark.parametrize(("rate", "factor"), [("half", 2.0), ("quarter", 1.0)])
@pytest.mark.parametrize("end_term", ["dropped", "kept"])
def test_the_printed_rate_doubles_the_kl_and_the_end_term_is_left_out(rate, factor, end_term):
    data, model = line_data(3, 0.1), Line(jnp.asarray(1.5), jnp.asarray(-0.5))
    partition = Partition.of(model, "all")
    sampler = problems.perturbed(chain(kl_rate=rate, end_term=end_term), 0.3)
    prior = GaussianPrior(jnp.zeros(2), jnp.full(2, 2.0))
    problem = Problem(model, partition, prior, given_noise(0.1, data), Tempered(4.0), sampler)
    seen = objective(problem, data, float)
    assert isinstance(seen, LikelihoodObjective)
    keys = jax.random.split(KEY, 5)

    @jax.jit
    def terms_and_draws(problem):
        samples = generate(problem, seen, keys)
        log_prior = jax.vmap(prior.log_density)(samples.draw.weights)
        return seen.loss(problem, samples), samples.draw, seen.log_likelihood(problem, samples).sum(1), log_prior

    terms, draws, log_likelihood, log_prior = terms_and_draws(problem)
    expected = -np.mean(log_likelihood) / 4.0 + factor * np.mean(draws.kl)
    if end_term == "kept":
        expected -= np.mean(log_prior - draws.log_reference)
    np.testing.assert_allclose(terms.loss, expected, rtol=1e-10)
    np.testing.assert_allclose(terms.kl, np.mean(draws.kl), rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"reference": "local"}, "needs a start that is learned"),
        ({"drift": "time", "contraction": 1.0}, "belongs to an autonomous drift"),
    ],
)
def test_switches_that_contradict_each_other_are_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        configure("ou", [{"method": "paper", "paper": options}])


# --- the point fit by the likelihood


def test_errors_of_a_point_fit_count_by_the_spread_of_replicates():
    """The maximum of a likelihood with a noise per time is weighted least squares."""
    noise = np.array([0.01, 0.5, 0.02, 0.3])
    data = line_data(6, noise)
    sigma = replicate_spread(data)
    np.testing.assert_allclose(sigma[0, :, 0], data.outputs[..., 0].std(0, ddof=1), rtol=1e-12)
    start = Line(jnp.asarray(0.0), jnp.asarray(0.0))
    found = fit_mle(start, data, num_adam=0, num_lbfgs=60, sigma=sigma).model
    design = np.stack([np.asarray(data.times[0]), np.ones(4)], axis=1) / sigma[0]
    exact = np.linalg.lstsq(design, data.outputs[..., 0].mean(0) / sigma[0, :, 0], rcond=None)[0]
    np.testing.assert_allclose([found.slope, found.level], exact, rtol=1e-6)
    plain = fit_mle(start, data, num_adam=0, num_lbfgs=60).model
    assert abs(float(plain.slope) - exact[0]) > 1e-3


def test_the_spread_of_a_reading_is_that_of_its_own_mode():
    rng, times = np.random.default_rng(0), np.arange(3.0)
    low, high = rng.normal(0.0, 0.1, (20, 3)), rng.normal(9.0, 2.0, (30, 3))
    data = Dataset.from_arrays(times, np.concatenate([low, high])[..., None])
    modes = mode_membership(data, 2, seed=0)
    np.testing.assert_array_equal(modes, split_membership(data, 4.0))
    sigma = replicate_spread(data, modes)
    np.testing.assert_allclose(sigma[0, :, 0], low.std(0, ddof=1), rtol=1e-12)
    np.testing.assert_allclose(sigma[-1, :, 0], high.std(0, ddof=1), rtol=1e-12)


def test_a_split_needs_trajectories_on_both_sides():
    data = Dataset.from_arrays(np.arange(3.0), np.arange(6.0).reshape(2, 3, 1))
    with pytest.raises(DataError, match="all end below it"):
        split_membership(data, 9.0)


# --- what the text allows


def test_annealing_may_have_several_stages():
    schedule = annealed_diffusion(Annealed(diffusion_start=(4.0, 2.0)), 80)
    np.testing.assert_allclose([float(schedule(n)) for n in (0, 10, 20, 30, 40, 79)], [4.0, 3.0, 2.0, 1.5, 1.0, 1.0])
    one = annealed_diffusion(Annealed(diffusion_start=2.0), 80)
    np.testing.assert_allclose([float(one(n)) for n in (0, 20, 40, 60)], [2.0, 1.5, 1.0, 1.0])


def test_the_memory_of_noise_is_estimated_from_residuals():
    """200 series of an Ornstein-Uhlenbeck process at irregular times, some cells missing; its error by repetition."""
    decay, found = 0.7, []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        times = np.cumsum(rng.uniform(0.1, 0.6, (20, 15)), axis=1)
        series = np.empty(times.shape)
        series[:, 0] = rng.normal(size=20)
        for k in range(1, 15):
            rho = np.exp(-(times[:, k] - times[:, k - 1]) / decay)
            series[:, k] = rho * series[:, k - 1] + np.sqrt(1.0 - rho**2) * rng.normal(size=20)
        mask = rng.random(times.shape) > 0.1
        found.append(estimate_correlation_time(3.0 * series[..., None], mask[..., None], times))
    problems.assert_mean(np.log(found), np.log(decay))


def test_the_last_few_layers_can_be_named():
    network = MLP((2, 5, 4, 3, 1), key=KEY)
    sizes = [Partition.of(network, where).dim for where in ("last_layer", "last_two_layers", "last_three_layers")]
    assert sizes == [4, 4 + 15, 4 + 15 + 24]


# --- inputs of the paper's law


def test_the_law_takes_its_strain_as_printed_and_its_steps_can_be_divided():
    options = {"num_hidden": 2, "layers": (4,), "rate_potential": False, "strain_scale": 0.02, "rate_scale": 0.1}
    law = internal_variable_law(**options, input_rule="paper", key=KEY)
    ours = internal_variable_law(**options, key=KEY)
    before, after = (jnp.asarray(problems.random_strain(seed, 0.03)) for seed in (0, 1))
    hidden, dt = jnp.array([0.2, -0.1]), jnp.asarray(0.3)
    # The same step with the strain at its end throughout: by our rule from that strain, with the rate of the interval.
    rate = (after - before) / dt / 0.1

    def slope(h):
        return law.flow(jnp.concatenate([joint_invariants(after / 0.02, rate), h]))

    first = slope(hidden)
    expected = hidden + 0.5 * dt * (first + slope(hidden + dt * first))
    np.testing.assert_allclose(law.advance(hidden, before, after, dt), expected, rtol=1e-12)
    divided = internal_variable_law(**options, substeps=2, key=KEY)
    middle = 0.5 * (before + after)
    by_hand = ours.advance(ours.advance(hidden, before, middle, 0.5 * dt), middle, after, 0.5 * dt)
    np.testing.assert_allclose(divided.advance(hidden, before, after, dt), by_hand, rtol=1e-12)


@pytest.mark.parametrize(
    ("experiment", "model", "says"),
    [
        ("viscoelastic", {"solver": "stiff"}, "advances by steps of its own"),
        ("viscoelastic", {"substeps": 8}, "exponential"),
        ("hyperelastic", {"input_rule": "paper"}, "nothing is integrated"),
    ],
)
def test_options_of_integration_without_effect_are_refused(experiment, model, says):
    with pytest.raises(ConfigError, match=says):
        configure(experiment, [{"model": model}])


# --- motion


def test_a_sampler_that_training_leaves_alone_has_not_moved():
    draws = np.random.default_rng(0).normal(size=(200, 3))
    assert not motion(draws, 1.01 * draws)["has_moved"]
    assert motion(draws, 1.3 * draws)["has_moved"] and motion(draws, draws + 0.2)["has_moved"]
    turned = draws @ np.array([[1.0, 0.3, 0.0], [0.0, 0.95, 0.0], [0.0, 0.0, 1.0]])
    found = motion(draws, turned)
    assert found["has_moved"] and found["correlation_after"] > found["correlation_before"]


def test_rest_is_never_said_of_a_sampler_that_has_not_moved():
    draws = np.random.default_rng(0).normal(size=(50, 2))
    counts = {"updates": 100, "asked": 100, "skipped": 0, "late_change": 0.0}
    still, moved, near = (
        verdict.training_check({"training": {**counts, "motion": {**motion(draws, factor * draws), "begins_at": kind}}})
        for factor, kind in ((1.0, "prior"), (2.0, "prior"), (1.0, "local"))
    )
    assert still is not None and moved is not None and moved.says == "Training has converged."
    assert near is not None and "Gaussian approximation that it began with" in near.says
    assert "where it was before training" in still.says and "converged" not in still.says
