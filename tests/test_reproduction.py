"""The paper's results in one command: the plan, the list of its facts, resuming, the results and their page.

Runs are made up, except in one slow test. The list of facts is written by hand from the paper, not taken from the code.
"""

import json
import math
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from commands import done, langenode
from langenode import plots
from langenode.config import to_toml
from langenode.experiments import deformed
from langenode.experiments.paper_results import FACTS, FIGURES, Record
from langenode.experiments.paper_results.readers import drift_size, find, network_size
from langenode.runs import grid, reproduction_plan
from langenode.runs.processes import Ended
from langenode.runs.reproduction_plan import make_plan
from pages import look, make_run

KEYS = ["section", "what", "paper", "literal", "default", "seeds", "note"]

# --- what the paper has, by hand: section, a word of the row, and the number or statement

NUMBERS = [
    *[("3 ", "diffusion gamma", 1.0), ("3 ", "variance of the start", 1e-5), ("3 ", "factor of the path KL", 0.5)],
    *[("3 ", "standard deviation of the prior", 1.0), ("3 ", "sigma of the point fit", "much smaller")],
    *[("4.1 L", "trajectories", 1024), ("4.1 L", "times", 100), ("4.1 L", "steps", 10_000)],
    *[("4.1 L", "mean of W", -8.0), ("4.1 L", "mean of b", 8.0), ("4.1 L", "variance of W", 0.64)],
    *[("4.1 L", "variance of b", 1.29), ("4.1 L", "covariance", -0.64), ("4.1 L", "exact correlation", -0.71)],
    *[("4.1 L", "drift network", 18), ("4.1 L", "numbers of the BBVI", 5)],
    *[("4.1 L", "std of W by Langevin", "0.80"), ("4.1 L", "std of b by Langevin", "7 %")],
    *[("4.1 L", "correlation by Langevin", "-0.71"), ("4.1 L", "std of W by BBVI", 1.46)],
    *[("4.1 L", "std of b by BBVI", 1.73), ("4.1 L", "correlation by BBVI", -0.92)],
    *[("4.1 S", "right-hand side", 321), ("4.1 S", "drift network", "101"), ("4.1 S", "annealing", 2.0)],
    *[("4.1 S", "low mode", "equal"), ("4.1 S", "BBVI at the low", "none"), ("4.1 S", "BBVI at the high", "only")],
    *[("4.1 S", "median distance correlation", 0.1), ("4.1 S", "fewest replicas", "insensitive")],
    *[("4.2 D", "loadings", 100), ("4.2 D", "microstructures", 32), ("4.2 D", "instantaneous", 0.362)],
    *[("4.2 D", "equilibrium", 0.084), ("4.2 D", "shortest", 1e-6), ("4.2 D", "longest", 3160.0)],
    *[("4.2 D", "Young", 60.0), ("4.2 D", "Poisson", 0.33), ("4.2 D", "bulk", 920.0)],
    *[("4.2 D", "internal variables", 6), ("4.2 D", "inputs of the flow", 16)],
    *[("4.2.1", "potential", 28), ("4.2.1", "all weights", 2436), ("4.2.1", "last layer stochastic", 60)],
    *[("4.2.1", "rest refitted", 84), ("4.2.1", "steps", "5000 to 20000"), ("4.2.1", "pseudo-time per step", 1e-3)],
    *[("4.2.1", "samples", 50), ("4.2.1", "standard deviation of the weights", "order 1")],
    *[("4.2.1", "rest refitted", 0.71), ("4.2.1", "rest fixed", 1.18)],
    *[("4.2.2", "flow", 646), ("4.2.2", "potential", 561), ("4.2.2", "law", 1207), ("4.2.2", "stochastic", 119)],
    *[("4.2.2", "drift", "43000"), ("4.2.2", "in all", "44000"), ("4.2.2", "steps", "5000 to 20000")],
    *[("4.2.2", "spread", "2 to 4"), ("4.2.2", "samples", 50), ("4.2.2", "between the two networks", 0.95)],
]
LABELS = {
    "hypernet",
    "langevin_trajectories",
    "langevin_correlation",
    "langevin_convergence",
    "schlogl_trajectories",
    "schlogl_convergence",
    "schlogl_weights",
    "viscoelastic_inclusion_realizations",
    "elastic_accuracy_map",
    "elastic_weights",
    "elastic_accuracy",
    "viscoelastic_inclusion_comparison",
    "viscoelastic_samples",
    "viscoelastic_dcorr",
}


