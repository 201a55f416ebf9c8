"""The report and the comparison of made-up runs: their text, their errors, and their display in a browser."""

import json
import re
import shutil
from pathlib import Path

import pytest

from langenode.reports.comparison import compare_runs, distinct_names
from langenode.reports.comparison_page import render_comparison
from langenode.reports.run_page import render_report, write_report
from langenode.storage.folder import RunFolder, RunFolderError
from pages import BAD_NAME, METRICS, Outline, entry, find_chromium, look, make_hostile_run, make_run, png

# --- the report's text


def test_a_report_says_what_was_asked_and_found(tmp_path):
    page = Outline(render_report(make_run(tmp_path / "run")))
    for phrase in (
        "ou: langevin, population — Langenode report",
        "Every specimen has its own weights.",
        "34 of 354 weights are stochastic; the other 320 are single numbers, trained together with the sampler.",
        "Training 28 14 15,000",
        "Caution. The bands are too wide.",
        "W1 to the data near Passed 0.0123 at most 0.0143",
        "coverage too wide Failed",
        "k-hat no density In doubt not available",
        "Figure 1. What the density shows.",
        "100 values",
        "langenode run ou --config config.toml --out NEW-FOLDER",
        "sampler 12.3",
        "16 November 2026, 10:20 UTC",
    ):
        assert phrase in page.text, phrase
    assert "[0.5, 1]" in page.text  # a matrix, in one line
    assert "Automatic choices" not in page.text  # a demonstration makes no automatic choices


def test_a_report_is_written_whole_into_its_folder(tmp_path):
    folder = make_run(tmp_path / "run")
    path = write_report(folder)
    assert path == tmp_path / "run" / "report.html"
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert not [left for left in folder.path.iterdir() if left.name.startswith(".")]


@pytest.mark.parametrize(
    ("target", "phrase"),
    [
        ("posterior", "they shrink as data are added"),
        ("tempered", "averaged likelihood"),
        ("population", "not narrower"),
    ],
)
def test_every_target_is_put_in_words(tmp_path, target, phrase):
    assert phrase in render_report(make_run(tmp_path / "run", config={"target": target}))


def test_own_data_show_the_automatic_choices_and_their_source(tmp_path):
    folder = make_run(
        tmp_path / "run",
        metrics={"choices": [{"what": "target", "chosen": "posterior", "why": "no replicates"}]},
        provenance={
            "source": {"path": "my data.csv", "sha256": "ab" * 32},
            "command": ["/usr/local/bin/langenode", "fit", "my data.csv"],
        },
    )
    text = Outline(render_report(folder)).text
    assert "target posterior no replicates" in text
    assert "langenode fit 'my data.csv'" in text
    assert "ab" * 32 in text


def test_a_fit_is_shown_beside_plain_predictors(tmp_path):
    plain = {"crps": 0.9, "coverage": 0.75, "width": 2.0}
    skill = {
        "crps": 1.4,
        "coverage": 0.8,
        "width": 1.5,
        "best": "resampled",
        "ratio": 1.556,
        "ratio_se": 0.1,
        "num_trajectories": 4,
        "baselines": {"resampled": plain, "gp": plain | {"crps": 1.0}, "carried": dict.fromkeys(plain)},
    }
    text = Outline(render_report(make_run(tmp_path / "run", metrics={"skill": skill}))).text
    for phrase in (
        "on the 4 held-out trajectories",
        "This fit 1.400 80.0 % 1.50",
        "Training trajectories resampled the best plain one 0.900 75.0 % 2.00",
        "Gaussian process on time, start and inputs 1.000 75.0 % 2.00",
        "The start carried on not available not available not available",
        "ratio 1.556 CRPS of the fit over that of the best plain predictor; below 1 the fit is better",
    ):
        assert phrase in text, phrase
    assert "plain predictors" not in Outline(render_report(make_run(tmp_path / "demonstration"))).text


def test_names_from_files_are_escaped(tmp_path):
    for text in (
        render_report(make_hostile_run(tmp_path / "run")),
        render_comparison(*compared([make_hostile_run(tmp_path / "<b>x"), make_hostile_run(tmp_path / "y")])),
    ):
        page = Outline(text)
        assert BAD_NAME in page.text
        assert not {"script", "b"} & set(page.tags)
        assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_a_page_refers_to_nothing_but_itself(tmp_path):
    first, second = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    for text in (render_report(first), render_comparison(*compared([first, second]))):
        page = Outline(text)
        addresses = [value for name, value in page.attributes if name in ("href", "src")]
        assert addresses
        assert not [address for address in addresses if not address.startswith(("#", "data:"))]
        assert "url(" not in text
        assert "@import" not in text
        assert "default-src 'none'" in text


def test_what_is_missing_is_left_out_or_said(tmp_path):
    folder = make_run(tmp_path / "run", figures={})
    bare = {key: METRICS[key] for key in ("experiment", "method", "target", "seed")} | {"w1": None, "verdict": None}
    folder.metrics.write_text(json.dumps(bare))
    folder.provenance.unlink()
    shutil.rmtree(folder.figures)
    text = Outline(render_report(folder)).text
    assert "This run has no verdict" in text
    assert "This run has no figures" in text
    assert "w1 not available" in text


