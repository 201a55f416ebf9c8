"""Methods side by side: what is asked and refused, runs on the same data, distances to a reference, table and figures.

One comparison is real, with a method that cannot be fitted, its runs in this process (a sweep's are processes of their
own); distances are those of hand-made files.
"""

import csv
import json

import numpy as np
import pytest
import xarray as xr

from commands import contents, done, in_this_process, langenode, options
from langenode import plots
from langenode.config import ConfigError
from langenode.fitting import methods as registry
from langenode.reports import references, standings
from langenode.reports.comparison import compare_runs
from langenode.reports.comparison_page import Picture, render_comparison
from langenode.runs import grid, methods, processes
from langenode.storage.folder import RunFolder
from pages import look, make_run, png

TINY = options(
    "data.num_validation=4 data.num_test=8 data.num_times=20 training.num_updates=5 training.num_samples=4 "
    "training.block=5 mle.num_adam=5 mle.num_lbfgs=0 predict.num_samples=32 predict.num_weights=64 "
    "predict.num_w1_draws=2 nuts.num=64 smc.num=64 guided.num=64 laplace.num=64"
)
# A learning rate at which training diverges; sampling methods do not train.
REAL = ("compare", "--experiment", "ou", "--methods", "laplace,gaussian-full,map,bottleneck", "--seeds", "3")
REAL = (*REAL, "--budget", "2m", "--jobs", "1", *TINY, "--set", "training.learning_rate=1e30")


# A real one


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "run_commands", in_this_process)
        folder = tmp_path_factory.mktemp("real") / "comparison"
        yield folder, langenode(*REAL, "--out", folder)


@pytest.mark.slow
def test_the_folder_has_runs_a_page_a_table_and_figures(real):
    folder, _ = real
    made = {"comparison.html", "comparison.json", "comparison.csv", "bands.png", "time.png", "logs"}
    assert {path.name for path in folder.iterdir()} == made | {"laplace-3", "gaussian-full-3", "map-3"}
    assert all((folder / name / "report.html").exists() for name in ("laplace-3", "map-3"))


@pytest.mark.slow
def test_methods_share_data_and_the_point_fit(real):
    folder, _ = real
    for name in ("data.nc", "validation.nc", "test.nc", "mle.langenode"):
        assert len({(folder / run / name).read_bytes() for run in ("laplace-3", "map-3")}) == 1
    provenance = json.loads((folder / "map-3" / "provenance.json").read_text())
    assert provenance["given"]["from"] == "laplace-3" and "mle" not in provenance["seconds"]
    assert provenance["command"][:3] == ["langenode", "run", "ou"]
    record = json.loads((folder / "comparison.json").read_text())
    assert len({run["data_id"] for run in record["runs"]}) == 1


@pytest.mark.slow
def test_the_table_has_distances_to_the_exact_posterior(real):
    folder, found = real
    record = json.loads((folder / "comparison.json").read_text())
    (table,) = record["standings"]
    assert table["sorted_by"] == "distance" and [row["label"] for row in table["rows"]] == ["laplace", "map"]
    laplace, point = (row["numbers"] for row in table["rows"])
    # 64 draws: the error of a mean is 1/8 of a standard deviation, of a standard deviation about 0.7 of that.
    assert laplace["mean_error"]["mean"] < 5 / 8 and abs(laplace["std_ratio"]["mean"] - 1.0) < 5 * 0.7 / 8
    assert point["std_ratio"]["mean"] < 1e-3 and point["distance"]["mean"] > 0.99
    assert "distance" in found.out and "exact posterior" in found.out
    page = (folder / "comparison.html").read_text()
    assert "Distance to the reference" in page and "Bands of all methods" in page and "Not run" in page
    exact = json.loads((folder / "laplace-3" / "metrics.json").read_text())["reference_posterior"]
    assert exact["how"] == "quadrature" and len(exact["mean"]) == len(exact["std"]) == 2


