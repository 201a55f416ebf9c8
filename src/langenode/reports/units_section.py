"""The section of a report on units that differ: parameters, likelihood, shrinkage, and scores of held-out units."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from langenode.reports.pages import as_cell, as_mapping, as_text


def units_section(metrics: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the tables of the section; None where units do not differ, or nothing is known of them."""
    found = as_mapping(metrics.get("hierarchical"))
    tables = {
        "parameters": _parameters(found),
        "fit": _fit(found),
        "effects": _effects(found),
        "scores": _scores(metrics),
    }
    return tables if any(tables.values()) else None


def _parameters(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for row in _records(found.get("parameters")):
        cells = [_number(row.get("estimate"), "{:.4g}"), _number(row.get("se"), "{:.3g}"), _percent(row.get("rse"), 1)]
        rows.append({"label": as_text(row.get("name")), "cells": [as_cell(cell) for cell in cells]})
    return rows


def _fit(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the likelihood and how well it was integrated, one number per row."""
    value, error = found.get("log_likelihood"), found.get("log_likelihood_se")
    deviance = None
    if _is_number(value):
        deviance = f"{-2.0 * value:.2f}" + (f" ± {2.0 * error:.2g}" if _is_number(error) else "")
    ess, k_hat, npde = (as_mapping(found.get(key)) for key in ("ess", "k_hat", "npde"))
    rows = [
        ("−2 log-likelihood, ± its Monte Carlo error", deviance),
        ("AIC", _number(found.get("aic"), "{:.2f}")),
        ("BIC, by units", _number(found.get("bic"), "{:.2f}")),
        ("Estimated numbers", _number(found.get("num_parameters"), "{:d}")),
        ("Units", _number(found.get("num_units"), "{:d}")),
        ("Relative ESS, worst and median unit", _pair(ess.get("min"), ess.get("median"))),
        ("k-hat, worst and median unit", _pair(k_hat.get("max"), k_hat.get("median"))),
        ("NPDE, mean and variance", _pair(npde.get("mean"), npde.get("variance"))),
        ("NPDE, p of Kolmogorov-Smirnov", _number(npde.get("ks_p_value"), "{:.2g}")),
        ("Integration error, of the noise", _number(found.get("integration_error"), "{:.2g}")),
    ]
    return [{"label": label, "cell": as_cell(text)} for label, text in rows if text is not None]


def _effects(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    names, shrinkages, means, spreads = (
        value if isinstance(value, list) else []
        for value in (found.get(key) for key in ("effects", "shrinkage", "effects_mean", "effects_std"))
    )
    rows = []
    for name, shrinkage, mean, spread in zip(names, shrinkages, means, spreads, strict=False):
        cells = [_percent(shrinkage), _number(mean, "{:.2f}"), _number(spread, "{:.2f}")]
        rows.append({"label": as_text(name), "cells": [as_cell(cell) for cell in cells]})
    return rows


def _scores(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return scores of held-out units, new ones first, then with more and more readings given."""
    parts = [("nothing: a new unit", as_mapping(metrics.get("new_units")))]
    for row in _records(metrics.get("given_units")):
        given = as_text(row.get("num_given"))
        words = {"half": "half of its readings", "1": "its first reading"}
        parts.append((words.get(given, f"its first {given} readings"), row))
    rows = []
    for label, found in parts:
        if not found:
            continue
        inside = as_mapping(found.get("coverage"))
        texts = [_number(found.get(key), style) for key, style in (("log_score", "{:.3f}"), ("crps", "{:.4g}"))]
        texts += [_percent(inside.get(level)) for level in ("50", "90", "95")]
        texts.append(_number(found.get("num_readings"), "{:d}"))
        rows.append({"label": label, "cells": [as_cell(text) for text in texts]})
    return rows


def _records(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any, style: str) -> str | None:
    if not _is_number(value) or (style == "{:d}" and not isinstance(value, int)):
        return None
    return style.format(value).replace("-", "−")


def _percent(share: Any, digits: int = 0) -> str | None:
    if not _is_number(share):
        return None
    rounded = round(100 * share, digits) + 0.0  # without a sign of zero
    return f"{rounded:.{digits}f} %".replace("-", "−")


def _pair(first: Any, second: Any) -> str | None:
    texts = [_number(value, "{:.2f}") for value in (first, second)]
    return None if None in texts else ", ".join(str(text) for text in texts)
