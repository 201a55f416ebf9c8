"""The verdict: each check can pass, doubt and fail, and states why."""

import copy

import pytest

from langenode.scores.verdict import judge

GOOD = {
    "w1": {"mean": 0.011, "floor": 0.01, "ratio": 1.1},
    "energy_distance": {"mean": 0.011, "floor": 0.01, "ratio": 1.1},
    "coverage": {"90": 0.9},
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
    assert found["level"] == "trust" and all(check["passed"] for check in found["checks"]) and len(found["checks"]) == 6


@pytest.mark.parametrize(
    ("parts", "level", "words"),
    [
        ({"w1": {"ratio": 1.5}}, "caution", "1.5 times the sampling floor"),
        ({"w1": {"ratio": 2.5}}, "distrust", "do not match"),
        ({"energy_distance": {"ratio": 2.5}}, "caution", "2.5 times the sampling floor"),
        ({"coverage": {"90": 0.75}}, "caution", "75 %"),
        ({"coverage": {"90": 0.5}}, "distrust", "too narrow"),
        ({"coverage": {"90": 1.0}}, "distrust", "wider than needed"),
        ({"posterior": {"relative_ess": 0.001}}, "caution", "approximate"),
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


def test_k_hat_says_nothing_where_the_weights_are_equal():
    assert len(changed(posterior={"relative_ess": 0.99, "k_hat": 0.9})["checks"]) == 5


@pytest.mark.parametrize(("is_checked", "level"), [(True, "trust"), (False, "caution")])
def test_a_method_without_diagnostics_gets_a_reservation_whatever_its_words(is_checked, level):
    draws = {"method": "own", "is_trusted": True, "reason": "not checked by others", "is_checked": is_checked}
    assert judge({"posterior": draws})["level"] == level
