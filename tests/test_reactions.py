"""Exact trajectories and exact laws of reaction networks, against each other and against closed forms."""

import jax
import numpy as np
import pytest
from scipy import stats

from langenode.simulators import schlogl
from langenode.simulators.master_equation import count_law
from langenode.simulators.reactions import Reaction, ReactionNetwork, propensities, simulate, tables

KEY = jax.random.key(11)
TIMES = np.array([0.0, 0.3, 1.0, 2.0, 5.0])
IMMIGRATION = ReactionNetwork(("X",), (Reaction({}, {"X": 1}, 6.0), Reaction({"X": 1}, {}, 0.8)), (3,))
DIMERISATION = ReactionNetwork(
    ("M", "D"), (Reaction({"M": 2}, {"D": 1}, 0.02), Reaction({"D": 1}, {"M": 2}, 0.5)), (20, 3)
)


def test_propensities_count_the_ways_to_pick_reactants():
    parts = tables(schlogl.network(schlogl.SchloglParameters()))
    x = np.array([[0], [1], [2], [250]])
    expected = [[0.03 * n * (n - 1) / 2, 1e-4 * n * (n - 1) * (n - 2) / 6, 200.0, 3.5 * n] for n in x[:, 0]]
    np.testing.assert_allclose(propensities(parts, x), expected, rtol=1e-12)


def test_the_master_equation_of_immigration_and_death_is_binomial_plus_poisson():
    law = count_law(IMMIGRATION, TIMES)
    for t, found in zip(TIMES, law.probabilities, strict=True):
        survivors = stats.binom.pmf(law.counts, 3, np.exp(-0.8 * t))
        arrivals = stats.poisson.pmf(law.counts, 6.0 / 0.8 * (1 - np.exp(-0.8 * t)))
        exact = np.convolve(survivors, arrivals)[: len(law.counts)]
        np.testing.assert_allclose(found, exact, atol=1e-10)
    np.testing.assert_allclose(law.mean, 3 * np.exp(-0.8 * TIMES) + 7.5 * (1 - np.exp(-0.8 * TIMES)), rtol=1e-8)


def test_jumps_of_two_and_uneven_times_are_solved_too():
    """Pairs arrive at 5 per unit of time: half the count is Poisson of mean 5 t."""
    law = count_law(ReactionNetwork(("X",), (Reaction({}, {"X": 2}, 5.0),), (0,)), [0.1, 0.7, 0.75])
    for t, found in zip(law.times, law.probabilities, strict=True):
        np.testing.assert_allclose(found[::2], stats.poisson.pmf(np.arange(len(found[::2])), 5.0 * t), atol=1e-9)
        assert np.all(found[1::2] == 0.0)


def chi_square_p(counts, probabilities):
    """Return the p-value of counts against an exact law, in bins of at least ten expected counts."""
    num = len(counts)
    edges, total = [0], 0.0
    for state, p in enumerate(probabilities):
        total += num * p
        if total >= 10.0:
            edges.append(state + 1)
            total = 0.0
    edges[-1] = len(probabilities)
    expected = np.add.reduceat(num * probabilities, edges[:-1])
    observed = np.histogram(counts, bins=edges)[0]
    return stats.chisquare(observed, expected * num / expected.sum()).pvalue


@pytest.mark.slow
@pytest.mark.parametrize("case", ["immigration", "schlogl"])
def test_marginals_of_trajectories_are_those_of_the_master_equation(case):
    if case == "schlogl":
        network, times = schlogl.network(schlogl.SchloglParameters()), np.array([0.1, 0.5, 2.0, 5.0, 10.0])
    else:
        network, times = IMMIGRATION, TIMES[1:]
    law = count_law(network, times)
    counts = simulate(network, times, 4000, key=KEY)[..., 0]
    error = law.std / np.sqrt(len(counts))
    assert np.all(np.abs(counts.mean(0) - law.mean) < 5 * error)
    for column, probabilities in zip(counts.T, law.probabilities, strict=True):
        assert chi_square_p(column, probabilities) > 1e-4


