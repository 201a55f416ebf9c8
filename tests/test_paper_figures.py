"""What the figures of the paper show: the learned score, weights of each layer, modes, dependence, and the ablation."""

import itertools

import ablation
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from langenode import plots
from langenode.config import parse_overrides
from langenode.experiments import ou_score
from langenode.experiments.figures import pair_dependence, some_of_each_layer
from langenode.experiments.modes import ModeSummary, mode_shares
from langenode.fitting.choose import configure
from langenode.posteriors import Reference, langevin, paper_langevin

KEY = jax.random.key(0)
MEAN, SCALE = np.array([-8.0, 8.0]), np.array([0.8, 1.5])


def reference():
    return Reference(jnp.asarray(MEAN), jnp.asarray(SCALE))


# --- the score


def test_the_end_of_a_chain_has_the_density_of_its_last_step():
    chain = langevin(reference(), num_steps=5, horizon=2.0, layers=(3,), key=KEY)
    before, at = MEAN + np.array([0.4, -0.9]), MEAN + np.array([0.3, 0.2])
    decay, _, noise = (float(values[-1]) for values in chain._coefficients())
    expected = norm.logpdf(at, MEAN + decay * (before - MEAN), noise * SCALE).sum()
    found = chain.log_end_density(jnp.asarray(at)[None], jnp.asarray(before)[None])
    assert float(found[0]) == pytest.approx(expected, rel=1e-8)


@pytest.mark.slow
def test_an_untrained_chain_has_the_score_of_its_reference():
    """Over 16384 runs the mixture of last steps is the reference; the error is that of its sampling."""
    chain = langevin(reference(), num_steps=2, horizon=1.0, layers=(3,), key=KEY)
    points = MEAN + SCALE * np.array([[0.5, -0.5], [-1.0, 0.3], [0.1, 1.2]])
    parts = [
        np.asarray(jax.jit(lambda k: ou_score.learned_score(chain, jnp.asarray(points), key=k))(key))
        for key in jax.random.split(KEY, 4)
    ]
    mean, error = np.mean(parts, axis=0), np.std(parts, axis=0, ddof=1) / 2.0
    exact = -(points - MEAN) / SCALE**2
    assert np.all(
        np.abs(mean - exact) < 10.0 * error + 1e-3
    )  # four parts: the error itself is known to a factor of two
    assert np.all(error < 0.1)


def test_the_drift_of_a_linear_chain_is_the_score_of_its_stationary_distribution():
    chain = paper_langevin(reference(), jnp.asarray(MEAN), num_steps=4, contraction=1.0, key=KEY)
    chain = eqx.tree_at(lambda c: c.control.network, chain, replace_fn=lambda net: jax.tree.map(jnp.zeros_like, net))
    points = MEAN + SCALE * np.array([[0.5, -0.5], [2.0, 1.0]])
    found = ou_score.learned_score(chain, jnp.asarray(points), key=KEY)
    np.testing.assert_allclose(found, -(points - MEAN) / SCALE**2, rtol=1e-8)


# --- weights of each layer


def test_weights_are_chosen_from_every_layer():
    names = [f"flow.layers[{i}].weight[{j},0]" for i in range(2) for j in range(3)] + ["potential.layers[0].bias[0]"]
    chosen = some_of_each_layer(names, np.array([1.0, 3.0, 2.0, 9.0, 8.0, 7.0, 0.1]))
    assert [names[i] for i in chosen] == [
        "flow.layers[0].weight[1,0]",
        "flow.layers[0].weight[2,0]",
        "flow.layers[1].weight[0,0]",
        "flow.layers[1].weight[1,0]",
        "potential.layers[0].bias[0]",
    ]
    assert len(some_of_each_layer([f"layers[{i}].bias[0]" for i in range(9)], np.ones(9))) == 6
    assert list(some_of_each_layer(["W", "b"], np.ones(2))) == [0, 1]


def test_paths_are_drawn_from_their_start_in_full():
    grid, paths = np.linspace(0.0, 5.0, 3001), np.zeros((50, 3001, 4))
    figure = plots.weight_paths(grid, paths, list("abcd"), np.zeros(4))
    lines = figure.axes[0].get_lines()
    assert len(lines) == 50 + 3 and all(len(line.get_xdata()) == 3001 for line in lines[:50])


def test_parity_has_every_realisation_and_few_ticks():
    rng = np.random.default_rng(0)
    mean, single = rng.normal(size=200), rng.normal(size=(50, 200))
    panel = plots.SpreadPanel(mean, np.full(200, 0.1), mean, np.full(200, 0.1), single)
    figure = plots.spread_parity({"a": panel, "b": panel}, label="stress", inset=True)
    assert max(len(line.get_xdata()) for line in figure.axes[0].get_lines()) == 50 * 200
    figure.canvas.draw()
    for axis in figure.axes:
        boxes = [
            label.get_window_extent() for label in axis.get_xticklabels() if label.get_text() and label.get_visible()
        ]
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


