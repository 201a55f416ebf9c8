"""The verdict: whether to trust the fit, as a paragraph and a table of checks on the numbers of metrics.json.

Nothing is computed from data here. Thresholds are stated beside every value, with the share of runs in which a perfect
model would exceed them by chance, so that a reader can disagree.
"""

from collections.abc import Mapping
from typing import Any

from langenode.scores import chains
from langenode.scores.diagnostics import is_k_hat_telling
from langenode.scores.unit_checks import Check, listed, unit_checks

# A distance this many times above the threshold of doubt is a failure.
POOR_DISTANCE = 1.5
# A band that misses twice as often as it says, or never, fails (if more than chance is behind it).
NOMINAL, POOR_COVERAGE = 0.9, (0.8, 0.995)
# Standard error of a coverage up to which it says something: a right band is then told from one that fails.
TELLING_ERROR = 0.05
# Relative effective sample size below which draws are approximate, and below which they hardly represent their target.
GOOD_ESS, POOR_ESS = 0.1, 0.01
GOOD_K_HAT = 0.7
# Independent errors from which the noise can be calibrated; with fewer, bands are right on average over data sets only.
FEWEST_ERRORS = 5.0
# Trajectories from which it is known how alike the errors of one are, and so how many of them are independent.
FEWEST_CALIBRATING = 5
# A posterior owes too much to its prior where this share of its weights is about as wide as under the prior.
MOST_AS_WIDE = 0.5
# Standard errors by which a penalty may move the point estimate.
MOST_PENALTY_SHIFT = 1.0
# Largest share of the total decrease of the loss that the last fifth of training may contribute.
SETTLED = 0.05
# The best plain predictor by its key in metrics.json, in words.
PLAIN = {
    "resampled": "training trajectories resampled",
    "gp": "a Gaussian process on time, start and inputs",
    "carried": "the start carried on",
}
# A fit as good as the best plain predictor fails with this probability: two standard errors of many trajectories.
SKILL_FALSE_ALARM = 0.025


