"""Samplers against posteriors whose truth is known: how wrong, how sure of themselves, how slow.

    python benchmarks/posteriors.py reference --case decay@1
    python benchmarks/posteriors.py run --cases linear ou decay@1 net-3 --methods guided nuts smc --seeds 1 2 3

`reference` makes the truth of a case that has none by a formula: independent islands of a long tempered SMC, kept in
`benchmarks/references/` with how well they agree. `run` prints a Markdown table and writes the same numbers as JSON.
Options of a method follow a colon: `guided:horizon=2,num_steps=64`. In the table:

- mean: root mean square over the judged quantities of the error of their mean, in reference standard deviations;
- std: the median ratio of their standard deviation to the reference's;
- energy: `E|x - y| - E|x - x'|/2 - E|y - y'|/2` of the judged quantities, standardised, over the root of their number;
- evidence: log-evidence less the reference's, in nats; ESS and ancestors: shares; k evals: thousand model runs;
- rhat in, rhat out: median/largest split R-hat of predictions inside and outside the data; rhat LL: of the
  log-likelihood; in, out: whether the two verdicts trust the draws;
- cold cpu, cpu s: of all cores in the first and in the warm run, which other work on the machine changes less than
  wall times.

mean out and std out are the same at the probe inputs outside the data. A case without a reference is judged by the
draws of the first seed that was run, so that two seeds are compared. `reference --by METHOD` makes one by a long run
of a method, e.g. `--by ensemble_hmc:least_transitions=1280,most_transitions=1280,num_draws=20480`. `run --once` does
not repeat the first seed to time it warm.
"""

import argparse
import importlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from posterior_cases import NAMES, Case, Reference, make_case
from tempering import tempered_smc

from langenode.inference import sharding
from langenode.posteriors.density import Density, Sampled
from langenode.samplers import laplace
from langenode.samplers.guided import GuidedSettings, guided_langevin

FOLDER = Path(__file__).parent / "references"
COLUMNS = (
    *("mean", "std", "mean out", "std out", "energy", "evidence", "ESS", "ancestors", "trusted"),
    *("rhat in", "rhat out", "rhat LL", "in", "out", "cold s", "cold cpu", "warm s", "cpu s", "k evals"),
)
SECONDS = ("cold s", "cold cpu", "warm s", "cpu s", "k evals")
RIVALS = ("mclmc", "mile", "blackjax_nuts", "bde")  # of rivals.py


# --- references


def make_reference(case: Case, *, num: int, num_islands: int, num_moves: int, num_last_moves: int, seed: int) -> dict:
    """Islands of tempered SMC of their own seeds; the mean over islands, weighted by their evidence."""
    found = []
    for island in range(num_islands):
        begin = time.perf_counter()
        run = tempered_smc(
            case.density,
            num=num,
            num_moves=num_moves,
            num_last_moves=num_last_moves,
            key=jax.random.key(seed + island),
        )
        values = np.asarray(jax.jit(jax.vmap(case.judged))(run.draws), float)
        found.append((run.log_evidence, values, time.perf_counter() - begin))
        print(f"island {island}: log-evidence {run.log_evidence:.3f}, {found[-1][2]:.0f} s", flush=True)
    return _pool(case, found) | {
        "made": {
            "by": "islands of tempered SMC with HMC moves",
            "draws_an_island": num,
            "moves": num_moves,
            "last_moves": num_last_moves,
            "seeds": [seed + island for island in range(num_islands)],
            "seconds": round(sum(seconds for *_, seconds in found)),
        }
    }


def long_run(case: Case, method: str, seed: int) -> dict:
    """A reference by one long run of a method."""
    function, options = method_of(method)
    begin = time.perf_counter()
    sampled = function(case.density, key=jax.random.key(seed), **options)
    mean, std, mean_out, std_out = _moments(case, sampled)
    made = {"by": method, "seed": seed, "seconds": round(time.perf_counter() - begin), "reason": sampled.trust.reason}
    outside = {} if mean_out is None else {"mean_out": _rounded(mean_out), "std_out": _rounded(std_out)}
    return {"case": case.name, "mean": _rounded(mean), "std": _rounded(std), **outside, "made": made}


def _moments(case: Case, sampled: Sampled) -> tuple[Any, ...]:
    """Mean and standard deviation of what is judged, then those at the probe inputs; none where there are no probes."""
    log_weights = np.asarray(sampled.log_weights, float)
    shares = np.exp(log_weights - log_weights.max())
    shares /= shares.sum()
    found: list[Any] = []
    for function in (case.judged, case.density.probe):
        if function is None:
            found += [None, None]
            continue
        values = _values(function, sampled)
        mean = shares @ values
        found += [mean, np.sqrt(shares @ (values - mean) ** 2)]
    return tuple(found)


