"""Checks of a fit in which units differ, on the numbers of metrics.json. None fails a fit: held-out readings do.

Each is a way in which the numbers, intervals or figures of such a fit may mislead although its bands are right.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# Relative effective sample size of the worst unit.
GOOD_UNIT_ESS = 0.1
# Nats by which log-likelihoods with other integration points may differ.
MOST_MONTE_CARLO = 1.0
# Standard errors by the sandwich over those by the information.
MOST_SANDWICH = 2.0
# A right model has a smaller p-value than this in as many runs.
LEAST_P_VALUE = 0.01
# Error of the integrator in standard deviations of the noise.
MOST_INTEGRATION_ERROR = 0.1
# By how much the standard deviation of the units' effects, pooled, may differ from one.
MOST_SPREAD = 0.25
# Above this share, plots of the units' best estimates mislead.
MOST_SHRINKAGE = 0.5


class Check(NamedTuple):
    """One number compared with its target. `passed` is None where it lies between good and poor."""

    name: str
    value: str
    wanted: str
    passed: bool | None
    says: str


def unit_checks(metrics: Mapping[str, Any]) -> list[Check]:
    """Return the checks that the numbers allow; none for other fits."""
    found = metrics.get("hierarchical")
    if not found:
        return []
    of_estimate = (_search, _importance, _monte_carlo, _information, _sandwich)
    makers = (*of_estimate, _npde, _integration, _effects, _shrinkage)
    return [check for check in (make(found) for make in makers) if check is not None]


def _doubt(is_good: bool) -> bool | None:
    return True if is_good else None


def _search(found: Mapping[str, Any]) -> Check | None:
    is_done = found.get("has_converged")
    if is_done is None:
        return None
    says = ""
    if not is_done:
        says = (
            "The search for the maximum of the likelihood ended before it had converged; raise "
            "hierarchical.num_laplace and hierarchical.num_importance."
        )
    return Check("search for the maximum", "converged" if is_done else "stopped", "converged", _doubt(is_done), says)


def _importance(found: Mapping[str, Any]) -> Check | None:
    ess = (found.get("ess") or {}).get("min")
    if ess is None:
        return None
    passed = _doubt(ess >= GOOD_UNIT_ESS)
    says = ""
    if not passed:
        says = (
            f"The importance weights of one unit have a relative effective sample size of {ess:.2g}: its likelihood, "
            "and with it the estimate, is approximate; raise hierarchical.num_points."
        )
    return Check("relative ESS of the worst unit", f"{ess:.3g}", f"at least {GOOD_UNIT_ESS:g}", passed, says)


def _monte_carlo(found: Mapping[str, Any]) -> Check | None:
    """Check by how much two log-likelihoods with independent points differ; known is the error of their mean."""
    error = found.get("log_likelihood_se")
    if error is None or error != error:
        return None
    difference = 2.0 * error  # the standard error of a mean of two is half their difference
    passed = _doubt(difference <= MOST_MONTE_CARLO)
    says = ""
    if not passed:
        says = (
            f"With other integration points the log-likelihood changes by {difference:.2g}: it and the information "
            "criteria are uncertain by as much."
        )
    wanted = f"at most {MOST_MONTE_CARLO:g} nat"
    return Check("log-likelihood with other points", f"differs by {difference:.2g}", wanted, passed, says)


def _information(found: Mapping[str, Any]) -> Check | None:
    is_positive = found.get("information_is_positive")
    if is_positive is None:
        return None
    says = ""
    if not is_positive:
        says = (
            "The information matrix is not positive definite: the data do not determine all parameters, or the search "
            "has not converged; standard errors are not to be relied on."
        )
    value = "positive definite" if is_positive else "not positive definite"
    return Check("information matrix", value, "positive definite", _doubt(is_positive), says)


def _sandwich(found: Mapping[str, Any]) -> Check | None:
    ratio = found.get("sandwich_ratio")
    if ratio is None:
        return None
    passed = _doubt(ratio <= MOST_SANDWICH)
    says = ""
    if not passed:
        says = (
            f"Standard errors by the scatter of the units are up to {ratio:.2g} times those by the curvature of the "
            "likelihood: the model does not describe how units differ, or units are few."
        )
    return Check("sandwich over model standard error", f"{ratio:.3g}", f"at most {MOST_SANDWICH:g}", passed, says)


def _npde(found: Mapping[str, Any]) -> Check | None:
    errors = found.get("npde")
    if not errors:
        return None
    p = errors["ks_p_value"]
    passed = _doubt(p >= LEAST_P_VALUE)
    says = ""
    if not passed:
        says = (
            f"The prediction errors of the training units (NPDE) are not N(0, 1): mean {errors['mean']:.2g}, variance "
            f"{errors['variance']:.2g}, p = {p:.1g}. The model or the distribution of its effects is wrong somewhere; "
            "the figures show at what times."
        )
    wanted = f"at least {LEAST_P_VALUE:g} (a right model has less in {100 * LEAST_P_VALUE:g} % of runs)"
    return Check("NPDE, p of Kolmogorov-Smirnov", f"{p:.2g}", wanted, passed, says)


def _integration(found: Mapping[str, Any]) -> Check | None:
    error = found.get("integration_error")
    if error is None:
        return None
    passed = _doubt(error <= MOST_INTEGRATION_ERROR)
    says = ""
    if not passed:
        says = (
            f"At fast units of the fitted distribution the integrator's error is {error:.2g} of the noise, and is "
            "booked as noise or as differences between units; lower model.largest_step, or add solver substeps."
        )
    wanted = f"at most {MOST_INTEGRATION_ERROR:g} of the noise"
    return Check("integration error", f"{error:.2g}", wanted, passed, says)


def _effects(found: Mapping[str, Any]) -> Check | None:
    spreads = found.get("effects_std")
    if not spreads:
        return None
    worst = max(range(len(spreads)), key=lambda place: abs(spreads[place] - 1.0))
    passed = _doubt(abs(spreads[worst] - 1.0) <= MOST_SPREAD)
    says = ""
    if not passed:
        says = (
            f"Effects of the units ({_name(found, worst)}), pooled, have a standard deviation of {spreads[worst]:.2g} "
            "in place of 1: new units are not drawn as the present ones differ."
        )
    wanted = f"{1.0 - MOST_SPREAD:g} to {1.0 + MOST_SPREAD:g}"
    return Check("standard deviation of pooled effects", f"{spreads[worst]:.3g}", wanted, passed, says)


def _shrinkage(found: Mapping[str, Any]) -> Check | None:
    """Say where single units are hardly known; that is no fault of the fit."""
    shares = found.get("shrinkage")
    if not shares:
        return None
    large = [_name(found, place) for place, share in enumerate(shares) if share > MOST_SHRINKAGE]
    says = ""
    if large:
        says = (
            f"Note: the shrinkage of {listed(large)} is above {100 * MOST_SHRINKAGE:.0f} %, so single units are hardly "
            "known there, and plots of their estimates mislead; look at draws."
        )
    wanted = f"noted above {100 * MOST_SHRINKAGE:.0f} %"
    return Check("shrinkage of effects, largest", f"{100 * max(shares):.0f} %", wanted, True, says)


def _name(found: Mapping[str, Any], place: int) -> str:
    names: Sequence[str] = found.get("effects") or []
    return str(names[place]) if place < len(names) else f"effect {place + 1}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
