"""Rivals of the benchmark find the exact posterior of a linear model, so that what they lose is lost by them."""

import jax
import numpy as np
import pytest
from posterior_cases import make_case
from posteriors import method_of

from langenode.scores.chains import effective_size

CHAINS = {
    "mclmc:num_chains=8,num_tuning=4000,num_steps=8000,thinning=8": 8,
    "mile:num_chains=8,num_adam=300,num_tuning=4000,num_steps=8000,thinning=8,energy_var=0.0005": 8,
    "blackjax_nuts:num_warmup=300": 4,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of the library
@pytest.mark.parametrize("name", CHAINS)
def test_a_rival_finds_a_linear_posterior(name):
    case = make_case("linear@3")
    assert case.exact is not None
    exact = case.exact()
    function, options = method_of(name)
    sampled = function(case.density, key=jax.random.key(0), **options)
    assert sampled.diagnostics["trusted_in"] and "rhat_out" not in sampled.diagnostics
    draws = np.asarray(sampled.draws, float)
    errors = (draws.mean(0) - exact.mean) / exact.std
    ess = effective_size(draws.reshape(CHAINS[name], -1, draws.shape[1]))
    assert ess > 400.0
    assert np.sqrt(np.mean(errors**2)) < 5.0 / np.sqrt(ess)
    assert abs(np.median(draws.std(0) / exact.std) - 1.0) < 5.0 / np.sqrt(2.0 * ess)