def test_figures_without_an_index_or_an_image(tmp_path):
    folder = make_run(tmp_path / "a")
    (folder.figures / "index.json").unlink()
    text = render_report(folder)
    assert text.count("<img") == 2
    assert 'alt="Density."' in text
    elsewhere = [entry("gone"), entry("density", file="../../secret.png"), entry("text", file="index.json")]
    (tmp_path / "secret.png").write_bytes(png(4, 4))
    text = render_report(make_run(tmp_path / "b", index=elsewhere))
    assert "<img" not in text
    assert text.count("is not in the run folder") == 3


@pytest.mark.parametrize("file", ["metrics.json", "provenance.json", "figures/index.json", "config.toml"])
def test_a_damaged_file_is_named(tmp_path, file):
    folder = make_run(tmp_path / "run")
    (folder.path / file).write_text("{half")
    with pytest.raises(RunFolderError, match=re.escape(str(folder.path / file))):
        render_report(folder)


# --- the comparison


def compared(folders):
    return compare_runs(folders), folders


def ranking(comparison, group=0):
    return [(row["name"], row["rank"]) for row in comparison["groups"][group]["rows"]]


def scored(path, crps, w1, coverage, **changes):
    metrics = {"crps": crps, "w1_held_out": {"mean": w1}, "coverage": {"90": coverage}} | changes.pop("metrics", {})
    return make_run(path, metrics=metrics, figures={}, **changes)


def test_runs_are_ranked_by_scores_that_none_was_trained_on(tmp_path):
    trained = scored(tmp_path / "a", 0.05, 0.02, 0.9, metrics={"energy_score": 0.001})
    other = scored(tmp_path / "b", 0.04, 0.01, 0.92, config={"method": "gaussian-full", "target": "posterior"})
    third = scored(tmp_path / "c", 0.06, 0.03, 0.7)
    found = compare_runs([trained, other, third])
    group = found["groups"][0]
    assert group["trained_on"] == ["energy_score"]
    assert group["ranked_by"] == ["crps", "w1_held_out", "coverage_error_90"]
    assert ranking(found) == [("b", 1), ("a", 2), ("c", 3)]
    assert group["rows"][1]["mean_rank"] == pytest.approx((2 + 2 + 1) / 3, rel=1e-12)
    assert found["runs"][1]["scores"]["coverage_error_90"] == pytest.approx(0.02, rel=1e-12)
    assert "training objective of a, c" in group["notes"][0]
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("loss", "trained"), [("energy", ["energy_score"]), ("quantile", ["w1_held_out"]), ("log_mean_exp", [])]
)
def test_the_training_objective_of_each_population_loss(tmp_path, loss, trained):
    runs = [make_run(tmp_path / name, config={"population": {"loss": loss}}, figures={}) for name in "ab"]
    assert compare_runs(runs)["groups"][0]["trained_on"] == trained


def test_equal_scores_share_a_rank(tmp_path):
    found = compare_runs([scored(tmp_path / name, crps, 0.01, 0.9) for name, crps in (("a", 2), ("b", 1), ("c", 2))])
    assert ranking(found) == [("b", 1), ("a", 2), ("c", 2)]
    assert found["groups"][0]["rows"][1]["ranks"] == {"crps": 2.5, "w1_held_out": 2.0, "coverage_error_90": 2.0}
    assert "2=" in render_comparison(found, [RunFolder(tmp_path / name) for name in "abc"])


def test_a_missing_score_is_used_for_nobody_and_said(tmp_path):
    runs = [scored(tmp_path / "a", 1.0, None, 0.9), scored(tmp_path / "b", 2.0, 0.01, 0.9)]
    empty = scored(tmp_path / "c", None, None, None)
    found = compare_runs([*runs, empty])
    group = found["groups"][0]
    assert group["ranked_by"] == ["crps", "coverage_error_90"]
    assert ranking(found) == [("a", 1), ("b", 2), ("c", None)]
    assert any("Held-out W1 is not used for ranking: it is missing in a." in note for note in group["notes"])
    assert any("because they have no scores: c" in note for note in group["notes"])


def test_runs_on_different_data_are_not_ranked_against_each_other(tmp_path):
    ids = {"a": "one", "b": "two", "c": "one", "d": None, "e": None}
    runs = [scored(tmp_path / name, i, i, 0.9, metrics={"data_id": x}) for i, (name, x) in enumerate(ids.items())]
    found = compare_runs(runs)
    assert [ranking(found, i) for i in range(4)] == [
        [("a", 1), ("c", 2)],
        [("b", None)],
        [("d", None)],
        [("e", None)],
    ]
    assert "different data sets" in found["notes"][0]
    assert "d, e" in found["notes"][1]
    assert "different data sets" in render_comparison(found, runs)


