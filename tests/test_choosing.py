"""Which method is taken where none is named, and what takes the place of draws that are not to be trusted."""

# pyright: reportAttributeAccessIssue=false

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langenode as ln
from langenode.experiments import EXPERIMENTS
from langenode.fitting import methods, weights
from langenode.fitting.choose import MOST_GUIDED, configure, num_stochastic
from langenode.fitting.plan import plan_model
from langenode.fitting.progress import QUIET
from langenode.models import MLP, NeuralODE, OnConcatenation
from langenode.posteriors import Sampled, Trust
from langenode.scores.skill import Scores
from small_fits import configured, fitted

CASES = [
    ("ou", {}, "langevin", "all"),
    ("ou", {"target": "posterior"}, "guided", "all"),
    ("ou", {"target": "posterior", "rest": "refit"}, "langevin", "all"),
    ("ou", {"target": "tempered"}, "langevin", "all"),
    ("schlogl", {}, "bottleneck", "all"),
    ("schlogl", {"target": "tempered"}, "langevin", "all"),
    ("schlogl", {"target": "posterior"}, "langevin", "last_layer"),
    ("schlogl", {"target": "posterior", "stochastic": "all"}, "ensemble-hmc", "all"),
    ("hyperelastic", {"target": "posterior"}, "guided", "all"),
    ("hyperelastic", {"target": "posterior", "stochastic": "last_layer"}, "langevin", "last_layer"),
    ("viscoelastic", {"target": "posterior"}, "guided", "structure"),
    ("own", {}, "langevin", "last_layer"),
]


@pytest.mark.parametrize(("experiment", "asked", "method", "stochastic"), CASES)
def test_the_rule(experiment, asked, method, stochastic):
    config = configure(experiment, [asked])
    assert (config.method, config.stochastic) == (method, stochastic)
    assert config.guided.fallback == ("ensemble-hmc" if method == "guided" else "none")


def test_a_method_that_is_named_is_kept_and_not_replaced():
    config = configure("ou", [{"target": "posterior", "method": "guided"}])
    assert config.guided.fallback == "none"
    assert configure("schlogl", [{"target": "posterior", "method": "guided"}]).method == "guided"


def test_the_rule_counts_stochastic_weights():
    sizes = {
        name: num_stochastic(EXPERIMENTS[name], configure(name, [{"method": "map"}])) for name in ("ou", "schlogl")
    }
    assert sizes["ou"] == 2 <= MOST_GUIDED < sizes["schlogl"] == 321


def test_a_users_model_is_judged_by_its_own_size():
    data = ln.Dataset.from_arrays(np.linspace(0, 1, 5), np.ones((4, 5, 1)), initial=np.ones((4, 1)))
    for layers, method in (((), "guided"), ((8, 8), "ensemble-hmc")):
        model = NeuralODE(OnConcatenation(MLP((1, *layers, 1), key=jax.random.key(0))), num_hidden=1)
        _, config = plan_model(model, data, {"target": "posterior", "stochastic": "all"}, None)
        assert config.method == method


def test_draws_that_are_not_trusted_are_replaced(monkeypatch):
    """And it is said: the record names both methods and why."""

    def giving(name, trust):
        def draw(density, options, *, key, budget):
            zeros = jnp.zeros((3, density.dim), density.dtype)
            return Sampled(zeros, zeros[:, 0], {"log_evidence": 1.0}, trust)

        return dataclasses.replace(methods.find_drawn(name), draw=draw, has_steps=False)

    made = (giving("guided", Trust(False, "one ancestor survives")), giving("smc", Trust(True, "islands agree")))
    registered = methods.methods() | {method.name: method for method in made}
    monkeypatch.setattr(methods, "methods", lambda: registered)
    assert configured("ou", "guided").guided.fallback == "none"
    with pytest.warns(UserWarning, match="not to be trusted"):
        record = fitted("ou", "guided")[0].diagnostics
    assert record["method"] == "guided" and not record["is_trusted"]
    with pytest.warns(UserWarning, match="took their place") as told:
        record = fitted("ou", "guided", fallback="smc")[0].diagnostics
    assert (record["method"], record["replaced"]) == ("smc", "guided") and record["is_trusted"]
    said = [str(warning.message) for warning in told]
    assert len(said) == 1 and "one ancestor survives" in said[0] and "smc" in said[0]


def relaxing(num, seed):
    rng = np.random.default_rng(seed)
    times, starts = np.linspace(0.0, 1.0, 6), rng.uniform(-1.0, 1.0, num)
    outputs = starts[:, None] * np.exp(-2.0 * times) + 0.02 * rng.normal(size=(num, 6))
    return ln.Dataset.from_arrays(times, outputs[..., None], condition=np.arange(num))


