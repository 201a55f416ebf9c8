"""Equations whose parameters differ between units: integrators, doses, transforms, and the weights of new units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import problems
from langenode.data import Dataset, refine
from langenode.fitting.units.predicting import with_doses_at_once
from langenode.models import Effects, Fixed, LogitNormal, LogNormal, Normal, RungeKutta, UnitModel
from langenode.posteriors import NewUnits, Reference, gaussian

# --- the integrator


def decay_by_input(hidden, inputs):
    """`y' = -x y`, whose solution for x = t is `exp(-t^2 / 2)`."""
    return -inputs[0] * hidden


def error_of(num_intervals, substeps=1):
    times = jnp.linspace(0.0, 2.0, num_intervals + 1)
    found = RungeKutta(substeps)(decay_by_input, jnp.ones(1), times, times[:, None])
    return float(jnp.max(jnp.abs(found[:, 0] - jnp.exp(-0.5 * times**2))))


@pytest.mark.parametrize("substeps", [1, 2])
def test_runge_kutta_is_of_fourth_order_with_inputs_that_change_within_a_step(substeps):
    sizes = np.array([8, 16, 32])
    errors = [error_of(int(size), substeps) for size in sizes]
    assert abs(problems.fitted_order(1.0 / sizes, errors) - 4.0) < 0.4


def test_substeps_are_steps_of_a_finer_grid():
    fine = jnp.linspace(0.0, 2.0, 13)
    by_grid = RungeKutta()(decay_by_input, jnp.ones(1), fine, fine[:, None])[::3]
    by_substeps = RungeKutta(3)(decay_by_input, jnp.ones(1), fine[::3], fine[::3, None])
    np.testing.assert_allclose(by_substeps, by_grid, rtol=1e-12)


def test_substeps_must_be_at_least_one():
    with pytest.raises(ValueError, match="at least 1; found 0; use 1"):
        RungeKutta(0)


# --- doses


def central(state, inputs, p):
    return -p.k * state


def model_with(**given):
    return UnitModel(
        Effects(k=LogNormal(0.4, 0.3)), rate=central, start=lambda x, p: jnp.zeros(1), solver=RungeKutta(32), **given
    )


def after_doses(times, doses, k=0.4):
    """Amounts after doses (time, amount) at once, those at the same time included."""
    return sum(np.where(times >= at, amount * np.exp(-k * (times - at)), 0.0) for at, amount in doses)


DOSES = ((0.0, 100.0), (5.0, 60.0), (9.0, 30.0))


@pytest.mark.parametrize("times", [(0.0, 2.0, 5.0, 6.5, 9.0, 12.0), (0.0, 2.0, 4.999, 5.0, 6.5, 8.999, 9.0, 12.0)])
def test_a_dose_enters_at_the_time_from_which_its_total_is_given(times):
    """Whether or not the table has a row just before."""
    times = np.asarray(times)
    totals = sum(amount * (times >= at) for at, amount in DOSES)
    found = model_with(doses={0: 0})(jnp.asarray(times), jnp.asarray(totals)[:, None])
    np.testing.assert_allclose(found[:, 0], after_doses(times, DOSES), rtol=1e-6)


def test_an_infusion_is_added_to_the_rate():
    """`A = R/k (1 - exp(-k t))` while it runs; inputs are linear in time, so its end has a row just before it."""
    times = np.array([0.0, 1.0, 3.0 - 1e-9, 3.0, 5.0, 8.0])
    rate = np.where(times < 3.0, 20.0, 0.0)
    found = model_with(infusions={0: 0})(jnp.asarray(times), jnp.asarray(rate)[:, None])[:, 0]
    ended = np.minimum(times, 3.0)
    exact = 20.0 / 0.4 * (1.0 - np.exp(-0.4 * ended)) * np.exp(-0.4 * (times - ended))
    np.testing.assert_allclose(found, exact, rtol=1e-6)


def test_outputs_are_observed_from_states_and_inputs():
    model = model_with(doses={0: 0}, observe=lambda state, x, p: state / p.k + x[:1])
    times, totals = np.array([0.0, 1.0]), np.full((2, 1), 10.0)
    expected = after_doses(times, ((0.0, 10.0),)) / 0.4 + 10.0
    np.testing.assert_allclose(model(jnp.asarray(times), jnp.asarray(totals))[:, 0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "a curve or a rate; found both or neither"),
        ({"curve": lambda t, x, p: t, "rate": central}, "a curve or a rate; found both or neither"),
        ({"rate": central}, "a rate needs a start"),
        ({"curve": lambda t, x, p: t, "doses": {0: 0}}, "doses go into states"),
    ],
)
def test_a_model_that_is_not_complete_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        UnitModel(Effects(k=Normal(1.0, 0.1)), **given)


# --- effects


def test_effects_come_back_by_name_in_their_own_units():
    effects = Effects(
        a=Normal(-2.0, 1.0), n=Fixed(3.0, is_positive=True), b=LogNormal(5.0, 0.3), f=LogitNormal(0.2, 1.0)
    )
    np.testing.assert_allclose(effects(), [-2.0, 3.0, 5.0, 0.2], rtol=1e-12)
    assert effects()._fields == ("a", "n", "b", "f")
    np.testing.assert_allclose(effects.values, [-2.0, np.log(5.0), np.log(0.25)], rtol=1e-12)
    np.testing.assert_allclose(effects.shared, [np.log(3.0)], rtol=1e-12)


@pytest.mark.parametrize(
    ("effect", "value", "parameter"),
    [
        (Normal(1.0, 1.0), -3.0, -3.0),
        (LogNormal(1.0, 1.0), -3.0, np.exp(-3.0)),
        (LogitNormal(2.0, 1.0, low=1.0, high=5.0), -3.0, 1.0 + 4.0 / (1.0 + np.exp(3.0))),
    ],
)
def test_effects_are_transformed_from_the_scale_on_which_they_are_normal(effect, value, parameter):
    np.testing.assert_allclose(effect.to_parameter(jnp.asarray(value)), parameter, rtol=1e-12)
    np.testing.assert_allclose(effect.to_parameter(jnp.asarray(effect.to_value())), effect.typical, rtol=1e-12)


def test_numbers_of_numpy_become_plain_ones():
    """Equinox warns of arrays among the static parts of a model, and NumPy's scalars are such."""
    effect = LogNormal(np.float64(2.0), np.float64(0.5), occasion=np.float64(0.1))
    assert all(type(part) in (float, str) for part in effect)
    Effects(a=effect)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LogNormal(-1.0, 0.3), "must be positive; got -1.0; give another"),
        (lambda: Normal(np.nan, 0.3), "must be finite; got nan"),
        (lambda: LogitNormal(2.0, 0.3), "must be between 0 and 1; got 2.0"),
        (lambda: Normal(1.0, 0.0), "spread of an effect must be a positive number; got 0.0"),
        (lambda: Normal(1.0, 1.0, occasion=-1.0), "occasion of an effect must be a positive number; got -1.0"),
        (lambda: Fixed(0.0, is_positive=True), "must be positive; got 0.0"),
        (lambda: Effects(), "must be distributions; got none"),
    ],
)
def test_effects_that_cannot_be_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- weights of new units