def test_seeds_are_summarised(tmp_path):
    crps = {1: 0.04, 2: 0.05, 3: 0.09}
    runs = [scored(tmp_path / f"s{k}", x, 0.01, 0.9, config={"seed": k}) for k, x in crps.items()]
    other = scored(tmp_path / "other", 0.01, 0.01, 0.9, config={"seed": 4, "method": "gaussian-full"})
    found = compare_runs([*runs, other])
    (summary,) = found["seeds"]
    assert summary["seeds"] == [1, 2, 3]
    assert summary["scores"]["crps"]["mean"] == pytest.approx(0.06, rel=1e-12)
    assert summary["scores"]["crps"]["std"] == pytest.approx(0.0007**0.5, rel=1e-9)
    assert "0.06 ± 0.026" in render_comparison(found, [*runs, other])


def test_the_best_may_still_be_bad(tmp_path):
    verdict = {"level": "distrust", "text": "", "checks": []}
    runs = [scored(tmp_path / "a", 1, 1, 0.9, metrics={"verdict": verdict}), scored(tmp_path / "b", 2, 2, 0.8)]
    assert "a ranks first, but" in compare_runs(runs)["notes"][0]


def test_names_are_made_distinct():
    paths = [Path("/x/one/ou"), Path("/x/two/ou"), Path("/x/two/ou")]
    assert distinct_names(paths) == ["one/ou", "two/ou", "two/ou (2)"]
    assert distinct_names([Path("/a/p"), Path("/a/q")]) == ["p", "q"]


def test_wrong_folders_are_refused(tmp_path):
    run = make_run(tmp_path / "run", figures={})
    (tmp_path / "empty").mkdir()
    bare = make_run(tmp_path / "bare", figures={})
    bare.metrics.unlink()
    damaged = make_run(tmp_path / "damaged", figures={})
    damaged.metrics.write_text("[1, 2]")
    cases = [
        ([run], "two runs or more"),
        ([run, RunFolder(tmp_path / "nowhere")], "found none at"),
        ([run, RunFolder(tmp_path / "empty")], "has none; name the folder of a run"),
        ([run, bare], "run: langenode evaluate .*bare"),
        ([run, damaged], "must hold a JSON object"),
    ]
    for folders, message in cases:
        with pytest.raises(RunFolderError, match=message):
            compare_runs(folders)
    with pytest.raises(RunFolderError, match="give the compared folders"):
        render_comparison(compare_runs([run, run]), [run])


def test_figures_of_the_same_name_stand_side_by_side(tmp_path):
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", figures={"density": (400, 300), "extra": (20, 20)})]
    page = Outline(render_comparison(*compared(runs)))
    assert page.tags.count("img") == 2
    assert ("alt", "a: A plot of the density.") in page.attributes
    assert "only one run has them: weights (a), extra (b)" in page.text


# --- in a real browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages to look at, by name."""
    root = tmp_path_factory.mktemp("pages")
    hostile = make_hostile_run(root / f"run_{'of_a_long_name_' * 10}")
    plain = make_run(root / "plain", config={"seed": 5})
    bare = make_run(root / "bare", figures={})
    made = {"report": write_report(plain), "hostile": write_report(hostile), "bare": write_report(bare)}
    made["comparison"] = root / "comparison.html"
    made["comparison"].write_text(render_comparison(*compared([hostile, plain, bare])), encoding="utf-8")
    return made


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("name", ["report", "hostile", "bare", "comparison"])
def test_a_page_shows_well_and_asks_for_nothing(browser, pages, name, width):
    assert look(browser, pages[name], width) == {}


def test_the_look_itself_can_fail(browser, tmp_path):
    path = tmp_path / "bad.html"
    path.write_text(
        '<p style="color: #bbb; width: 3000px">pale<img src="http://127.0.0.1:9/x.png"><a href="#nowhere">x</a>'
        "<script>console.warn('no')</script>"
    )
    assert set(look(browser, path, 390)) >= {"said", "requests", "images", "links", "overflow", "contrast, light"}


def test_a_missing_browser_fails_with_the_remedy():
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
        find_chromium(which=lambda name: None)


def test_contents_jump_and_focus_shows(browser, pages):
    page = browser.new_page()
    page.set_viewport_size({"width": 1440, "height": 800})
    page.goto(pages["report"].as_uri())
    page.click("nav a[href='#provenance']")
    assert page.url.endswith("#provenance")
    assert 0 <= page.evaluate("document.getElementById('provenance').getBoundingClientRect().top") < 800
    page.keyboard.press("Tab")
    outline = page.evaluate("(() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle })()")
    assert outline == "solid"
    page.close()


def test_structure_and_print(browser, pages):
    page = browser.new_page()
    page.goto(pages["report"].as_uri())
    for selector in ("html[lang=en]", "header h1", "nav[aria-label]", "main", "footer"):
        assert page.locator(selector).count() == 1, selector
    assert page.locator("main > section").count() == 7
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.locator("th:not([scope])").count() == 0
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.locator("#configuration pre").bounding_box()["height"] > 50  # unfolded on paper
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.close()