@pytest.mark.slow
def test_a_failing_method_and_one_that_cannot_serve_are_listed(real):
    folder, found = real
    assert found.code == 3 and "Traceback" not in found.err
    (refused,) = (line for line in found.err.splitlines() if "bottleneck is not run" in line)
    assert "bottleneck serves population" in refused and "a bottleneck's weights have no density" in refused
    last = found.err.splitlines()[-1]
    assert last.startswith("langenode: every run must be fitted; 1 of 3 failed (gaussian-full-3); ")
    record = json.loads((folder / "comparison.json").read_text())
    assert set(record["failed"]) == {"gaussian-full-3"} and set(record["refused"]) == {"bottleneck"}
    assert not record["complete"]
    with (folder / "comparison.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    assert rows["gaussian-full-3"]["error"] and not rows["laplace-3"]["error"]
    assert float(rows["map-3"]["seconds"]) > 0.0


@pytest.mark.slow
def test_the_same_command_tries_only_what_is_missing(real):
    folder, _ = real
    before = {name: contents(folder / name) for name in ("laplace-3", "map-3")}
    found = langenode(*REAL, "--out", folder, "--json")
    assert found.code == 3 and "3 runs, 2 of them complete already" in found.err
    assert {name: contents(folder / name) for name in ("laplace-3", "map-3")} == before
    assert set(json.loads(found.out)["failed"]) == {"gaussian-full-3"}
    other = langenode(*REAL, "--out", folder, "--set", "prior.scale=3.0")
    assert other.code == 2 and "settings" in other.err


@pytest.mark.slow
def test_runs_of_it_can_be_compared_by_hand(real, tmp_path):
    folder, _ = real
    found = done("compare", folder / "laplace-3", folder / "map-3", "--out", tmp_path / "page.html")
    assert "Ranked by" in found.out and "std ratio" in found.out
    assert "Accuracy against time" in (tmp_path / "page.html").read_text()


# What is asked


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60.0), ("2m", 120.0), ("90", 90.0), ("1.5h", 5400.0), (" 5 min ", 300.0)]
)
def test_a_budget(text, seconds):
    assert methods.parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-3", "0", "0s", "1 day", "1e3", "nan", "2m30s"])
def test_what_is_no_budget(text):
    with pytest.raises(ConfigError, match="write 60s, 2m or 90"):
        methods.parse_budget(text)


def test_lists_of_methods():
    every = methods.parse_methods("all")
    assert "paper" not in every and {*every, "paper"} == set(registry.methods()) and len(every) == len(set(every))
    assert methods.parse_methods("all,paper") == [*every, "paper"]
    assert methods.parse_methods("map, nuts") == ["map", "nuts"]
    with pytest.raises(ConfigError, match=r"did you mean nuts\?"):
        methods.parse_methods("nutz")
    with pytest.raises(ConfigError, match="map comes twice"):
        methods.parse_methods("map,map")


def test_a_plan_has_every_method_that_can_serve_and_every_seed():
    plan = methods.make_plan("ou", [{"target": "posterior"}], methods.parse_methods("all"), [2, 1])
    assert list(plan.refused) == ["bottleneck"]
    served = [name for name in methods.parse_methods("all") if name != "bottleneck"]
    assert [point.name for point in plan.points] == [f"{name}-{seed}" for seed in (2, 1) for name in served]
    assert len({json.dumps(methods._start_of(point), sort_keys=True) for point in plan.points}) == 2
    population = methods.make_plan("ou", [{"target": "population"}], methods.parse_methods("all"), None)
    trained = ("langevin", "gaussian-full", "gaussian-lowrank", "gaussian-diagonal", "bottleneck")
    assert [point.name for point in population.points] == list(trained)


def test_options_without_effect_on_any_method_are_said():
    layers = [{"target": "posterior", "nuts": {"num": 64}, "population": {"loss": "quantile"}}]
    assert methods.make_plan("ou", layers, ["map", "langevin"], None).unused == ["nuts.num", "population.loss"]
    assert methods.make_plan("ou", layers, ["nuts", "langevin"], None).unused == ["population.loss"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "needs runs or an experiment"),
        (["runs/a", "--experiment", "ou"], "not both"),
        (["runs/a", "runs/b", "--budget", "60s"], "--budget"),
        (["runs/a", "runs/b", "--set", "prior.scale=2"], "settings"),
        (["--methods", "all"], "--experiment"),
        (["--experiment", "nonsense"], "an experiment must be one of"),
        (["--experiment", __file__], f"for a file of your own: langenode compare --data {__file__}"),
        (["--experiment", "ou", "--data", "a.csv"], "not both"),
        (["--experiment", "ou", "--time", "t"], "columns are those of a file"),
        (["--data", "absent.csv"], "absent.csv"),
        (["--experiment", "ou", "--methods", "langevan"], "did you mean langevin?"),
        (["--experiment", "ou", "--budget", "long"], "60s, 2m or 90"),
        (["--experiment", "ou", "--set", "training.num_sample=3"], "did you mean training.num_samples?"),
        (["--experiment", "ou", "--set", "method=map"], "--methods alone"),
        (["--experiment", "ou", "--methods", "bottleneck"], "no density"),
        (["--experiment", "ou", "--seeds", "1,1"], "comes twice"),
    ],
)
def test_what_is_wrong_is_seen_before_any_work(tmp_path, monkeypatch, words, says):
    def fail(*_, **__):
        raise AssertionError("work has begun")

    monkeypatch.setattr(grid, "run_commands", fail)
    found = langenode("compare", *words, "--out", tmp_path / "c")
    assert found.code == 2 and says in found.err, found.err
    assert found.err.splitlines()[-1].count(";") >= 2, found.err
    assert not (tmp_path / "c").exists()


