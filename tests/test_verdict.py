"""The verdict: each check can pass, doubt and fail, and states why."""

import copy

import pytest

from langenode.scores.verdict import judge

GOOD = {
    "skill": {"ratio": 0.8, "ratio_se": 0.05, "best": "gp", "num_trajectories": 20},
    "w1": {"mean": 0.011, "floor": 0.01, "ratio": 1.1, "threshold": 1.6, "false_alarm": 0.02},
    "energy_distance": {"mean": 0.011, "floor": 0.01, "ratio": 1.1, "threshold": 2.4, "false_alarm": 0.02},
    "coverage": {"90": 0.9},
    "coverage_check": {
        "low": 0.8,
        "high": 0.98,
        "standard_error": 0.04,
        "num_readings": 200,
        "num_trajectories": 20,
        "false_alarm": 0.02,
    },
    "posterior": {"relative_ess": 0.8, "k_hat": 0.2},
    "training": {"updates": 100, "asked": 100, "skipped": 0, "late_change": 0.0},
}


def changed(**parts):
    found = copy.deepcopy(GOOD)
    for name, values in parts.items():
        found[name] |= values
    return judge(found)


def test_a_good_fit_is_trusted_and_every_check_is_listed():
    found = judge(GOOD)
    assert found["level"] == "trust" and all(check["passed"] for check in found["checks"]) and len(found["checks"]) == 7
    targets = " ".join(check["wanted"] for check in found["checks"])
    assert "1.6 times the floor 0.01 (a perfect model exceeds this in 2 % of runs)" in targets
    assert "80 to 98 %, the range of a right band for 200 readings of 20 trajectories (all but 2 % of runs)" in targets


@pytest.mark.parametrize(
    ("parts", "level", "words"),
    [
        ({"skill": {"ratio": 0.96}}, "caution", "no clear gain over a plain predictor, a Gaussian process"),
        ({"skill": {"ratio": 1.08}}, "caution", "does as well or better: a Gaussian process"),
        ({"skill": {"ratio": 1.08}}, "caution", "The CRPS of the fit is 8 % (± 5 %) higher."),
        ({"skill": {"ratio": 1.57, "best": "resampled"}}, "distrust", "does better: training trajectories resampled"),
        ({"skill": {"ratio": 1.57}}, "distrust", "57 % (± 5 %) higher; use the plain one instead"),
        ({"skill": {"ratio": 1.57, "num_trajectories": 2}}, "caution", "57 % (± 5 %) higher."),
        ({"skill": {"ratio_se": None}}, "caution", "On a single held-out trajectory"),
        ({"skill": {"ratio": None}}, "caution", "no training data"),
        ({"w1": {"ratio": 1.7}}, "caution", "1.7 times the sampling floor"),
        ({"w1": {"ratio": 2.5}}, "distrust", "do not match"),
        ({"energy_distance": {"ratio": 2.5}}, "caution", "2.5 times the sampling floor"),
        ({"energy_distance": {"ratio": 9.5}}, "caution", "9.5 times the sampling floor"),
        ({"coverage": {"90": 0.79}}, "distrust", "79 %"),
        ({"coverage": {"90": 0.83}, "coverage_check": {"low": 0.86}}, "caution", "too narrow"),
        ({"coverage": {"90": 0.5}}, "distrust", "too narrow"),
        ({"coverage": {"90": 0.99}}, "caution", "wider than needed"),
        ({"coverage": {"90": 1.0}}, "distrust", "wider than needed"),
        ({"posterior": {"relative_ess": 0.05}}, "caution", "approximate"),
        ({"posterior": {"relative_ess": 0.0009}}, "caution", "one draw in 1111 counts"),
        (
            {"posterior": {"relative_ess": 0.0009}, "coverage": {"90": 0.5}},
            "distrust",
            "held-out data do not confirm the bands",
        ),
        ({"posterior": {"k_hat": 0.9}}, "caution", "heavy"),
        ({"training": {"late_change": 0.2}}, "caution", "still decreasing"),
        ({"training": {"skipped": 3}}, "caution", "3 updates were skipped"),
    ],
)
def test_what_is_wrong_is_said_first(parts, level, words):
    found = changed(**parts)
    assert found["level"] == level and words in found["text"]
    assert found["text"].index(words) < found["text"].index("Training" if "training" not in parts else "as it should")


def test_what_was_not_measured_is_not_judged():
    found = judge({"w1": None, "coverage": {"90": float("nan")}, "training": None})
    assert found["checks"] == [] and found["level"] == "trust"


@pytest.mark.parametrize(("is_checked", "level"), [(True, "trust"), (False, "caution")])
def test_a_method_without_diagnostics_gets_a_reservation_whatever_its_words(is_checked, level):
    draws = {"method": "own", "is_trusted": True, "reason": "not checked by others", "is_checked": is_checked}
    assert judge({"posterior": draws})["level"] == level


def test_k_hat_says_nothing_where_the_weights_are_equal():
    assert len(changed(posterior={"relative_ess": 0.99, "k_hat": 0.9})["checks"]) == 6


@pytest.mark.parametrize("inside", [0.81, 0.97])
def test_a_coverage_within_its_limits_passes_whatever_it_is(inside):
    found = changed(coverage={"90": inside})
    assert found["level"] == "trust" and "within what chance allows" in found["text"]


@pytest.mark.parametrize("inside", [0.8, 0.9, 1.0])
def test_few_trajectories_cannot_tell_a_coverage_from_90_per_cent(inside):
    """80 % with a standard error of 15 % is not "as it should", nor is 90 %."""
    few = {"low": 0.38, "high": 1.0, "standard_error": 0.15, "num_trajectories": 3}
    text = changed(coverage={"90": inside}, coverage_check=few)["text"]
    assert "as it should" not in text
    assert "which cannot be told from 90 % with 3 trajectories (a right band holds 38 to 100 %)" in text
    few |= {"num_trajectories": 1}
    assert "with a single trajectory" in changed(coverage={"90": inside}, coverage_check=few)["text"]
    text = changed(coverage={"90": inside}, coverage_check=few, posterior={"relative_ess": 0.001})["text"]
    assert "stand on their coverage alone, of which the held-out data can say little" in text


def test_a_band_outside_its_limits_is_said_to_be_so_with_these_limits():
    text = changed(coverage={"90": 0.83}, coverage_check={"low": 0.86, "standard_error": 0.02})["text"]
    assert "contains 83 % of the held-out readings: it is too narrow, since a right band holds 86 to 98 %." in text


def test_a_demonstration_has_no_skill_to_check_and_a_fit_without_training_data_is_not_trusted():
    without = {key: value for key, value in GOOD.items() if key != "skill"}
    assert judge(without)["level"] == "trust"
    assert judge(without | {"skill": None})["level"] == "caution"
