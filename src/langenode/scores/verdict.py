"""Is the fit to be trusted? A paragraph and a table of checks from the numbers of metrics.json.

Nothing is computed from data here. Thresholds are stated beside every value, so that a reader can disagree.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from langenode.scores.diagnostics import is_k_hat_telling

# Above these the two laws differ by more than the scatter of samples of their size.
GOOD_W1, POOR_W1 = 1.3, 2.0
# A 90 % band that holds between these shares of held-out readings is as good as a few trajectories can show.
GOOD_COVERAGE, POOR_COVERAGE = (0.8, 0.97), (0.7, 0.995)
GOOD_ESS = 0.1
GOOD_K_HAT = 0.7
# Of the loss's whole fall, what the last fifth of training may still have brought.
SETTLED = 0.05


class Check(NamedTuple):
    """One number against what it should be. `passed` is None where it lies between good and poor."""

    name: str
    value: str
    wanted: str
    passed: bool | None
    says: str


def judge(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict: `level` (trust, caution, distrust), `text` and `checks`."""
    checks = [check for check in _all_checks(metrics) if check]
    failed = [check for check in checks if check.passed is False]
    unsure = [check for check in checks if check.passed is None]
    level = "distrust" if failed else "caution" if unsure else "trust"
    opening = {
        "trust": "The fit passes every check that the data allow.",
        "caution": "The fit is usable, with a reservation.",
        "distrust": "The fit fails a check; do not use its bands as they are.",
    }[level]
    passed = [check for check in checks if check.passed]
    text = " ".join([opening, *(check.says for check in (*failed, *unsure, *passed) if check.says)])
    return {"level": level, "text": text, "checks": [check._asdict() for check in checks]}


def _all_checks(metrics: Mapping[str, Any]) -> list[Check | None]:
    checks = [_w1(metrics), _energy_distance(metrics), _coverage(metrics)]
    return [*checks, *_sampler(metrics), _training(metrics)]


def _energy_distance(metrics: Mapping[str, Any]) -> Check | None:
    """Whether whole trajectories come out right, too: marginals can be right without; so it is a reservation."""
    found = metrics.get("energy_distance")
    if not found:
        return None
    ratio = found["ratio"]
    passed = True if ratio <= GOOD_W1 else None
    says = ""
    if not passed:
        says = (
            f"Whole trajectories are {ratio:.1f} times as far from test data, in energy distance, as two samples of "
            "one law are: bands may be right, but not how times and outputs go together."
        )
    wanted = f"at most {GOOD_W1:g} times the floor {found['floor']:.3g}"
    return Check("energy distance to the test data", f"{found['mean']:.3g}", wanted, passed, says)


def _w1(metrics: Mapping[str, Any]) -> Check | None:
    found = metrics.get("w1")
    if not found:
        return None
    ratio = found["ratio"]
    passed = True if ratio <= GOOD_W1 else False if ratio > POOR_W1 else None
    data = f"{found.get('to', 'training')} data"
    says = (
        f"The predicted marginals are {ratio:.2f} times as far from the {data} as two samples of one law are "
        "from each other"
    )
    says += ", which is as near as can be told." if passed else ", so they differ from the data's."
    wanted = f"at most {GOOD_W1:g} times the floor {found['floor']:.3g}"
    return Check(f"W1 to the {data}", f"{found['mean']:.3g}", wanted, passed, says)


def _coverage(metrics: Mapping[str, Any]) -> Check | None:
    inside = (metrics.get("coverage") or {}).get("90")
    if inside is None or inside != inside:
        return None
    passed = _between(inside, GOOD_COVERAGE, POOR_COVERAGE)
    how = "as they should" if passed else "too few" if inside < 0.9 else "too many: the bands are wider than needed"
    says = f"Of held-out readings {100 * inside:.0f} % lie inside the 90 % band, {how}."
    wanted = f"{100 * GOOD_COVERAGE[0]:.0f} to {100 * GOOD_COVERAGE[1]:.0f} %"
    return Check("coverage of the 90 % band, held out", f"{100 * inside:.1f} %", wanted, passed, says)


def _between(value: float, good: tuple[float, float], poor: tuple[float, float]) -> bool | None:
    if good[0] <= value <= good[1]:
        return True
    return None if poor[0] <= value <= poor[1] else False


def _sampler(metrics: Mapping[str, Any]) -> list[Check]:
    """How well the sampler's law matches its target: a poor match makes bands approximate, not useless."""
    found = metrics.get("posterior") or {}
    if "is_trusted" in found:
        return [_draws(found)]
    ess, k_hat = found.get("relative_ess"), found.get("k_hat")
    if ess is None:
        return []
    passed = True if ess >= GOOD_ESS else None
    says = f"The sampler's importance weights have a relative effective sample size of {ess:.2g}"
    says += "." if passed else ", so the posterior of the weights is approximate and the log-evidence a lower bound."
    checks = [Check("relative ESS", f"{ess:.3g}", f"at least {GOOD_ESS:g}", passed, says)]
    if k_hat is not None and k_hat == k_hat and is_k_hat_telling(ess):
        passed = True if k_hat < GOOD_K_HAT else None
        says = "" if passed else f"Their tail is heavy (k-hat {k_hat:.2f})."
        checks.append(Check("k-hat", f"{k_hat:.2f}", f"below {GOOD_K_HAT:g}", passed, says))
    return checks


def _draws(found: Mapping[str, Any]) -> Check:
    """What a method that draws says of itself. One that cannot check itself gets no more than a reservation."""
    method, is_checked = found["method"], not found["reason"].startswith("not checked")
    passed = (True if is_checked else None) if found["is_trusted"] else False
    says = f"The draws of {method} pass its own checks." if passed else ""
    if passed is False:
        says = f"The draws of {method} fail its own checks: {found['reason']}."
    if passed is None:
        says = f"{method} cannot tell how far its draws are from the posterior."
    if "replaced" in found:
        says += f" They take the place of those of {found['replaced']}, which were not to be trusted."
    return Check(f"draws of {method}", found["reason"], "trusted by the method's own diagnostics", passed, says.strip())


def _training(metrics: Mapping[str, Any]) -> Check | None:
    found = metrics.get("training")
    if not found:
        return None
    skipped, late = found["skipped"], found["late_change"]
    is_settled = late is None or late <= SETTLED
    passed = None if skipped or not is_settled else True
    late_text = "not known" if late is None else f"{100 * late:.1f} %"
    value = f"{found['updates']} of {found['asked']} updates, {skipped} skipped, last fifth {late_text} of the fall"
    says = "Training had come to rest." if passed else ""
    if not is_settled:
        says = "The loss was still falling when training ended: more updates would help."
    if skipped:
        says += f" {skipped} updates were skipped because they were not finite."
    return Check("training", value, f"none skipped, at most {100 * SETTLED:.0f} %", passed, says.strip())