def test_what_failed_is_found_above_a_librarys_remarks(tmp_path):
    log = tmp_path / "a.log"
    remarks = "For simplicity, JAX has removed its internal frames.\nlangenode: this is a bug of ours"
    log.write_text(f"Traceback\n  File x\nTypeError: cond branches differ\n\nRevise them.\n---\n{remarks}\n")
    ended = processes.Ended(1, "", log, 1.0)
    assert grid._what_failed(ended) == f"exit code 1: TypeError: cond branches differ; see {log}"


# Distances from hand-made files

POSTERIOR = {"target": "posterior", "stochastic": "all", "rest": "fixed"}


def write_run(path, method, outputs, weights, posterior=None, **metrics):
    """A run of a posterior with samples of predictions and weights."""
    found = {"weights": {"mean": weights.mean(0).tolist(), "std": weights.std(0).tolist()}, **metrics}
    run = make_run(
        path, config={**POSTERIOR, "method": method}, metrics={**found, "posterior": posterior or {}}, figures={}
    )
    over = ("sample", "condition", "time", "out")
    xr.Dataset({"outputs": (over, outputs), "weights": (("sample", "weight"), weights)}).to_netcdf(
        run.predictions, engine="scipy"
    )
    return run


def two_points(mean, std, shape=(1, 4, 1)):
    """Samples with exactly this mean and standard deviation in every cell."""
    return np.stack([np.full(shape, mean + sign * std) for sign in (-1.0, 1.0)] * 8)


def measured(runs):
    found = compare_runs(runs)
    return {run["name"]: run["reference"] for run in found["runs"]}, found


def test_predictions_are_held_against_a_trusted_sampler(tmp_path):
    weights = np.random.default_rng(0).normal(size=(16, 3))
    trusted = {"method": "nuts", "is_trusted": True, "reason": "fine", "reference_rank": 1}
    runs = [
        write_run(tmp_path / "n", "nuts", two_points(1.0, 0.5), weights, trusted),
        write_run(tmp_path / "l", "laplace", two_points(1.25, 1.0), weights, {"is_trusted": True, "method": "laplace"}),
        write_run(tmp_path / "m", "map", two_points(1.0, 0.0), weights),
    ]
    found, _ = measured(runs)
    assert found["n"] == references.Measured(num_draws=16)._asdict()  # a run is not compared with itself
    assert found["l"]["to"] == "n" and found["l"]["of"] == "predictions"
    np.testing.assert_allclose([found["l"][k] for k in ("mean_error", "std_ratio")], [0.5, 2.0], rtol=1e-12)
    assert found["l"]["distance"] == pytest.approx(np.hypot(0.5, 1.0), rel=1e-12)
    assert found["m"]["std_ratio"] == 0.0 and found["m"]["distance"] == pytest.approx(1.0, rel=1e-12)
    assert found["l"]["energy_to"] == "n"


def test_the_order_of_references_and_what_none_is_said_as(tmp_path):
    weights = np.random.default_rng(0).normal(size=(16, 3))
    record = {"is_trusted": True, "reason": ""}
    failed = record | {"is_trusted": False, "reference_rank": 1}
    runs = [
        write_run(tmp_path / "n", "nuts", two_points(1.0, 0.5), weights, failed),
        write_run(tmp_path / "s", "smc", two_points(1.0, 0.25), weights, record | {"reference_rank": 2}),
        write_run(tmp_path / "m", "map", two_points(1.0, 0.0), weights),
    ]
    found, _ = measured(runs)
    assert [found[name]["to"] for name in "nsm"] == ["s", None, "s"]
    assert found["n"]["std_ratio"] == pytest.approx(2.0, rel=1e-12)
    without = measured([runs[0], runs[2]])[1]
    assert all(run["reference"]["to"] is None for run in without["runs"])
    assert without["standings"][0]["notes"] == [
        "No reference posterior: no exact one is known, and no run of nuts passes its diagnostics."
    ]
    neither = measured([runs[2], write_run(tmp_path / "l", "laplace", two_points(1.0, 0.0), weights)])[1]
    assert neither["standings"][0]["notes"] == [
        "No reference posterior: no exact one is known, and no run of nuts or smc is among these."
    ]


