"""Which method is taken where none is named, and what takes the place of draws that are not to be trusted."""

# pyright: reportAttributeAccessIssue=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langenode as ln
from langenode.experiments import EXPERIMENTS
from langenode.fitting import solve
from langenode.fitting.choose import MOST_GUIDED, configure, num_stochastic
from langenode.fitting.facade import _user_experiment
from langenode.models import MLP, NeuralODE, OnConcatenation
from langenode.posteriors import Sampled, Trust
from test_methods import configured, fitted

CASES = [
    ("ou", {}, "langevin", "all"),
    ("ou", {"target": "posterior"}, "guided", "all"),
    ("ou", {"target": "posterior", "rest": "refit"}, "langevin", "all"),
    ("ou", {"target": "tempered"}, "langevin", "all"),
    ("schlogl", {}, "bottleneck", "all"),
    ("schlogl", {"target": "tempered"}, "langevin", "all"),
    ("schlogl", {"target": "posterior"}, "langevin", "last_layer"),
    ("schlogl", {"target": "posterior", "stochastic": "all"}, "smc", "all"),
    ("hyperelastic", {"target": "posterior"}, "guided", "all"),
    ("hyperelastic", {"target": "posterior", "stochastic": "last_layer"}, "langevin", "last_layer"),
    ("viscoelastic", {"target": "posterior"}, "guided", "structure"),
    ("own", {}, "langevin", "last_layer"),
]


@pytest.mark.parametrize(("experiment", "asked", "method", "stochastic"), CASES)
def test_the_rule(experiment, asked, method, stochastic):
    config = configure(experiment, [asked])
    assert (config.method, config.stochastic) == (method, stochastic)
    assert config.draws.fallback == ("smc" if method == "guided" else "none")


def test_a_method_that_is_named_is_kept_and_not_replaced():
    config = configure("ou", [{"target": "posterior", "method": "guided"}])
    assert config.draws.fallback == "none"
    assert configure("schlogl", [{"target": "posterior", "method": "guided"}]).method == "guided"


def test_the_rule_counts_stochastic_weights():
    sizes = {
        name: num_stochastic(EXPERIMENTS[name], configure(name, [{"method": "map"}])) for name in ("ou", "schlogl")
    }
    assert sizes["ou"] == 2 <= MOST_GUIDED < sizes["schlogl"] == 321


def test_a_users_model_is_judged_by_its_own_size():
    data = ln.Dataset.from_arrays(np.linspace(0, 1, 5), np.ones((4, 5, 1)), initial=np.ones((4, 1)))
    for layers, method in (((), "guided"), ((8, 8), "smc")):
        model = NeuralODE(OnConcatenation(MLP((1, *layers, 1), key=jax.random.key(0))), num_hidden=1)
        _, config = _user_experiment(model, data, {"target": "posterior", "stochastic": "all"}, None)
        assert config.method == method


def test_draws_that_are_not_trusted_are_replaced(monkeypatch):
    """And it is said: the record names both methods and why."""

    def make(trust):
        return lambda density, config, key: Sampled(
            jnp.zeros((3, density.dim), density.dtype), jnp.zeros(3, density.dtype), {"log_evidence": 1.0}, trust
        )

    monkeypatch.setattr(
        solve,
        "METHODS",
        {"guided": make(Trust(False, "one ancestor survives")), "smc": make(Trust(True, "islands agree"))},
    )
    config = configured("ou", "guided")
    assert config.draws.fallback == "none"
    _, solved, *_ = fitted("ou", "guided")
    assert solved.record["sampling"]["method"] == "guided" and not solved.record["sampling"]["is_trusted"]
    assert "not to be trusted" in solve.warnings(solved.record["sampling"])[0]
    _, solved, *_ = fitted("ou", "guided", fallback="smc")
    record = solved.record["sampling"]
    assert (record["method"], record["replaced"]) == ("smc", "guided") and record["is_trusted"]
    said = solve.warnings(record)
    assert len(said) == 1 and "one ancestor survives" in said[0] and "smc" in said[0]
