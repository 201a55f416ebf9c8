"""Population fits of small models: modes kept, spread of the weights, and coverage of new units against n.

    python benchmarks/population_modes.py --seeds 0-19 --sizes 20 50 200 --noise 0 0.05 --out modes.jsonl

Units draw their weights from one normal component, two components, or a log-normal distribution, and are read at twelve
times, without and with measurement noise. `ln.fit(model=..., target="population")` sees n of them and every fit is
judged on 4000 new units:

- `readings`: share of new units' readings inside the 90 % band of observations, over times;
- `curves`: the same for their noise-free outputs and the band of the model;
- `W1 / floor`: W1 of the fitted weights to the true distribution, over the median W1 of n true weights (their mean);
- `std`: standard deviation of the fitted weights over the true one (mean over weights);
- `kept`: share of fits in which every component has at least half of the mass it has among the n units, within four of
  its standard deviations (only where all components have at least two units).

One Markdown row per model, population, noise and n: means over seeds, with their standard errors. Every fit is one line
of the file `--out`, written when it is made; the same command resumes with what is missing. With `--groups` nothing is
fitted: the last column is the share of data sets that the dip test finds to have several groups of units.
"""

import argparse
import itertools
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import langenode as ln
from langenode.config import parse_overrides
from langenode.data import find_modes

TIMES = np.linspace(0.25, 3.0, 12)
NUM_NEW = 4000


class Decay(eqx.Module):
    """y = exp(-rate t): one weight, and trajectories that are no straight line in it."""

    rate: jax.Array

    def __call__(self, times, inputs, initial=None):
        return jnp.exp(-self.rate * times)[:, None]


class Response(eqx.Module):
    """y = gain (1 - exp(-t)) + drift t / 3: two weights, linear in both."""

    gain: jax.Array
    drift: jax.Array

    def __call__(self, times, inputs, initial=None):
        return (self.gain * (1.0 - jnp.exp(-times)) + self.drift * times / 3.0)[:, None]


