"""Mixed-effects models with the curve of the textbook, on the tables and divisions of `real_data.py`.

    python benchmarks/textbook_curves.py --tables /tmp/tables/csv --fits real_data

Run `real_data.py` first: its generic fits, in `--fits`, are scored on the same held-out subjects. A textbook's curve is
written by someone who knows the subject; the generic fit is told nothing. Both know the first reading of a subject, and
the curves are fitted as `ln.UnitModel` (whose likelihoods are nlme's on Theoph and Orange). One row per table: CRPS in
units of the spread of the training readings, coverage of 90 % bands, and the ratio of CRPS with its standard error by
trajectory, of the generic fit to the curve and to the best of the curve, the Gaussian process and resampling.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import real_data

import langenode as ln
from langenode.fitting.plain_predictors import PREDICTORS
from langenode.fitting.skill import Fold, fold_scores, plain_scores
from langenode.scores.skill import Scores, crps_ratio, mean_crps, pooled

LogNormal, Normal, Fixed = ln.LogNormal, ln.Normal, ln.Fixed


def one_compartment(times, inputs, p):
    """Doses in mg/kg, so volume and clearance are per kg as well."""
    ke = p.CL / p.V
    change = jnp.exp(-ke * times) - jnp.exp(-p.ka * times)
    return (inputs[:, 1] * p.ka / (p.V * (p.ka - ke)) * change)[:, None]


def biexponential(times, inputs, p):
    """A fast and a slow part."""
    return (p.A1 * jnp.exp(-p.k1 * times) + p.A2 * jnp.exp(-p.k2 * times))[:, None]


def logistic(times, inputs, p):
    """Growth to an asymptote, with a factor for every kind that is an input."""
    kinds = sum(inputs[:, k] * getattr(p, f"kind{k}") for k in range(inputs.shape[1]))
    return (p.top * jnp.exp(kinds) * jax.nn.sigmoid((times - p.middle) / p.scale))[:, None]


def asymptotic(times, inputs, p):
    """Growth that slows down from the beginning."""
    return (p.top + (p.origin - p.top) * jnp.exp(-p.rate * times))[:, None]


def line(times, inputs, p):
    """A straight line."""
    return (p.intercept + p.slope * times)[:, None]


def kinds(num: int) -> dict[str, Any]:
    """Shared factors of kinds, as logarithms."""
    return {f"kind{k}": Fixed(0.0) for k in range(num)}


CURVES = {
    "Theoph": (one_compartment, {"ka": LogNormal(1.5, 0.6), "V": LogNormal(0.5, 0.2), "CL": LogNormal(0.04, 0.3)}),
    "ChickWeight": (
        logistic,
        {"top": LogNormal(300.0, 0.3), "middle": LogNormal(15.0, 0.2), "scale": LogNormal(7.0, 0.1), **kinds(3)},
    ),
    "Orange": (
        logistic,
        {"top": LogNormal(190.0, 0.2), "middle": LogNormal(720.0, 0.1), "scale": LogNormal(340.0, 0.1)},
    ),
    "Loblolly": (
        asymptotic,
        {"top": LogNormal(100.0, 0.05), "rate": LogNormal(0.04, 0.05), "origin": Fixed(-8.0)},
    ),
    "Indometh": (
        biexponential,
        {"A1": LogNormal(2.8, 0.3), "k1": LogNormal(2.2, 0.2), "A2": LogNormal(0.6, 0.3), "k2": Fixed(0.25)},
    ),
    "Soybean": (
        logistic,
        {"top": LogNormal(17.0, 0.2), "middle": LogNormal(52.0, 0.05), "scale": LogNormal(7.5, 0.05), **kinds(3)},
    ),
    "sleepstudy": (line, {"intercept": Normal(250.0, 25.0), "slope": Normal(10.0, 6.0)}),
}


def fit_curve(name: str, train: Any, seed: int) -> Any:
    """A mixed-effects fit of the textbook's curve."""
    curve, effects = CURVES[name]
    model = ln.UnitModel(ln.Effects(**effects), curve)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ln.fit(train, model=model, seed=seed, progress=False)