def scores_of(crps):
    """Scores of trajectories with one reading each."""
    crps = np.asarray(crps, float)[:, None]
    return Scores(crps, np.ones_like(crps), np.ones_like(crps), np.ones_like(crps))


def test_all_weights_must_gain_a_hundredth_and_a_standard_error():
    plain = np.linspace(0.9, 1.1, 8)
    for factors, chosen in (
        (0.5, "all"),
        (0.98, "all"),  # of every trajectory: the ratio has no error
        (0.995, "last_layer"),
        (np.where(np.arange(8) < 4, 0.1, 1.7), "last_layer"),  # 10 % on average, and as often worse as better
    ):
        scores = {"last_layer": scores_of(plain), "all": scores_of(factors * plain)}
        assert weights.better(scores) == chosen
    single = {"last_layer": scores_of([1.0]), "all": scores_of([0.1])}
    assert weights.better(single) == "last_layer"  # one trajectory says nothing of others


def test_each_fold_has_the_weights_that_the_other_folds_call_for():
    """All weights are good in fold 0 alone, so the others' fits have them and its own has not."""
    asked = []

    def trial_of(crps):
        def trial(number, name):
            asked.append((number, name))
            return weights.Trial((number, name), scores_of(crps[name][number]))

        return trial

    plain = [[1.0, 1.1], [0.9, 1.0], [1.0, 1.0]]
    good = {"last_layer": plain, "all": [[0.1, 0.11], [0.89, 0.995], [0.99, 0.995]]}
    found = weights.choose_in_folds(3, trial_of(good), QUIET)
    assert [fit[1] for fit in found.fits] == ["last_layer", "all", "all"]
    better = {"last_layer": plain, "all": [[0.1, 0.11], [0.45, 0.5], [0.5, 0.52]]}
    found = weights.choose_in_folds(3, trial_of(better), QUIET)
    assert found.fits == [(0, "all"), (1, "all"), (2, "all")] and found.chosen == "all"
    assert [one["name"] for one in found.tried] == ["weights: last_layer", "weights: all"]
    asked.clear()
    worse = {"last_layer": plain, "all": [[1.0, 1.2], [0.1, 0.1], [0.1, 0.1]]}
    found = weights.choose_in_folds(3, trial_of(worse), QUIET)
    assert found.chosen == "last_layer" and [number for number, name in asked if name == "all"] == [0]


def choosing():
    small = {"mle": {"num_adam": 20, "num_lbfgs": 5}, "training": {"num_updates": 4, "block": 2, "num_samples": 8}}
    small |= {"model": {"layers": (4,), "kind": "state"}, "predict": {"num_samples": 16, "num_weights": 16}}
    sizes = {"num_members": 3, "num_leapfrog": 4, "num_warmup": 2, "most_transitions": 16}
    return {**small, "choose_weights": True, "ensemble-hmc": sizes}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*not to be trusted")  # so few draws and steps
def test_stochastic_weights_are_chosen_by_their_score_on_validation_data(monkeypatch):
    scores = iter(scores_of([crps] * 4) for crps in (1.0, 0.5, 1.0, 0.995))
    monkeypatch.setattr(weights, "held_out_scores", lambda *arguments: next(scores))
    train, valid = relaxing(8, 0), relaxing(4, 1)
    found = [ln.fit(train, validation=valid, target="posterior", seed=2, options=choosing()) for _ in range(2)]
    assert [(fit.config.stochastic, fit.config.method) for fit in found] == [
        ("all", "ensemble-hmc"),
        ("last_layer", "langevin"),
    ]
    assert found[0].problem.partition.dim > found[1].problem.partition.dim


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*not to be trusted")  # so few draws and steps
def test_stochastic_weights_are_chosen_by_their_score_on_what_folds_hold_out(monkeypatch):
    """Every fold is fitted with both, and the final fit has the better one; one that is not better ends the trial."""
    data, options = relaxing(6, 0), {**choosing(), "data": {"folds": 2}}
    for of_all, chosen, num in ((0.5, "all", 4), (1.1, "last_layer", 3)):
        crps = {"langevin": 1.0, "ensemble-hmc": of_all}
        called = []

        def held_out(config, problem, held_out, crps=crps, called=called):
            called.append(config.method)
            assert problem.partition.dim > 0 and held_out.mask.any()
            return scores_of([crps[config.method]] * 3)

        monkeypatch.setattr(weights, "held_out_scores", held_out)
        fit = ln.fit(data, target="posterior", seed=2, options=options)
        assert fit.config.stochastic == chosen and len(called) == num
        assert fit.diagnostics["cross_validation"]["folds"] == 2