def _values(function: Callable[..., Any], sampled: Sampled) -> np.ndarray:
    """A function of every draw; of `laplace_linearised` that of the model linearised about the mode."""
    if sampled.diagnostics.get("linearised") is None or sampled.centre is None:
        return np.asarray(jax.jit(jax.vmap(function))(sampled.draws), float)
    at_mode, slope = jax.linearize(function, sampled.centre)
    return np.asarray(at_mode + jax.jit(jax.vmap(slope))(sampled.draws - sampled.centre), float)


def _pool(case: Case, found: list) -> dict:
    evidences = np.array([evidence for evidence, *_ in found])
    shares = np.exp(evidences - evidences.max())
    log_evidence = evidences.max() + np.log(shares.mean())
    shares /= shares.sum()
    means, squares = (np.stack([(values**power).mean(0) for _, values, _ in found]) for power in (1, 2))
    mean = shares @ means
    std = np.sqrt(shares @ squares - mean**2)
    spread = np.sqrt(squares - means**2) / std
    return {
        "case": case.name,
        "mean": _rounded(mean),
        "std": _rounded(std),
        "log_evidence": round(float(log_evidence), 3),
        "log_evidence_error": round(float(evidences.std(ddof=1) / np.sqrt(len(found))), 3),
        "islands": {
            "log_evidence": [round(float(e), 3) for e in evidences],
            "mean_error": [round(float(np.sqrt(np.mean(((m - mean) / std) ** 2))), 4) for m in means],
            "std_ratio": [round(float(np.median(ratio)), 4) for ratio in spread],
        },
    }


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def read_reference(case: Case) -> Reference | None:
    """The exact one, or the long run's; None where there is neither."""
    if case.exact is not None:
        return case.exact()
    path = FOLDER / f"{case.name}.json"
    if not path.exists():
        return None
    kept = json.loads(path.read_text())
    outside = [np.array(kept[name]) if name in kept else None for name in ("mean_out", "std_out")]
    evidence = kept.get("log_evidence"), kept.get("log_evidence_error")
    return Reference(np.array(kept["mean"]), np.array(kept["std"]), *evidence, None, kept["made"], *outside)


def of_draws(case: Case, sampled: Sampled, seed: int) -> Reference:
    """The draws of one seed, for others to be compared with."""
    mean, std, *outside = _moments(case, sampled)
    return Reference(mean, std, None, None, None, {"by": f"seed {seed}"}, *outside)


# --- methods


def guided(density: Density, *, key: Any, **options: Any) -> Sampled:
    """Our sampler, as the others are called."""
    return guided_langevin(density, GuidedSettings(**options), key=key).sampled()


def laplace_linearised(density: Density, *, key: Any, **options: Any) -> Sampled:
    """Laplace's approximation that predicts through the linearised model, as ours does by default."""
    sampled = laplace(density, key=key, **options)
    return sampled._replace(diagnostics={**sampled.diagnostics, "linearised": True})


OWN = {"guided": guided, "laplace_linearised": laplace_linearised}


def method_of(text: str) -> tuple[Callable[..., Sampled], dict[str, Any]]:
    """`name:option=number,...`: the function of that name here, in `rivals` or in `langenode.samplers`; its options."""
    name, _, words = text.partition(":")
    pairs = [word.split("=") for word in words.split(",") if word]
    options = {key: float(value) if "." in value else int(value) for key, value in pairs}
    if name in OWN:
        return OWN[name], options
    if name in RIVALS:
        return getattr(importlib.import_module("rivals"), name), options
    return getattr(importlib.import_module("langenode.samplers"), name), options


# --- scores


def score(case: Case, reference: Reference | None, sampled: Sampled) -> dict[str, Any]:
    """How wrong the draws are, and what they say of themselves."""
    told = dict(sampled.diagnostics)
    found = {
        "evidence": None,
        "ESS": told.get("relative_ess"),
        "ancestors": told.get("ancestors"),
        "trusted": bool(sampled.trust.is_trusted),
        "rhat in": _two(told.get("rhat_in")),
        "rhat out": _two(told.get("rhat_out")),
        "rhat LL": told.get("rhat_log_likelihood"),
        "in": told.get("trusted_in"),
        "out": told.get("trusted_out"),
        "k evals": told["num_evaluations"] / 1000 if told.get("num_evaluations") is not None else None,
        "told": {name: value for name, value in told.items() if isinstance(value, int | float | dict | None)},
    }
    return found | ({} if reference is None else _errors(case, reference, sampled))


def _two(spread: dict[str, float] | None) -> str | None:
    return None if spread is None else f"{spread['median']:.3f}/{spread['max']:.3f}"