@pytest.mark.parametrize(("section", "word", "number"), NUMBERS, ids=[f"{s}{w} {n}" for s, w, n in NUMBERS])
def test_every_number_of_the_paper_has_a_row(section, word, number):
    rows = [fact for fact in FACTS if fact.section.startswith(section) and word in fact.what]
    is_text = isinstance(number, str)
    assert any(
        isinstance(row.paper, str) == is_text and (number in row.paper if is_text else number == row.paper)
        for row in rows
    )


def test_every_figure_of_the_paper_has_an_entry_and_a_description():
    assert not LABELS - {figure.label for figure in FIGURES}
    assert all(len(figure.shows) > 60 and figure.names for figure in FIGURES)


# --- the plan


def test_the_plan_has_both_methods_for_each_seed_and_the_variation():
    plan = make_plan("all", None, quick=False)
    names = [point.name for point in plan.points]
    for seed in (1, 2, 3):
        for kind in ("ou", "schlogl", "hyperelastic", "viscoelastic"):
            assert {f"{kind}-literal-{seed}", f"{kind}-default-{seed}"} <= set(names)
    assert "viscoelastic-law-2" in names
    by_name = {point.name: point.config for point in plan.points}
    assert by_name["ou-literal-1"].method == "paper" and by_name["ou-literal-1"].options.num_steps == 10_000
    assert by_name["ou-default-1"].method == "langevin" and by_name["schlogl-default-3"].method == "bottleneck"
    cells = {(task.role, *task.cell) for task in plan.tasks if task.cell is not None}
    assert len(cells) == 18 and ("literal", 64, 1000) in cells
    # The demonstration's own run is a cell, and is not run twice.
    own = next(task for task in plan.tasks if task.cell == (32, 500))
    assert own.point.name == "schlogl-literal-1" and len(names) == len(set(names)) == 3 * 9 + 16


def test_small_settings_change_sizes_only():
    """The chain keeps its pseudo-time, and every choice of method stays as it is."""
    full = {task.point.name: task.point.config for task in make_plan("all", [1], quick=False).tasks if not task.cell}
    for task in make_plan("all", [1], quick=True).tasks:
        if task.cell is not None:
            continue
        small, large = task.point.config, full[task.point.name]
        assert small.method == large.method and small.target == large.target and small.stochastic == large.stochastic
        assert small.training.num_updates < large.training.num_updates
        if task.role == "literal":
            both = [c.options.num_steps * c.options.pseudo_time_step for c in (small, large)]
            assert both[0] == pytest.approx(both[1], rel=1e-12)
            sizes = {"num_steps", "pseudo_time_step"}
            assert small.options.model_dump(exclude=sizes) == large.options.model_dump(exclude=sizes)


def test_wrong_words_are_refused():
    for words in (["lorenz"], ["ou", "--seeds", "1,1"], ["ou", "--seeds", "x"]):
        found = langenode("reproduce", *words, "--out", "nowhere")
        assert found.code == 2 and len(found.err.splitlines()) == 1
    assert not Path("nowhere").exists()


def test_the_estimate_is_the_work_over_the_jobs():
    tasks = {task.point.name: task for task in make_plan("ou", [1, 2], quick=True).tasks}
    one = reproduction_plan.seconds_of(tasks, quick=True, jobs=1)
    assert one == sum(reproduction_plan.QUICK_SECONDS["ou", role] for role in ("literal", "default")) * 2
    assert reproduction_plan.seconds_of(tasks, quick=True, jobs=2) == one / 2
    assert reproduction_plan.seconds_of({}, quick=True, jobs=2) == 0.0


def test_the_schematic_can_be_drawn():
    figure = plots.framework()
    assert len(figure.axes) == 3 and all(axis.texts for axis in figure.axes)


def test_cubes_can_be_drawn_with_their_stress():
    figure = deformed.deformed_cubes(resolution=4)
    assert len(figure.axes) == deformed.NUM_CUBES + 1 and figure.axes[-1].get_ylabel() == "von Mises stress [MPa]"


# --- readers


def test_readers_find_what_there_is():
    record = Record(
        {"method": "paper", "paper": {"layers": [101, 101]}}, {"problem": {"num_stochastic": 321}, "x": [1]}
    )
    assert drift_size()(record) == network_size(321, 101, 101, 321) == 321 * 101 + 101 + 101 * 102 + 102 * 321
    assert drift_size()(record._replace(config={"method": "langevin"})) is None
    assert find(record.metrics, "x.0") == 1 and find(record.metrics, "x.1") is None and find({}, "a.b") is None