@pytest.mark.slow
def test_two_species_against_their_exact_mean():
    """Dimerisation conserves M + 2 D, so D alone has a finite master equation, written down here by hand."""
    total = 20 + 2 * 3
    dimers = np.arange(total // 2 + 1)
    monomers = total - 2 * dimers
    up, down = 0.02 * monomers * (monomers - 1) / 2, 0.5 * dimers
    generator = np.diag(-(up + down)) + np.diag(up[:-1], -1) + np.diag(down[1:], 1)
    from scipy.linalg import expm

    counts = simulate(DIMERISATION, TIMES, 4000, key=KEY)
    np.testing.assert_array_equal(counts[..., 0] + 2 * counts[..., 1], total)
    for index, t in enumerate(TIMES):
        law = expm(generator * t)[:, 3]
        mean = law @ dimers
        error = np.sqrt((law @ dimers**2 - mean**2) / len(counts)) + 1e-12
        assert abs(counts[:, index, 1].mean() - mean) < 5 * error


def test_the_key_alone_decides_whatever_the_threads_and_the_number_of_trajectories():
    one = simulate(DIMERISATION, TIMES, 50, key=KEY, num_threads=1)
    np.testing.assert_array_equal(one, simulate(DIMERISATION, TIMES, 50, key=KEY, num_threads=3))
    np.testing.assert_array_equal(one[:7], simulate(DIMERISATION, TIMES, 7, key=KEY))
    assert np.any(one != simulate(DIMERISATION, TIMES, 50, key=jax.random.key(12)))


def test_waiting_times_are_exponential_and_streams_of_trajectories_unrelated():
    """One molecule that decays: its life is exponential. Neighbouring trajectories are independent."""
    network = ReactionNetwork(("X",), (Reaction({"X": 1}, {}, 1.0),), (1,))
    times = np.linspace(0.0, 12.0, 2401)
    alive = simulate(network, times, 4000, key=KEY)[..., 0]
    lives = alive.sum(1) * (times[1] - times[0])
    assert stats.kstest(lives, "expon").pvalue > 1e-4
    correlation = np.corrcoef(lives[:-1], lives[1:])[0, 1]
    assert abs(correlation) < 5 / np.sqrt(len(lives))


def test_a_network_without_a_possible_reaction_stands_still():
    network = ReactionNetwork(("X",), (Reaction({"X": 1}, {}, 1.0),), (0,))
    np.testing.assert_array_equal(simulate(network, TIMES, 3, key=KEY), 0)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"species": ("X", "X"), "initial": (1, 1)}, "different names"),
        ({"initial": (1, 2)}, "whole number"),
        ({"initial": (-1,)}, "whole number"),
        ({"reactions": (Reaction({"Y": 1}, {}, 1.0),)}, "reactions must be between"),
        ({"reactions": (Reaction({"X": 1}, {}, -1.0),)}, "rates finite"),
        ({"reactions": (Reaction({"X": -1}, {}, 1.0),)}, "rates finite"),
    ],
)
def test_networks_that_make_no_sense_are_refused(change, word):
    with pytest.raises(ValueError, match=word):
        simulate(IMMIGRATION._replace(**change), TIMES, 1, key=KEY)


def test_times_that_go_back_explosions_and_two_species_are_refused():
    with pytest.raises(ValueError, match="ascend"):
        simulate(IMMIGRATION, [1.0, 0.5], 1, key=KEY)
    explosion = ReactionNetwork(("X",), (Reaction({"X": 2}, {"X": 3}, 1.0),), (50,))
    with pytest.raises(ValueError, match="explodes"):
        simulate(explosion, [0.0, 10.0], 2, key=KEY, max_events=10_000)
    with pytest.raises(ValueError, match="one species"):
        count_law(DIMERISATION, TIMES)
    with pytest.raises(ValueError, match="below 8192"):
        count_law(ReactionNetwork(("X",), (Reaction({"X": 1}, {"X": 2}, 1.0),), (5000,)), [3.0])