class Population(NamedTuple):
    """Components of equal shares: means and standard deviations, (component, weight); of the logarithms if `is_log`."""

    means: tuple[tuple[float, ...], ...]
    stds: tuple[tuple[float, ...], ...]
    is_log: bool = False

    def draw(self, num: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Weights, (unit, weight), and the component of each unit."""
        component = rng.integers(len(self.means), size=num)
        means, stds = np.asarray(self.means)[component], np.asarray(self.stds)[component]
        weights = means + stds * rng.standard_normal(means.shape)
        return np.exp(weights) if self.is_log else weights, component


class Case(NamedTuple):
    """A model before it is fitted, the same for arrays of weights, and populations of its weights by name."""

    model: Callable[[], Any]
    outputs: Callable[[np.ndarray], np.ndarray]
    populations: dict[str, Population]


def _decay(weights: np.ndarray) -> np.ndarray:
    return np.exp(-weights[:, :1] * TIMES)


def _response(weights: np.ndarray) -> np.ndarray:
    return weights[:, :1] * (1.0 - np.exp(-TIMES)) + weights[:, 1:] * TIMES / 3.0


CASES = {
    "decay": Case(
        lambda: Decay(jnp.asarray(0.7)),
        _decay,
        {
            "one": Population(((1.0,),), ((0.2,),)),
            "two": Population(((0.6,), (1.6,)), ((0.08,), (0.12,))),
            "log-normal": Population(((0.0,),), ((0.4,),), is_log=True),
        },
    ),
    "response": Case(
        lambda: Response(jnp.asarray(0.7), jnp.asarray(0.0)),
        _response,
        {
            "one": Population(((1.0, 0.5),), ((0.3, 0.2),)),
            "two": Population(((0.5, 0.7), (1.5, 0.3)), ((0.1, 0.1), (0.1, 0.1))),
            "log-normal": Population(((0.0, -1.0),), ((0.4, 0.4),), is_log=True),
        },
    ),
}


def make(case: Case, population: Population, num: int, noise: float, seed: int) -> tuple[ln.Dataset, np.ndarray]:
    """Readings of n units, and the component of each."""
    rng = np.random.default_rng([seed, num])
    weights, component = population.draw(num, rng)
    readings = case.outputs(weights) + noise * rng.standard_normal((num, len(TIMES)))
    return ln.Dataset.from_arrays(TIMES, readings[..., None]), component


def fit_one(case: Case, population: Population, num: int, noise: float, seed: int, options: dict[str, Any]) -> dict:
    """The scores of one fit."""
    data, component = make(case, population, num, noise, seed)
    begin = time.perf_counter()
    fit = ln.fit(data, model=case.model(), target="population", seed=seed, options=options, progress=False)
    seconds = time.perf_counter() - begin
    scores = judge(fit, case, population, data.select([0]), noise, np.random.default_rng([seed, num, 1]), num)
    return scores | {"kept": kept(fit, population, component), "seconds": seconds}


def judge(fit, case: Case, population: Population, one, noise: float, rng: np.random.Generator, num: int) -> dict:
    """Scores of a fit against the true population."""
    new, _ = population.draw(NUM_NEW, rng)
    curves = case.outputs(new)
    readings = curves + noise * rng.standard_normal(curves.shape)
    bands = fit.predict(one, num_samples=4000).sel(level=[0.05, 0.95])
    model, observed = (bands[name].to_numpy()[:, 0, :, 0] for name in ("quantiles", "observation_quantiles"))
    drawn = fit.flat_sample(4000)
    floor = [w1(population.draw(num, rng)[0], new) for _ in range(20)]
    return {
        "readings": float(((readings >= observed[0]) & (readings <= observed[1])).mean()),
        "curves": float(((curves >= model[0]) & (curves <= model[1])).mean()),
        "W1 / floor": float((w1(drawn, new) / np.median(floor, axis=0)).mean()),
        "std": float((drawn.std(0) / new.std(0)).mean()),
    }


def w1(a: np.ndarray, b: np.ndarray, num_levels: int = 2000) -> np.ndarray:
    """W1 of each column, by quantiles."""
    levels = (np.arange(num_levels) + 0.5) / num_levels
    return np.abs(np.quantile(a, levels, axis=0) - np.quantile(b, levels, axis=0)).mean(0)


def kept(fit, population: Population, component: np.ndarray) -> float | None:
    """Whether all components have mass: 1 or 0, None where there is one component, or too few units in one."""
    shares = np.bincount(component, minlength=len(population.means)) / len(component)
    if len(shares) == 1 or shares.min() * len(component) < 2:
        return None
    drawn = fit.flat_sample(4000)
    near = [
        (np.abs(drawn - np.asarray(mean)) < 4.0 * np.asarray(std)).all(1).mean()
        for mean, std in zip(population.means, population.stds, strict=True)
    ]
    return float(np.all(np.asarray(near) >= 0.5 * shares))


# The table

COLUMNS = ("readings", "curves", "W1 / floor", "std", "kept", "seconds")


def print_groups(arguments: argparse.Namespace) -> None:
    """How often several groups of units are found."""
    print("| model | population | noise | n | seeds | groups |\n|" + "---|" * 6)
    for name, kind, noise, num in all_keys(arguments):
        case, population = CASES[name], CASES[name].populations[kind]
        found = [find_modes(make(case, population, num, noise, s)[0]) is not None for s in arguments.seeds]
        print(f"| {name} | {kind} | {noise:g} | {num} | {len(found)} | {np.mean(found):.3f} |", flush=True)


def row(key: tuple[str, ...], found: list[dict]) -> str:
    """Means over seeds and their standard errors."""
    cells = [*key, str(len(found))]
    for name in COLUMNS:
        values = np.array([scores[name] for scores in found if scores[name] is not None], float)
        if len(values) == 0:
            cells.append("")
        elif name in ("kept", "seconds"):
            cells.append(f"{values.sum():.0f} of {len(values)}" if name == "kept" else f"{np.median(values):.1f}")
        else:
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            cells.append(f"{values.mean():.3f} ± {error:.3f}")
    return "| " + " | ".join(cells) + " |"


def all_keys(arguments: argparse.Namespace) -> list[tuple[str, str, float, int]]:
    """Return model, population, noise and n of every row."""
    return list(itertools.product(arguments.models, arguments.populations, arguments.noise, arguments.sizes))


def kept_fits(path: Path, settings: list[str]) -> dict[tuple, dict]:
    """Return the scores of the fits with these settings that are done, by model, population, noise, n and seed."""
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(*one["case"], one["seed"]): one for one in found if one["set"] == settings}


def add_missing(arguments: argparse.Namespace, out: Path) -> None:
    """Make the fits that are missing: one seed for all rows, then the next."""
    options, done = parse_overrides(arguments.set), kept_fits(out, arguments.set)
    for seed, key in itertools.product(arguments.seeds, all_keys(arguments)):
        if (*key, seed) in done:
            continue
        name, kind, noise, num = key
        case = CASES[name]
        scores = fit_one(case, case.populations[kind], num, noise, seed, options)
        with out.open("a") as file:
            file.write(json.dumps({"case": key, "set": arguments.set, "seed": seed, **scores}) + "\n")


def print_fits(arguments: argparse.Namespace) -> None:
    """The table of fits."""
    with tempfile.TemporaryDirectory() as folder:
        # Fits of one size run the same program: compiled once, it is read from there.
        jax.config.update("jax_compilation_cache_dir", f"{folder}/compiled")
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
        out = arguments.out or Path(folder) / "fits.jsonl"
        add_missing(arguments, out)
        done = kept_fits(out, arguments.set)
    header = ("model", "population", "noise", "n", "seeds", *COLUMNS)
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for name, kind, noise, num in all_keys(arguments):
        found = [done[name, kind, noise, num, seed] for seed in arguments.seeds]
        print(row((name, kind, f"{noise:g}", str(num)), found), flush=True)


def seeds(text: str) -> list[int]:
    """`3`, or `0-19` for a range with both ends."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seeds, default=seeds("0-19"))
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 50, 200])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.05])
    parser.add_argument("--models", choices=list(CASES), nargs="+", default=list(CASES))
    parser.add_argument("--populations", nargs="+", default=["one", "two", "log-normal"])
    parser.add_argument("--set", nargs="*", default=[], help="options of the fit, section.key=value")
    parser.add_argument("--groups", action="store_true", help="no fits: how often several groups are found")
    parser.add_argument("--out", type=Path, help="a file for the scores of every fit, one line each")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.groups:
        print_groups(arguments)
    else:
        print_fits(arguments)


if __name__ == "__main__":
    main()
