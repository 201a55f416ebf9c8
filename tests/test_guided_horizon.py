"""Guided paths where modes overlap: the horizon is chosen, what is still missed is in the error or flagged."""

import jax
import numpy as np
import pytest
from overlapping_cases import all_cases, score

from langenode.posteriors.particles import Summary, Trust
from langenode.samplers.guided import GuidedSettings, guided_langevin
from langenode.samplers.guided.check import Check, Gap, compare, judge_gap
from langenode.samplers.guided.pilot import Candidate, _best, _better, _relative_ess, _scored

SMALL = GuidedSettings(num_paths=512, num_steps=16, num_start_iterations=20)
CASES = {case.name: case for case in all_cases()}


def candidate(eta, score, error, *, horizon=0.25, parts=(1.0, 1.0)):
    return Candidate(horizon, eta, score, error, np.asarray(parts))


def sample(case, settings, seed):
    return guided_langevin(case.density(), settings, key=jax.random.key(seed))


# --- the choice


def test_the_pilot_takes_the_best_score_less_its_error_or_the_median_where_that_is_not_known():
    def best(scores, errors):
        return _best([candidate(*one) for one in zip((100.0, 3.0, 10.0), scores, errors, strict=True)]).eta

    assert best((1.0, 5.0, 4.3), (0.1, 0.5, 0.1)) == 3.0  # 0.9, 4.5 and 4.2
    assert best((1.0, 5.0, 4.8), (0.1, 0.5, 0.1)) == 10.0  # 0.9, 4.5 and 4.7: not the highest score
    assert best((9.0, 4.4, 1.0), (0.9, 0.1, 0.1)) == 100.0  # an error below one nat
    assert best((9.0, 4.4, 1.0), (1.1, 0.1, 0.1)) == 10.0  # above: the median
    assert best((-np.inf,) * 3, (np.inf,) * 3) == 10.0


def test_the_shorter_horizon_must_be_better_path_by_path():
    """Paths of two horizons share their noise: only what differs counts as error."""
    parts = np.array([0.5, 1.5, 0.8, 1.2])
    long = candidate(1.0, 0.0, 0.4, parts=parts)
    alike = candidate(1.0, 0.1, 0.4, horizon=0.05, parts=parts)
    assert _better(long, alike) is alike
    assert _better(long, alike._replace(score=1e-6)) is long  # rounding
    unlike = alike._replace(parts=parts[::-1])  # differences of 0.7 and -0.7: an error of 0.81
    assert _better(long, unlike) is long
    assert _better(long, unlike._replace(score=0.9)).horizon == 0.05
    nothing = _scored(0.25, 1.0, np.full(4, -np.inf))
    assert _better(long, nothing) is long and _better(nothing, alike) is alike
    assert not _relative_ess(nothing) >= 0.0  # never a linear model


# --- the check


def test_only_more_evidence_at_the_shorter_horizon_counts_against_a_run():
    summary = Summary(log_evidence=-3.0, log_evidence_error=0.03, relative_ess=0.9, ancestors=1.0)
    more = compare(summary, Check(0.05, -2.8, 0.04, 100))
    assert more == pytest.approx(Gap(0.2, 0.05))
    assert more is not None and more.is_large and more.excess == pytest.approx(0.2)
    less = compare(summary, Check(0.05, -3.2, 0.04, 100))
    assert less is not None and not less.is_large and less.excess == 0.0
    assert not Gap(0.2, 0.07).is_large and not Gap(0.019, 1e-6).is_large
    assert compare(summary, Check(0.05, float("nan"), float("nan"), 100)) is None

    trusted, distrusted = Trust(True, "figures"), Trust(False, "few paths")
    verdict = judge_gap(trusted, more, 0.25)
    assert not verdict.is_trusted and "0.2 nats more, 4.0 errors" in verdict.reason
    assert judge_gap(trusted, less, 0.25) is trusted
    assert judge_gap(trusted, None, 0.25) is trusted
    assert judge_gap(distrusted, more, 0.25) is distrusted


@pytest.mark.slow
def test_a_long_horizon_that_misses_a_part_is_flagged():
    """Paths of horizon 0.5 find three quarters of the evidence with nearly equal weights, and say 0.01 of its log."""
    case = CASES["z^2 + 0.3 z = 1, sigma 0.2"]
    exact = case.exact().log_evidence
    for seed in range(3):
        found = sample(case, SMALL._replace(horizon=0.5, eta=0.0), seed)
        assert found.log_evidence - exact < -8.0 * found.sampling_error  # else there is nothing to find
        assert not found.trust.is_trusted and "miss a part of the posterior" in found.trust.reason
        assert abs(found.log_evidence - exact) < 4.0 * found.log_evidence_error
        assert found.sampled().diagnostics["horizon_gap"] > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_evidence_and_modes_are_within_their_errors_or_flagged(seed):
    flagged = []
    for case in CASES.values():
        found = sample(case, SMALL, seed)
        if not found.trust.is_trusted:
            flagged.append(case)
            continue
        result = score(case, case.exact(), found)
        assert result.is_right, f"{case.name}: {result}"
    assert not any(case.is_control for case in flagged)
    assert len(flagged) <= 3