def test_a_fallback_or_another_problem_is_no_reference(tmp_path):
    weights = np.ones((16, 3))
    trusted = {"is_trusted": True, "method": "nuts", "reference_rank": 1}
    replaced = {"is_trusted": True, "method": "smc", "replaced": "guided", "reference_rank": 2}
    runs = [
        write_run(tmp_path / "g", "guided", two_points(1.0, 0.5), weights, replaced),
        write_run(tmp_path / "m", "map", two_points(1.0, 0.0), weights),
    ]
    other = write_run(tmp_path / "n", "nuts", two_points(1.0, 0.5), weights, trusted)
    other.config.write_text(other.config.read_text() + "\n[prior]\nscale = 3.0\n")
    assert {one["to"] for one in measured([*runs, other])[0].values()} == {None}


def test_exact_moments_come_before_draws(tmp_path):
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(16, 2))
    exact = {"how": "quadrature", "mean": [0.0, 1.0], "std": [1.0, 2.0], "log_evidence": -3.0}
    shifted = np.stack([[-0.5, 3.0], [1.5, 3.0]] * 8)  # means 0.5 and 3, standard deviations 1 and 0
    trusted = {"method": "nuts", "is_trusted": True, "log_evidence": -2.5, "reference_rank": 1}
    runs = [
        write_run(tmp_path / "n", "nuts", two_points(0.0, 1.0), draws, trusted, reference_posterior=exact),
        write_run(tmp_path / "m", "map", two_points(9.0, 1.0), shifted, reference_posterior=exact),
    ]
    found, _ = measured(runs)
    assert found["n"]["to"] == found["m"]["to"] == "quadrature" and found["m"]["of"] == "weights"
    assert found["m"]["mean_error"] == pytest.approx(np.sqrt((0.25 + 1.0) / 2), rel=1e-12)
    assert found["m"]["std_ratio"] == pytest.approx(0.5, rel=1e-12)
    assert found["m"]["distance"] == pytest.approx(np.sqrt((0.25 + 1.0 + 1.0) / 2), rel=1e-12)
    assert found["n"]["evidence_error"] == 0.5 and found["m"]["evidence_error"] is None
    assert found["n"]["energy_to"] is None and found["m"]["energy_to"] == "n"


def test_the_energy_distance_of_weights():
    """Two points against two points: 2 E|X - Y| - E|X - X'| - E|Y - Y'| with the norm over the weights."""
    ours, theirs = np.array([[0.0], [2.0]]), np.array([[-1.0], [1.0]])  # spread of theirs: 1
    assert references.weights_distance(ours, theirs) == pytest.approx(2 * (1 + 1 + 3 + 1) / 4 - 2 - 2, rel=1e-12)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(512, 3)), rng.normal(size=(512, 3))
    assert abs(references.weights_distance(a, b)) < 0.02 < references.weights_distance(a + 1.0, b)


def test_cells_without_spread_are_left_out():
    reference_std = np.array([[[1.0], [0.0]]])
    found = references.moment_distances(np.full((1, 2, 1), 3.0), np.ones((1, 2, 1)), np.ones((1, 2, 1)), reference_std)
    assert found == (2.0, 2.0, 1.0)


# The table


def seeded(path, method, seed, data_id, crps, **posterior):
    metrics = {"crps": crps, "data_id": data_id, "posterior": posterior}
    return make_run(path, config={**POSTERIOR, "method": method, "seed": seed}, metrics=metrics, figures={})


def test_rows_have_the_spread_over_seeds(tmp_path):
    runs = [
        seeded(
            tmp_path / f"{method}-{seed}", method, seed, f"d{seed}", crps + seed, k_hat=0.5, stopped=method == "nuts"
        )
        for method, crps in (("nuts", 3.0), ("map", 1.0))
        for seed in (1, 3)
    ]
    (table,) = compare_runs(runs)["standings"]
    assert [row["label"] for row in table["rows"]] == ["map", "nuts"] and table["sorted_by"] == "crps"
    crps = table["rows"][0]["numbers"]["crps"]
    assert crps == {"mean": pytest.approx(3.0), "std": pytest.approx(2.0**0.5), "num": 2}
    assert [row["num_stopped"] for row in table["rows"]] == [0, 2]
    assert any(note.startswith("Stopped by the budget") and "nuts" in note for note in table["notes"])
    assert standings.cell_text(crps) == "3.0 ± 1.4"


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [
        (None, None, None),
        (0.0301234, None, "0.0301"),
        (0.0301234, 0.00048, "0.03012 ± 0.00048"),
        (60.25, 11.0, "60 ± 11"),
        (1.0, 0.0, "1 ± 0"),
        (256000.0, None, "2.56e+05"),
        (256000.0, 1200.0, "2.56e+05 ± 1.2e+03"),
        (1234.4, None, "1234"),
    ],
)
def test_a_number_with_its_spread(mean, std, text):
    assert standings.cell_text({"mean": mean, "std": std}) == text