# --- made-up runs

MOTION = {"std_before": 3.0, "std_after": 0.9, "correlation_before": 0.1, "correlation_after": 0.5}
MOTION |= {"shift": 1.0, "has_moved": True, "begins_at": "prior"}
MADE_UP = {
    "weights": {"std": [0.9, 1.2], "corr": -0.5},
    "exact_weights": {"mean": [-8.0, 8.0], "std": [0.8, 1.134], "corr": -0.705},
    "bbvi_weights": {"std": [0.7, 0.8], "corr": -0.6},
    "score": {"relative_error": 0.3},
    "w1_exact": {"relative": 0.04},
    "modes": {"p_low": 0.52, "at_low": 0.5, "at_high": 0.45},
    "bbvi": {"at_low": 0.1, "at_high": 0.2, "w1_exact": 0.6},
    "distance_correlation": {"median": 0.2, "independence": 0.12, "biased": 0.84, "num_samples": 50},
    "variants": {"refit": {"w1_over_full": 0.9, "std_ratio": 1.0}, "fixed": {"w1_over_full": 1.0, "std_ratio": 0.9}},
    "std_ratio": 1.0,
    "mle": {"rmse_over_replica_std": 0.2},
    "point_fit": {"sigma_mle_over_data": 0.1},
    "training": {"motion": MOTION},
}
DRAWN = {name: (330, 150) for figure in FIGURES for name in figure.names}


@pytest.fixture
def made_up(monkeypatch):
    """Runs that are written at once; returns the names of those that were begun. Seed 7 fails, 9 interrupts once."""
    begun: list[str] = []
    points: dict[str, Any] = {}

    def command(folder: grid.GridFolder, point: grid.Point) -> list[str]:
        points[point.name] = (folder, point)
        return [point.name]

    def run_commands(commands: dict[str, list[str]], logs: Path, *, jobs: int, on_end: Any) -> None:
        for name in commands:
            folder, point = points[name]
            begun.append(name)
            if point.seed == 9 and begun.count(name) == 1 and "literal" in name:
                raise KeyboardInterrupt
            log = logs / f"{name}.log"
            log.write_text("ValueError: it is broken\n")
            if point.seed == 7:
                on_end(name, Ended(1, "", log, 0.1))
                continue
            numbers = MADE_UP | {"seed": point.seed, "weights": {"std": [0.8 + 0.1 * point.seed, 1.2], "corr": -0.5}}
            run = make_run(folder.run(point).path, metrics=numbers, figures=DRAWN)
            run.config.write_text(to_toml(point.config))
            run.report.write_text("")
            on_end(name, Ended(0, "", log, 0.1))

    monkeypatch.setattr(grid, "command", command)
    monkeypatch.setattr(grid, "run_commands", run_commands)
    for module, name in ((plots, "framework"), (deformed, "deformed_cubes")):  # the drawings take seconds
        monkeypatch.setattr(module, name, lambda: plots.new_figure(1, 1)[0])
    return begun


def results(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "reproduction.json").read_text())


def row_of(rows: list[dict[str, Any]], what: str) -> dict[str, Any]:
    return next(row for row in rows if row["what"] == what)


def test_results_have_mean_spread_and_a_sentence(made_up, tmp_path):
    found = done("reproduce", "ou", "--quick", "--seeds", "1,2", "--out", tmp_path / "r")
    assert re.search(r"4 runs at small settings; about \d+ min on quiet cores, \d at a time", found.err.splitlines()[0])
    rows = results(tmp_path / "r")
    assert all(list(row) == KEYS for row in rows)
    row = row_of(rows, "std of W by Langevin sampling")
    assert row["literal"]["mean"] == pytest.approx(0.95) and row["literal"]["std"] == pytest.approx(0.1 / math.sqrt(2))
    assert row["seeds"] == [1, 2] and row["paper"] == "matches 0.80" and "above what the paper says" in row["note"]
    assert row_of(rows, "exact mean of W")["note"] == "Both equal."
    assert row_of(rows, "correlation by BBVI")["note"].startswith("Both 0.65 times the paper's.")
    count = row_of(rows, "weights of the drift network 2-2-2-2")
    assert count["default"] is None and "default has no such number" in count["note"]