def _errors(case: Case, reference: Reference, sampled: Sampled) -> dict[str, Any]:
    mean, std, mean_out, std_out = _moments(case, sampled)
    found: dict[str, Any] = dict(zip(("mean", "std"), _distance(mean, std, reference.mean, reference.std), strict=True))
    if reference.mean_out is not None:
        outside = _distance(mean_out, std_out, reference.mean_out, reference.std_out)
        found |= dict(zip(("mean out", "std out"), outside, strict=True))
    if reference.draws is not None:
        values = _values(case.judged, sampled)
        log_weights = np.asarray(sampled.log_weights, float)
        shares = np.exp(log_weights - log_weights.max())
        found["energy"] = energy_distance(values, shares / shares.sum(), reference)
    if reference.log_evidence is not None and sampled.diagnostics.get("log_evidence") is not None:
        found["evidence"] = sampled.diagnostics["log_evidence"] - reference.log_evidence
    return found


def _distance(mean: Any, std: Any, true_mean: Any, true_std: Any) -> tuple[float, float]:
    return float(np.sqrt(np.mean(((mean - true_mean) / true_std) ** 2))), float(np.median(std / true_std))


def energy_distance(values: np.ndarray, shares: np.ndarray, reference: Reference, num: int = 1000) -> float:
    """Of `num` resampled draws and as many exact ones; it may be slightly negative by chance."""
    assert reference.draws is not None
    rng = np.random.default_rng(0)
    scale = reference.std * np.sqrt(len(reference.std))
    x, y = values[rng.choice(len(values), num, p=shares)] / scale, reference.draws[:num] / scale

    def mean_distance(a, b):
        squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2.0 * a @ b.T
        return float(np.sqrt(np.maximum(squares, 0.0)).sum())

    within = [mean_distance(a, a) / (num * (num - 1)) for a in (x, y)]
    return mean_distance(x, y) / num**2 - 0.5 * sum(within)


def run_one(case: Case, reference: Reference | None, method: str, seed: int, repeats: bool, is_first: bool) -> Any:
    """One row with its draws; where it `repeats`, the second run has nothing to compile."""
    function, options = method_of(method)

    def once() -> tuple[Sampled, float, float]:
        begin, begin_work = time.perf_counter(), time.process_time()
        sampled = function(case.density, key=jax.random.key(seed), **options)
        jax.block_until_ready(sampled.draws)
        return sampled, time.perf_counter() - begin, time.process_time() - begin_work

    first = once()
    again = once() if repeats else first
    found = {"case": case.name, "method": method, "seed": seed} | score(case, reference, again[0])
    if is_first:
        found |= {"cold s": first[1], "cold cpu": first[2]}
    if repeats or not is_first:
        found |= {"warm s": again[1], "cpu s": again[2]}
    return found, again[0]


def run(cases: list[str], methods: list[str], seeds: list[int], out: Path | None, once: bool = False) -> None:
    """All of them, a row each as it is done."""
    rows = []
    print("| case | method | seed | " + " | ".join(COLUMNS) + " |", "|---" * (3 + len(COLUMNS)) + "|", sep="\n")
    for name in cases:
        case = make_case(name)
        reference = read_reference(case)
        for method in methods:
            for i, seed in enumerate(seeds):
                try:
                    row, sampled = run_one(case, reference, method, seed, i == 0 and not once, i == 0)
                except (ValueError, ImportError, AttributeError) as problem:
                    print(f"| {name} | {method} | {seed} | {problem} |", flush=True)
                    break
                rows.append(row)
                print(_row(row), flush=True)
                if reference is None:
                    reference = of_draws(case, sampled, seed)
                if out is not None:
                    out.write_text(json.dumps(rows, indent=1) + "\n")


def _row(found: dict[str, Any]) -> str:
    cells = [f"{found['case']}", found["method"], str(found["seed"])]
    for name in COLUMNS:
        value = found.get(name)
        digits = 1 if name in SECONDS else 3
        is_plain = isinstance(value, bool | str) or value is None
        cells.append(("" if value is None else str(value)) if is_plain else f"{value:.{digits}f}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    reference = commands.add_parser("reference")
    reference.add_argument("--case", required=True)
    reference.add_argument("--by")
    for option, default in (("num", 1024), ("islands", 4), ("moves", 10), ("last-moves", 40), ("seed", 100)):
        reference.add_argument(f"--{option}", type=int, default=default)
    running = commands.add_parser("run")
    running.add_argument("--cases", nargs="+", default=list(NAMES))
    running.add_argument("--methods", nargs="+", default=["guided"])
    running.add_argument("--seeds", type=int, nargs="+", default=[1])
    running.add_argument("--out", type=Path)
    running.add_argument("--once", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sharding.use_cores()  # as the command does
    if options.command == "run":
        return run(options.cases, options.methods, options.seeds, options.out, options.once)
    if options.by:
        return _keep(long_run(make_case(options.case), options.by, options.seed), ("made",))
    made = make_reference(
        make_case(options.case),
        num=options.num,
        num_islands=options.islands,
        num_moves=options.moves,
        num_last_moves=options.last_moves,
        seed=options.seed,
    )
    return _keep(made, ("log_evidence", "log_evidence_error", "islands", "made"))


def _keep(made: dict, shown: tuple[str, ...]) -> None:
    print({name: made[name] for name in shown})
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{made['case']}.json").write_text(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