OWN, SHARED = (1, 3), np.array([[0.0, 1.0, 2.0], [10.0, 11.0, 12.0], [20.0, 21.0, 22.0]])


def new_units(spread, occasions=None):
    """Three members whose own weights are about 100, 200 and 300."""
    references = [Reference(jnp.full(2, mean), jnp.full(2, spread)) for mean in (100.0, 200.0, 300.0)]
    members = [gaussian(reference, "diagonal", key=jax.random.key(0)) for reference in references]
    effects = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
    scale = None if occasions is None else jnp.full((3, 2), np.log(occasions))
    return NewUnits(effects, jnp.asarray(SHARED), scale, OWN)


def test_weights_of_a_new_unit_are_those_of_one_member_in_their_places():
    posterior = new_units(1e-3)
    samples, estimate = problems.quick_jit(
        lambda p: (p.sample(200, key=jax.random.key(0)), p.of_estimate(5, key=jax.random.key(1)))
    )(posterior)
    samples = np.asarray(samples)
    assert samples.shape == (200, posterior.dim) == (200, 5)
    members = (samples[:, 0] // 10).astype(int)
    assert set(members) == {1, 2}  # member 0 is the estimate; draws of it stand for its uncertainty
    np.testing.assert_array_equal(samples[:, [0, 2, 4]], SHARED[members])
    np.testing.assert_allclose(samples[:, OWN], 100.0 * (members[:, None] + 1.0) * np.ones(2), atol=0.01)
    np.testing.assert_array_equal(np.asarray(estimate)[:, [0, 2, 4]], np.broadcast_to(SHARED[0], (5, 3)))


def test_own_weights_of_new_units_spread_by_unit_and_occasion():
    draw = problems.quick_jit(lambda p: p.of_estimate(4000, key=jax.random.key(2)))
    samples = np.asarray(draw(new_units(0.6, occasions=0.8)))[:, OWN] - 100.0
    problems.assert_mean(samples, 0.0)
    problems.assert_mean(samples**2, 0.6**2 + 0.8**2)
    problems.assert_mean(samples[:, 0] * samples[:, 1], 0.0)


def test_doses_are_given_at_once_also_between_distant_rows():
    """One compartment, k = 1: 100 at time 0, and a total of 200 from time 4 on; refined, the dose must not spread."""
    data = Dataset.from_list(
        [{"times": [0.0, 2.0, 4.0, 5.0], "outputs": np.zeros(4), "inputs": [[100.0], [100.0], [200.0], [200.0]]}],
        input_names=["total"],
    )
    model = UnitModel(
        Effects(k=LogNormal(1.0, 0.3)),
        rate=lambda state, inputs, p: -p.k * state,
        start=lambda inputs, p: jnp.zeros(1),
        doses={0: 0},
    )
    fine = refine(with_doses_at_once(data, model), 0.05).data
    found = model(jnp.asarray(fine.times[0]), jnp.asarray(fine.inputs[0]))[:, 0]
    wanted = {2.0: 100 * np.exp(-2.0), 4.0: 100 * np.exp(-4.0) + 100.0, 5.0: 100 * np.exp(-5.0) + 100 * np.exp(-1.0)}
    for time, amount in wanted.items():
        np.testing.assert_allclose(found[np.flatnonzero(fine.times[0] == time)[-1]], amount, rtol=1e-5)
    assert int(fine.mask.sum()) == 4