@pytest.mark.slow
def test_results_of_all_have_every_fact_and_figure(made_up, tmp_path):
    done("reproduce", "all", "--quick", "--seeds", "1,2", "--out", tmp_path / "r")
    rows = results(tmp_path / "r")
    assert len(made_up) == 24 and len(rows) == len(FACTS) + len(FIGURES)
    paths = [row["literal"] for row in rows if row["what"].startswith("Figure elastic")]
    assert len(paths) == 3 and all((tmp_path / "r" / path).is_file() for path in paths)
    assert row_of(rows, "distance correlation between the two networks")["note"].endswith("with our sampler: 0.84.")
    assert row_of(rows, "W1 with the fewest replicas over that with the most, longest chain")["literal"]["mean"] == 1.0
    for row in rows:  # what is missing is explained
        assert row["note"] or (row["literal"] is not None and row["default"] is not None) or row["paper"] == "not given"


def test_a_picture_that_both_methods_share_is_shown_once(made_up, tmp_path):
    done("reproduce", "hyperelastic", "--quick", "--out", tmp_path / "r")
    text = (tmp_path / "r" / "reproduction.html").read_text()
    drawn = [figure for figure in FIGURES if figure.demonstration == "hyperelastic"]
    assert text.count(">Both methods<") == sum(
        name in DRAWN and name != "deformed-cubes" for f in drawn for name in f.names
    )
    assert text.count(">Drawn by Langenode<") == 2  # the framework and the cubes


def test_finished_runs_are_kept_and_more_seeds_join(made_up, tmp_path):
    words = ("reproduce", "ou", "--quick", "--out", tmp_path / "r")
    done(*words, "--seeds", "1")
    assert made_up == ["ou-literal-1", "ou-default-1"]
    assert "4 runs at small settings, 2 of them complete already" in done(*words, "--seeds", "1,2").err
    assert made_up[2:] == ["ou-literal-2", "ou-default-2"]
    refused = langenode("reproduce", "ou", "--seeds", "1", "--out", tmp_path / "r")
    assert refused.code == 2 and "(quick)" in refused.err
    done(*words, "--seeds", "1", "--force")
    assert {path.name for path in (tmp_path / "r").iterdir() if path.is_dir()} == {
        "ou-literal-1",
        "ou-default-1",
        "logs",
    }


def test_an_interrupt_loses_one_run_at_most(made_up, tmp_path):
    words = ("reproduce", "ou", "--quick", "--seeds", "1,9", "--jobs", "1", "--out", tmp_path / "r")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert langenode(*words).code == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert not (tmp_path / "r" / "reproduction.json").exists()
    assert made_up == ["ou-literal-1", "ou-default-1", "ou-literal-9"]
    assert "2 of them complete already" in done(*words).err
    assert made_up[3:] == ["ou-literal-9", "ou-default-9"]


def test_a_failed_run_leaves_its_numbers_empty_and_says_why(made_up, tmp_path):
    found = langenode("reproduce", "ou", "--quick", "--seeds", "7", "--out", tmp_path / "r", "--json")
    assert found.code == 3 and set(json.loads(found.out)["failed"]) == {"ou-literal-7", "ou-default-7"}
    row = next(row for row in results(tmp_path / "r") if row["what"] == "std of W by Langevin sampling")
    assert row["literal"] is None and "ou-literal-7 failed (exit code 1: ValueError: it is broken" in row["note"]
    assert "it is broken" in (tmp_path / "r" / "reproduction.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_shows_well(made_up, browser, tmp_path, width):
    done("reproduce", "all", "--quick", "--seeds", "1,2", "--out", tmp_path / "r")
    page = (tmp_path / "r" / "reproduction.html").read_text()
    assert all(figure.title in page and figure.label in page for figure in FIGURES) and "Small settings" in page
    assert look(browser, tmp_path / "r" / "reproduction.html", width) == {}


@pytest.mark.slow
def test_one_demonstration_whole(browser, tmp_path):
    """Real runs, in processes of their own: every number of the section is there, and nothing is run twice."""
    done("reproduce", "ou", "--quick", "--out", tmp_path / "r")
    rows = results(tmp_path / "r")
    readers = {fact.what: fact for fact in FACTS}
    for row in rows:
        if row["what"] in readers:
            assert (row["literal"] is not None) == (readers[row["what"]].literal is not None), row
            assert (row["default"] is not None) == (readers[row["what"]].default is not None), row
        else:
            assert row["literal"] and row["default"], row
    assert look(browser, tmp_path / "r" / "reproduction.html", 1440) == {}
    assert "2 of them complete already" in done("reproduce", "ou", "--quick", "--out", tmp_path / "r").err