def judge(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict: `level` (trust, caution, distrust), `text` and `checks`."""
    checks = [check for check in _all_checks(metrics) if check]
    failed = [check for check in checks if check.passed is False]
    unsure = [check for check in checks if check.passed is None]
    level = "distrust" if failed else "caution" if unsure else "trust"
    opening = {
        "trust": "The fit passes every check that the data allow.",
        "caution": "The fit is usable, with reservations.",
        "distrust": "The fit fails at least one check; do not use its bands as they are.",
    }[level]
    passed = [check for check in checks if check.passed]
    text = " ".join([opening, *(check.says for check in (*failed, *unsure, *passed) if check.says)])
    return {"level": level, "text": text, "checks": [check._asdict() for check in checks]}


def _all_checks(metrics: Mapping[str, Any]) -> list[Check | None]:
    checks = [_skill(metrics), _w1(metrics), _energy_distance(metrics), _coverage(metrics)]
    checks += [*_sampler(metrics), training_check(metrics)]
    return [*checks, _calibration(metrics), _prior(metrics), _penalty(metrics), *unit_checks(metrics)]


def _skill(metrics: Mapping[str, Any]) -> Check | None:
    """Check that the fit beats the best of the plain predictors by more than the standard error of their ratio."""
    if "skill" not in metrics:
        return None
    found, name = metrics["skill"], "CRPS over that of the best plain predictor"
    wanted = "below 1 by more than its standard error"
    if found is None or found.get("ratio") is None:
        says = "Whether the fit beats plain predictors is unknown: there are no training data to make them from."
        return Check(name, "unknown", wanted, None, says)
    ratio, error, plain = found["ratio"], found["ratio_se"], PLAIN.get(found["best"]) or str(found["best"])
    if error is None:
        says = f"On a single held-out trajectory the CRPS of the fit is {ratio:.3g} times that of the best plain "
        says += f"predictor, {plain}: that does not show which is better."
        return Check(name, f"{ratio:.3g} ({found['best']})", wanted, None, says)
    value = f"{ratio:.3g} ± {error:.2g} ({found['best']})"
    passed = True if ratio + error < 1.0 else False if _is_much_worse(ratio, error, found["num_trajectories"]) else None
    wanted += f"; fails if above 1 by more than chance ({_rate(SKILL_FALSE_ALARM)} of fits that are as good)"
    return Check(name, value, wanted, passed, _skill_words(ratio, error, plain, passed))


def _is_much_worse(ratio: float, error: float, num: int) -> bool:
    from scipy.special import stdtrit

    return ratio - max(2.0, float(stdtrit(num - 1, 1.0 - SKILL_FALSE_ALARM))) * error > 1.0


def _skill_words(ratio: float, error: float, plain: str, passed: bool | None) -> str:
    by = "infinitely" if ratio == float("inf") else f"{100 * abs(ratio - 1.0):.0f} % (± {100 * error:.0f} %)"
    if passed:
        return f"On held-out trajectories its CRPS is {by} below that of the best plain predictor, {plain}."
    if passed is False:
        return f"A plain predictor does better: {plain}. The CRPS of the fit is {by} higher; use the plain one instead."
    if ratio > 1.0:
        return f"A plain predictor does as well or better: {plain}. The CRPS of the fit is {by} higher."
    return f"The fit is no clear gain over a plain predictor, {plain}: its CRPS is only {by} lower."


def _energy_distance(metrics: Mapping[str, Any]) -> Check | None:
    """Check whole trajectories too. Marginals can be right even if they are not, so this never fails the fit."""
    found = metrics.get("energy_distance")
    if not found or found.get("threshold") is None:
        return None
    ratio = found["ratio"]
    passed = True if ratio <= found["threshold"] else None
    says = ""
    if not passed:
        says = (
            f"The energy distance of whole trajectories to the test data is {ratio:.3g} times the sampling floor: the "
            "bands may be right, but the dependence between times or outputs is not reproduced."
        )
    return Check("energy distance to the test data", f"{found['mean']:.3g}", _below_floors(found), passed, says)


def _w1(metrics: Mapping[str, Any]) -> Check | None:
    found = metrics.get("w1")
    if not found or found.get("threshold") is None:
        return None
    ratio, threshold = found["ratio"], found["threshold"]
    passed = True if ratio <= threshold else False if ratio > POOR_DISTANCE * threshold else None
    data = f"{found.get('to', 'training')} data"
    says = f"W1 to the {data} is {ratio:.3g} times the sampling floor (W1 of two samples of the same distribution): "
    says += {
        True: "the predictions match the data as closely as samples of this size can show.",
        None: "the predictions differ somewhat from the data.",
        False: "the predictions do not match the data.",
    }[passed]
    return Check(f"W1 to the {data}", f"{found['mean']:.3g}", _below_floors(found), passed, says)


def _below_floors(found: Mapping[str, Any]) -> str:
    exceeded = f"a perfect model exceeds this in {_rate(found['false_alarm'])} of runs"
    return f"at most {found['threshold']:.3g} times the floor {found['floor']:.3g} ({exceeded})"


def _coverage(metrics: Mapping[str, Any]) -> Check | None:
    inside, found = (metrics.get("coverage") or {}).get("90"), metrics.get("coverage_check")
    if inside is None or inside != inside or not found:
        return None
    is_within = found["low"] <= inside <= found["high"]
    is_poor = not POOR_COVERAGE[0] <= inside <= POOR_COVERAGE[1]
    passed = True if is_within else False if is_poor else None
    says = f"The 90 % band contains {100 * inside:.0f} % of the held-out readings{_coverage_words(inside, found)}."
    wanted = f"{100 * found['low']:.0f} to {100 * found['high']:.0f} %, the range of a right band for "
    wanted += f"{found['num_readings']} readings of {found['num_trajectories']} trajectories "
    wanted += f"(all but {_rate(found['false_alarm'])} of runs)"
    return Check("coverage of the 90 % band, held out", f"{100 * inside:.1f} %", wanted, passed, says)


def _coverage_words(inside: float, found: Mapping[str, Any]) -> str:
    """Say what the coverage shows, given how much it varies by chance between as many held-out trajectories."""
    right = f"a right band holds {100 * found['low']:.0f} to {100 * found['high']:.0f} %"
    if not found["low"] <= inside <= found["high"]:
        return f": it is {'too narrow' if inside < NOMINAL else 'wider than needed'}, since {right}"
    if found["standard_error"] > TELLING_ERROR:
        num = found["num_trajectories"]
        few = "a single trajectory" if num == 1 else f"{num} trajectories"
        return f", which cannot be told from 90 % with {few} ({right})"
    if abs(inside - NOMINAL) <= found["standard_error"]:
        return ", as it should"
    return f", within what chance allows ({right})"


def _is_telling(metrics: Mapping[str, Any]) -> bool:
    """Whether there are enough held-out trajectories for their coverage to say something about the band."""
    found = metrics.get("coverage_check") or {}
    return found.get("standard_error", 1.0) <= TELLING_ERROR


def _rate(share: float) -> str:
    return f"{100 * share:.2g} %"


def _sampler(metrics: Mapping[str, Any]) -> list[Check]:
    """Check how well the sampler matches its target: a poor match makes the bands approximate, not useless."""
    found = metrics.get("posterior") or {}
    if "is_trusted" in found:
        return [_draws(found), *_function_space(found)]
    ess, k_hat = found.get("relative_ess"), found.get("k_hat")
    if ess is None and "unchecked" in found:
        says = f"The draws were not compared with the posterior of the weights ({found['unchecked']}); "
        says += "the bands stand on their coverage alone."
        return [Check("relative ESS", "not computed", f"at least {GOOD_ESS:g} (1 for a perfect sampler)", None, says)]
    if ess is None:
        return []
    passed = True if ess >= GOOD_ESS else None
    says = f"The sampler's importance weights have a relative effective sample size of {ess:.2g}"
    if passed:
        says += "."
    elif ess >= POOR_ESS:
        says += ": the posterior of the weights is approximate and the log-evidence a lower bound."
    else:
        passed = None if _is_covered(metrics) else False
        support = "held-out data do not confirm the bands"
        if passed is None:
            support = "the bands stand on their coverage alone"
            support += "" if _is_telling(metrics) else ", of which the held-out data can say little"
        says += f": one draw in {1 / ess:.0f} counts, so the draws do not represent the posterior; {support}."
    wanted = f"at least {GOOD_ESS:g} (1 for a perfect sampler)"
    checks = [Check("relative ESS", f"{ess:.3g}", wanted, passed, says)]
    if k_hat is not None and k_hat == k_hat and is_k_hat_telling(ess):
        passed = True if k_hat < GOOD_K_HAT else None
        says = "" if passed else f"Their tail is heavy (k-hat {k_hat:.2f})."
        checks.append(Check("k-hat", f"{k_hat:.2f}", f"below {GOOD_K_HAT:g}", passed, says))
    return checks


def _is_covered(metrics: Mapping[str, Any]) -> bool:
    """Whether held-out readings speak for the bands."""
    check = _coverage(metrics)
    return check is not None and check.passed is True


def _draws(found: Mapping[str, Any]) -> Check:
    """Check a method by its own diagnostics. One that has none never gets more than a reservation."""
    method, is_checked = found["method"], found.get("is_checked", True)
    passed = (True if is_checked else None) if found["is_trusted"] else False
    says = f"The draws of {method} pass the method's own diagnostics." if passed else ""
    if passed is False:
        says = f"The draws of {method} fail the method's own diagnostics: {found['reason']}."
    if passed is None:
        says = f"{method} has no diagnostic of how close its draws are to the posterior."
    if "replaced" in found:
        says += f" They replace those of {found['replaced']}, which failed their diagnostics."
    return Check(f"draws of {method}", found["reason"], "trusted by the method's own diagnostics", passed, says.strip())


def _function_space(found: Mapping[str, Any]) -> list[Check]:
    """Check chains by what they predict, inside the data and outside; outside they never fail the fit."""
    if "trusted_in" not in found:
        return []
    wanted = f"at most {chains.LARGEST_INSIDE:g} (median {chains.LARGEST_MEDIAN_INSIDE:g}), and "
    wanted += f"{chains.LARGEST_LOG_LIKELIHOOD:g} for the log-likelihood"
    value = f"{_r_hats(found.get('rhat_in'))}; log-likelihood {_number(found.get('rhat_log_likelihood'))}"
    says = "" if found["trusted_in"] else "Chains disagree in their predictions inside the data."
    inside = Check("R-hat inside the data", value, wanted, True if found["trusted_in"] else None, says)
    wanted = f"at most {chains.LARGEST_OUTSIDE:g}, {chains.LARGEST_SQUARED_NORM:g} for |z|^2, whose drift is at most "
    wanted += f"{chains.LARGEST_DRIFT:g} standard errors"
    value = f"{_r_hats(found.get('rhat_out'))}; |z|^2 {_number(found.get('rhat_squared_norm'))}, drift "
    value += _number(found.get("squared_norm_drift"))
    says = "Beyond the range of the training inputs and starts the chains agree too."
    if not found["trusted_out"]:
        says = "Beyond the range of the training inputs and starts the chains do not agree: do not rely on bands there."
    return [inside, Check("R-hat outside the data", value, wanted, True if found["trusted_out"] else None, says)]


def _r_hats(spread: Mapping[str, float] | None) -> str:
    return "unknown" if not spread else f"median {spread['median']:.3f}, largest {spread['max']:.3f}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def training_check(metrics: Mapping[str, Any]) -> Check | None:
    """Whether training has come to rest, after it has moved the sampler."""
    found = metrics.get("training")
    if not found:
        return None
    skipped, late = found["skipped"], found["late_change"]
    is_settled = late is None or late <= SETTLED
    passed = None if skipped or not is_settled else True
    late_text = "unknown" if late is None else f"{100 * late:.1f} %"
    value = f"{found['updates']} of {found['asked']} updates, {skipped} skipped, last fifth {late_text} of the decrease"
    says = "Training has converged." if passed else ""
    moved = found.get("motion") or {}
    if passed and not moved.get("has_moved", True) and moved.get("begins_at") == "local":
        says = "Training has settled close to the Gaussian approximation that it began with."
    elif passed and not moved.get("has_moved", True):
        says = (
            "The loss no longer decreases, but the sampler is where it was before training: the median standard "
            f"deviation of the weights was {moved['std_before']:.3g} and is {moved['std_after']:.3g}. Its spread is "
            "that of its start; if that is not meant to be the answer, train longer or with a larger learning rate."
        )
    if not is_settled:
        says = "The loss was still decreasing when training ended: more updates would help."
    if skipped:
        says += f" {skipped} updates were skipped because their loss or gradient was not finite."
    wanted = f"none skipped, at most {100 * SETTLED:.0f} %"
    if found.get("false_alarm") is not None:
        wanted += f" (a loss at rest seems to fall in {_rate(found['false_alarm'])} of runs)"
    return Check("training", value, wanted, passed, says.strip())


def _calibration(metrics: Mapping[str, Any]) -> Check | None:
    """Check that the noise was calibrated by several independent errors, to a factor that is one of noise."""
    found = metrics.get("calibration") or {}
    counts = found.get("num_independent")
    if not counts:
        return None
    fewest, says = min(counts), ""
    num = found.get("num_trajectories", FEWEST_CALIBRATING)
    if num < FEWEST_CALIBRATING:
        says = (
            f"The noise was calibrated by the errors of {num} trajectories, which do not tell how alike the errors of "
            "one trajectory are: the bands of this fit cannot be calibrated, and may be far too wide or too narrow."
        )
    elif fewest < FEWEST_ERRORS:
        says = (
            f"The noise was calibrated by {fewest:.1f} independent errors: the bands of this one fit cannot be "
            "calibrated, and may be far too wide or too narrow."
        )
    elif found.get("is_at_limit") or found.get("folds_at_limit"):
        says = (
            f"The errors on held-out trajectories ask for noise beyond what is noise ({_limit_words(found)}): the "
            "bands of this fit cannot be calibrated, and may be far too wide or too narrow."
        )
    elif found.get("from_windows"):
        says = (
            "Held out were windows of one or two trajectories, whose other windows were fitted: the bands of another "
            "trajectory, with its own start and inputs, cannot be calibrated."
        )
    wanted = (
        f"at least {FEWEST_ERRORS:g}, of at least {FEWEST_CALIBRATING} separate trajectories, and noise factors well "
        "within their limits"
    )
    return Check("independent errors behind the noise", f"{fewest:.3g}", wanted, None if says else True, says)


def _limit_words(found: Mapping[str, Any]) -> str:
    if found.get("is_at_limit"):
        return "its factor is at a limit, or near it"
    num = found["folds_at_limit"]
    return f"in {num} fold{'s' if num > 1 else ''} its factor is at a limit, or near it"


def _prior(metrics: Mapping[str, Any]) -> Check | None:
    """Check how much the data added to the prior, for weights with a meaning of their own."""
    found = metrics.get("posterior") or {}
    ratio, unknown = found.get("prior_width_ratio"), found.get("unidentified") or []
    if not ratio and not unknown:
        return None
    share = ratio["share_near_one"] if ratio else 0.0
    passed = None if unknown or share >= MOST_AS_WIDE else True
    says = ""
    if unknown:
        says = f"The data do not determine {listed(unknown)}: their bands are those of the prior."
    elif ratio and not passed:
        wide = [name for name, value in ratio["widest"].items() if value > 0.9]
        says = (
            f"The posterior of {100 * share:.0f} % of the weights ({listed(wide)}) is as wide as their prior: the "
            "data say little about them, and the prior decides."
        )
    value = f"{ratio['median']:.2g} of the prior's width (median)" if ratio else f"{len(unknown)} undetermined"
    return Check("posterior and prior", value, f"less than {100 * MOST_AS_WIDE:.0f} % as wide", passed, says)


def _penalty(metrics: Mapping[str, Any]) -> Check | None:
    shift = (metrics.get("mle") or {}).get("penalty_shift")
    if shift is None:
        return None
    passed = True if shift <= MOST_PENALTY_SHIFT else None
    says = (
        ""
        if passed
        else (f"The penalty on the weights moved the point estimate by {shift:.2g} standard errors; lower mle.penalty.")
    )
    wanted = f"at most {MOST_PENALTY_SHIFT:g} standard error"
    return Check("shift by the penalty", f"{shift:.2g} standard errors", wanted, passed, says)