class Found(NamedTuple):
    """Scores of all held-out subjects by predictor, and how often the curve's fit is not trusted."""

    scores: dict[str, Scores]
    verdicts: list[str]


def score_table(name: str, options: argparse.Namespace) -> Found:
    """Scores of every part, pooled."""
    data, subjects = real_data.read(name, options.tables)
    curves, generic, verdicts = [], [], []
    for number, is_held_out in enumerate(real_data.parts_of(subjects, options.seed)[: options.parts]):
        fit = fit_curve(name, data.select(~is_held_out), options.seed)
        verdicts.append(fit.evaluate(data.select(is_held_out))["verdict"]["level"])
        generic.append(real_data.predict_part(name, number, data, is_held_out, options))
        # The first reading is a start to the generic fit and a reading to the curve; given to both, and scored in none.
        samples = fit.predict_prepared(fit.prepared(data.select(is_held_out)))[1]
        if samples.shape[1:] != generic[-1].samples.shape[1:]:
            raise ValueError(
                f"part {number + 1} of the generic fits is a population, whose conditions share predictions"
            )
        curves.append(generic[-1]._replace(samples=samples))
    scores = {"generic": _pooled(generic), "curve": _pooled(curves)}
    for plain in PREDICTORS:
        found = plain_scores(plain, generic, options.seed)
        if found is not None:
            scores[plain] = found
    return Found(scores, verdicts)


def _pooled(folds: list[Fold]) -> Scores:
    return pooled([fold_scores(fold, fold.samples) for fold in folds])


def row(name: str, found: Found) -> str:
    """One row of the table."""
    scores = found.scores
    rivals = [one for one in ("curve", "gp", "resampled") if one in scores]
    best = min(rivals, key=lambda one: mean_crps(scores[one]))
    cells = [name, str(len(scores["generic"].crps))]
    names = ("generic", "curve", "gp", "resampled")
    cells += [f"{mean_crps(scores[one]):.3f}" if one in scores else "-" for one in names]
    cells += [_ratio(scores["generic"], scores["curve"]), f"{_ratio(scores['generic'], scores[best])} ({best})"]
    cells += [f"{100 * scores[one].inside.sum() / scores[one].count.sum():.0f} %" for one in ("generic", "curve")]
    counts = [f"{found.verdicts.count(level)} {level}" for level in sorted(set(found.verdicts))]
    return "| " + " | ".join([*cells, ", ".join(counts)]) + " |"


def _ratio(ours: Scores, other: Scores) -> str:
    ratio, error = crps_ratio(ours, other)
    return f"{ratio:.2f}" if error is None else f"{ratio:.2f} ± {error:.2f}"


HEADER = ("table", "subjects", "generic", "curve", "gp", "resampled", "generic / curve", "generic / best")
HEADER += ("90 % band of generic", "of curve", "verdicts of curve")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, required=True, help="the folder of the exported tables")
    parser.add_argument("--fits", dest="out", type=Path, default=Path("real_data"), help="the folder of real_data.py")
    parser.add_argument("--names", nargs="+", default=list(CURVES), choices=list(CURVES))
    parser.add_argument("--seed", type=int, default=0, help="of the division, as given to real_data.py")
    parser.add_argument("--parts", type=int, default=real_data.NUM_PARTS, help="held out, as given to real_data.py")
    options = parser.parse_args()
    jax.config.update("jax_compilation_cache_dir", str(options.out / "compiled"))
    print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER), flush=True)
    for name in options.names:
        try:
            print(row(name, score_table(name, options)), flush=True)
        except ValueError as problem:
            print(f"| {name} | {problem} |", flush=True)


if __name__ == "__main__":
    main()