def test_panels_that_share_axes_show_the_spreads_of_all():
    rng = np.random.default_rng(0)
    mean = rng.normal(size=50)
    panels = {
        name: plots.SpreadPanel(mean, np.full(50, spread), mean, np.full(50, 1.2 * spread))
        for name, spread in (("narrow", 0.1), ("wide", 0.15))
    }
    figure = plots.spread_parity(panels, label="stress", inset=False)
    for axis in figure.axes[2:]:
        assert axis.get_xlim()[1] > 0.15 and axis.get_ylim()[1] > 0.18


def test_few_updates_have_labels_of_their_own():
    updates = np.array([5, 10, 15, 20, 30, 45, 60])
    figure = plots.w1_convergence(np.linspace(0.0, 1.0, 4), {"update": updates, "w1": np.ones((7, 4))}, floor=0.1)
    figure.canvas.draw()
    labels = [label.get_text() for label in figure.axes[1].get_xticklabels(which="both")]
    assert labels == ["5", "15", "20", "30", "60"]


# --- modes and dependence


def test_samples_count_at_a_mode_or_at_neither():
    modes = ModeSummary(0.5, 100.0, 10.0, 500.0, 40.0)
    found = mode_shares(np.array([100.0, 129.0, 131.0, 300.0, 381.0, 500.0, 619.0, 700.0]), modes)
    assert found == {"at_low": 2 / 8, "at_high": 3 / 8}


def test_dependence_is_that_of_equal_and_of_independent_weights():
    rng = np.random.default_rng(1)
    one = rng.normal(size=(200, 1))
    _, equal = pair_dependence(np.repeat(one, 3, axis=1))
    assert equal["median"] == pytest.approx(1.0) and equal["num_samples"] == 200
    _, apart = pair_dependence(rng.normal(size=(200, 20)))
    assert apart["median"] == pytest.approx(apart["independence"], rel=0.1) and apart["median"] < 0.2


# --- the ablation


@pytest.mark.parametrize("experiment", ["ou", "schlogl"])
def test_the_switches_add_up_from_the_printed_method_to_ours(experiment):
    rows = ablation.rows(experiment)
    settings = list(rows.values())
    assert len(rows) == 9 and all(a == b[: len(a)] for a, b in itertools.pairwise(settings[:-1]))
    configs = [configure(experiment, [parse_overrides(chosen)]) for chosen in settings]
    assert configs[0] == configure(experiment, [{"method": "paper"}]) and configs[-1] == configure(experiment, [])
    last, ours = configs[-2].options, configs[-1].options
    assert (last.kl_rate, last.end_term, last.drift, last.start) == ("quarter", "kept", "time", "learned")
    assert last.num_steps == ours.num_steps == 8 and configs[-2].target == configs[-1].target == "population"
    assert last.num_steps * last.pseudo_time_step == pytest.approx(ours.horizon)
    assert all(a != b for a, b in itertools.pairwise(configs))


def test_fewer_steps_of_the_ablation_keep_the_pseudo_time():
    rows = ablation.rows("ou", 1000)
    first, eight = (
        configure("ou", [parse_overrides(rows[name])]).options
        for name in ("as printed", "+ 8 exact graded steps, learned noise")
    )
    assert first.num_steps == 1000 and first.num_steps * first.pseudo_time_step == pytest.approx(10.0)
    assert eight.num_steps == 8
    assert ablation.rows("schlogl", 1000) == ablation.rows("schlogl")


def test_the_ablation_resumes_and_prints_means(monkeypatch, tmp_path, capsys):
    measured = []

    def measure(experiment, settings, seed):
        measured.append((len(settings), seed))
        return (
            {"error": ["broken"]} if (len(settings), seed) == (1, 2) and len(measured) < 20 else {"std_W": float(seed)}
        )

    monkeypatch.setattr(ablation, "measure", measure)
    words = ["ablation.py", "--experiments", "ou", "--out", str(tmp_path / "a.jsonl"), "--seeds"]
    for seeds in (["1"], ["1", "2"], ["1", "2"]):
        monkeypatch.setattr("sys.argv", [*words, *seeds])
        ablation.main()
    assert len(measured) == 9 + 9 + 1  # what failed is tried again, nothing else
    table = capsys.readouterr().out.split("\n\n")[-2].splitlines()
    assert table[3].startswith("| as printed") and len(table) == 3 + 9
    assert table[4] == "| KL rate 1/4 | 1.5 ± 0.71 |  |  |  |  |  |"