def test_rows_on_other_data_have_a_table_of_their_own(tmp_path):
    runs = [seeded(tmp_path / name, "map", i, name, 1.0) for i, name in enumerate("ab")]
    other = seeded(tmp_path / "c", "nuts", 7, "c", 1.0)
    tables = compare_runs([*runs, other])["standings"]
    assert [[row["label"] for row in table["rows"]] for table in tables] == [["map"], ["nuts"]]


def test_a_trained_run_that_was_cut_short_counts_its_evaluations(tmp_path):
    training = {"updates": 300, "asked": 1000, "skipped": 0}
    config = {**POSTERIOR, "budget": 60.0, "training": {"num_samples": 64}}
    cut = make_run(tmp_path / "a", config=config, metrics={"training": training}, figures={})
    whole = make_run(tmp_path / "b", config={k: v for k, v in config.items() if k != "budget"}, figures={})
    first, second = compare_runs([cut, whole])["runs"]
    assert first["is_stopped"] and not second["is_stopped"]
    assert first["numbers"]["num_evaluations"] == 300 * 64


@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_of_many_methods_shows_well(browser, tmp_path, width):
    names = [name for name in methods.parse_methods("all") if name != "bottleneck"]
    runs = []
    for seed in (1, 2):
        for i, name in enumerate(names):
            run = seeded(tmp_path / f"{name}-{seed}", name, seed, f"d{seed}", 0.01 * i, relative_ess=0.5, ess=900.0)
            run.figures.mkdir(exist_ok=True)
            (run.figures / "density.png").write_bytes(png(300, 200))
            (run.figures / "index.json").unlink(missing_ok=True)
            runs.append(run)
    found = compare_runs(runs) | {"failed": {"nuts-3": "x" * 300}, "refused": {"bottleneck": "it cannot; so; no"}}
    picture = Picture("Bands", "What they show.", "A plot.", png(1500, 700))
    page = render_comparison(found, runs, pictures=[picture], shown=runs[: len(names)], heading="ou: methods")
    path = tmp_path / "page.html"
    path.write_text(page, encoding="utf-8")
    assert look(browser, path, width) == {}
    assert page.count("<img") == 1 + len(names) and "<details" in page


# The figures


def test_bands_are_about_the_reference():
    times = np.linspace(0.0, 1.0, 5)
    panels = {name: two_points(mean, 1.0, (5,)) for name, mean in (("a", 1.0), ("b", 1.5))}
    figure = plots.method_bands(times, panels, np.ones(5), panels["a"], name="a", ylabel="y")
    first, one, two = (axis for axis in figure.axes if axis.get_visible())
    assert [axis.get_title() for axis in (one, two)] == ["a", "b"]
    np.testing.assert_allclose(first.lines[1].get_ydata(), 1.0)
    np.testing.assert_allclose(two.lines[0].get_ydata(), 0.5)


def test_names_in_the_figure_of_time_do_not_overlap():
    rng = np.random.default_rng(0)
    found = {f"method-{i}": np.exp(rng.normal(0.0, 0.05, size=(3, 2))) for i in range(14)}
    figure = plots.accuracy_against_time(found, ylabel="distance")
    figure.canvas.draw()
    axis = figure.axes[0]
    assert axis.get_xscale() == axis.get_yscale() == "log"
    boxes = [text.get_window_extent() for text in axis.texts if text.get_text()]
    assert len(boxes) == 14
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_a_comparison_without_any_run_has_a_table_of_failures(tmp_path):
    plan = methods.make_plan("ou", [{"target": "posterior"}], ["map"], None)
    (tmp_path / "c").mkdir()
    found = methods._write(methods.ComparisonFolder(tmp_path / "c"), plan, {"map": "broken"})
    assert found["failed"] == {"map": "broken"} and RunFolder(tmp_path / "c").path.joinpath("comparison.csv").exists()
    assert not (tmp_path / "c" / "comparison.html").exists()
