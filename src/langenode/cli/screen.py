"""Tables on the terminal, from plain records."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from langenode.reports.pages import words_of_pages
from langenode.reports.reproduction import number_text
from langenode.reports.standings import COLUMNS, cell_text
from langenode.scores.diagnostics import is_k_hat_telling


def print_results(found: Mapping[str, Any]) -> None:
    """Print the verdict and the main numbers of a run."""
    experiment, method, target, seed = (found.get(key) for key in ("experiment", "method", "target", "seed"))
    title = f"{experiment}: {method}, target {target}, seed {seed}"
    _print_table(title, ("quantity", "value", "for comparison"), _result_rows(found))
    verdict = found.get("verdict")
    if verdict:
        word = {"trust": "Trust", "caution": "Caution", "distrust": "Do not trust"}[verdict["level"]]
        _print(f"{word}: {verdict['text']}")


def print_summary(summary: Mapping[str, Any], path: Path) -> None:
    """Print what was understood of a user's file."""
    reasons = summary.get("reasons", {})
    if reasons:
        _print_table(f"{path}: columns", ("role", "how it was found"), [(k, str(v)) for k, v in reasons.items()])
    left_out = summary.get("left_out") or {}
    if left_out:
        _print_table("Columns left out", ("column", "why"), [(str(k), str(v)) for k, v in left_out.items()])
    doubts = [(d["about"], d["taken"], d["other"], d["option"]) for d in summary.get("doubts", [])]
    if doubts:
        _print_table("Doubtful", ("column", "as it was read", "if instead ...", "use"), doubts)
    _print_table("Data", ("quantity", "value"), _data_rows(summary))
    rows = [
        (
            kind,
            column["name"],
            _number(column["min"]),
            _number(column["max"]),
            _number(column["mean"]),
            _number(column["std"]),
            f"{column['missing']} ({column['missing_percent']:.1f} %)",
        )
        for kind, columns in (("input", summary["inputs"]), ("output", summary["outputs"]))
        for column in columns
    ]
    _print_table("Quantities", ("role", "name", "min", "max", "mean", "std", "missing cells"), rows)
    for line in summary.get("warnings", []):
        _print(f"Warning: {line}")
    choices = [(c["what"], c["chosen"], c["why"]) for c in summary["choices"]]
    _print_table("What `langenode fit` would choose", ("option", "chosen", "why"), choices)


def print_methods_known(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the registry of methods."""
    cells = [(row["name"], row["kind"], ", ".join(row["targets"]), row["summary"]) for row in rows]
    _print_table("Methods", ("method", "kind", "targets, the default first", "what it is"), cells)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print what had been understood of a file before it was refused."""
    rows = [(key.replace("_", " "), _short(value)) for key, value in facts.items() if value not in (None, {}, [])]
    _print_table("Understood so far", ("fact", "value"), rows)


def print_comparison(found: Mapping[str, Any]) -> None:
    """Print runs in order of rank, one table per data set."""
    runs = {run["name"]: run for run in found["runs"]}
    for group in found["groups"]:
        labels = found["scores"]
        header = ("rank", "run", "method", "target", *labels.values(), "verdict", "fit [s]")
        rows = []
        for row in group["rows"]:
            run = runs[row["name"]]
            scores = [_number(run["scores"][key]) for key in labels]
            rank = "-" if row["rank"] is None else f"{row['rank']}{'=' if row['is_tied'] else ''}"
            tail = (str(run["verdict"] or "-"), _number(run["seconds"]))
            rows.append((rank, row["name"], str(run["method"]), str(run["target"]), *scores, *tail))
        ranked = ", ".join(labels[key] for key in group["ranked_by"])
        _print_table(f"Ranked by {ranked}" if ranked else "Not ranked", header, rows)
        for note in group["notes"]:
            _print(note)


def print_methods(found: Mapping[str, Any]) -> None:
    """Print the methods of a comparison, and those that are not in the table."""
    print_standings(found)
    absent = [(name, "failed", _short(why)) for name, why in found["failed"].items()]
    absent += [(name, "not run", _short(why)) for name, why in found["refused"].items()]
    if absent:
        _print_table("Not in the table", ("method or run", "what happened", "why"), absent)
    for note in found["notes"]:
        _print(note)


def print_standings(found: Mapping[str, Any]) -> None:
    """Print one row per method: mean and spread over seeds; columns that do not fit go into a table below."""
    for table in found["standings"]:
        rows, keys = table["rows"], table["columns"]
        texts = [[row["label"], *(cell_text(row["numbers"][key]) or "-" for key in keys)] for row in rows]
        for row, cells in zip(rows, texts, strict=True):
            if row["num_stopped"] and "seconds" in keys:
                cells[1 + keys.index("seconds")] += " (stopped)"
        header = ["method", *(COLUMNS[key].short for key in keys)]
        sort = "" if table["sorted_by"] is None else f", sorted by {COLUMNS[table['sorted_by']].short}"
        for chosen in _fitting(header, texts, _console().width):
            _print_table(f"Methods{sort}", [header[i] for i in chosen], [[row[i] for i in chosen] for row in texts])
        for note in table["notes"]:
            _print(note)


def _fitting(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Split the columns into as many tables as the width requires, with the first column in each."""
    widths = [3 + max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    tables: list[list[int]] = [[0]]
    for i in range(1, len(header)):
        if len(tables[-1]) > 1 and 1 + sum(widths[k] for k in tables[-1]) + widths[i] > width:
            tables.append([0])
        tables[-1].append(i)
    return tables


def print_reproduction(found: Mapping[str, Any]) -> None:
    """Print the paper's numbers beside ours."""
    rows = [row for row in found["results"] if not row["what"].startswith("Figure ")]
    cells = [
        (
            row["section"].split()[0],
            row["what"],
            _short(row["paper"] if isinstance(row["paper"], str) else f"{row['paper']:g}"),
            *("-" if row[key] is None else number_text(row[key]) for key in ("literal", "default")),
        )
        for row in rows
    ]
    size = ", small settings: not results" if found["quick"] else ""
    _print_table(f"The paper's numbers beside ours{size}", ("section", "what", "paper", "as printed", "default"), cells)


def print_sweep(found: Mapping[str, Any]) -> None:
    """Print the points of a sweep, with the plotted number and a few others."""
    rows = found["rows"]
    beside = (found["metric"], "crps", "skill.ratio", "coverage.90", "posterior.relative_ess", "seconds.fit")
    names = [name for name in dict.fromkeys(beside) if any(name in row for row in rows)]
    cells = [
        (
            *(str(row[key]) for key in (*found["vary"], "seed")),
            *(_number(row.get(name)) for name in names),
            _short(row["error"] or ""),
        )
        for row in rows
    ]
    header = (*found["vary"], "seed", *names, "error")
    is_all_well = not found["failed"]
    what = Path(found["data"]["path"]).name if found.get("data") else found["experiment"]
    title = f"{what}: {len(rows)} points"
    _print_table(title, header[:-1] if is_all_well else header, [row[:-1] if is_all_well else row for row in cells])


def _data_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    def spread(values: Mapping[str, Any] | None) -> str:
        if values is None:
            return "-"
        low, mid, high = (_number(values[key]) for key in ("min", "median", "max"))
        return low if low == high else f"{low} to {high}, median {mid}"

    return [
        ("trajectories", str(summary["trajectories"])),
        ("conditions", str(summary["conditions"])),
        ("replicates per condition", spread(summary["replicates"])),
        ("units", str(summary["units"])),
        ("time points per trajectory", spread(summary["lengths"])),
        ("time", f"{_number(summary['time']['min'])} to {_number(summary['time']['max'])}"),
        ("time steps", spread(summary["steps"])),
        ("same times in all trajectories", "yes" if summary["common_times"] else "no"),
        ("missing output cells", f"{summary['missing_cells']} ({summary['missing_percent']:.1f} %)"),
        ("constant columns", ", ".join(summary["constant_columns"]) or "none"),
        ("duplicated times", str(summary["duplicated_times"] or "none")),
    ]


def _result_rows(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    w1, held_out = found.get("w1"), found.get("w1_held_out")
    if w1:
        beside = f"floor {_number(w1.get('floor'))}, ratio {_number(w1.get('ratio'))}"
        rows.append(("W1 to the data (median over draws)", _number(w1.get("mean")), beside))
    if held_out:
        own = held_out.get("data")
        beside = "" if own is None else f"training data {own:.4g}"
        rows.append(("W1 to held-out data", _number(held_out.get("mean")), beside))
    for name, error in (found.get("rmse_over_std") or {}).items():
        rows.append((f"rmse of {name} / its std, held out", _number(error), ""))
    if folds := found.get("cross_validation"):
        rows.append(("trajectories, each held out once", str(sum(folds["sizes"])), f"{folds['folds']} folds"))
    rows += [
        ("energy score, held out", _number(found.get("energy_score")), ""),
        ("CRPS, held out", _number(found.get("crps")), ""),
    ]
    if skill := found.get("skill"):
        error = "" if skill["ratio_se"] is None else f" ± {skill['ratio_se']:.2g}"
        label = f"CRPS over that of the best plain predictor ({skill['best']})"
        rows.append((label, f"{_number(skill['ratio'])}{error}", "better below 1"))
    for level, inside in (found.get("coverage") or {}).items():
        rows.append((f"held-out data in the {level} % band", "-" if inside is None else f"{100 * inside:.1f} %", ""))
    rows += _exact_law_rows(found) + _weight_rows(found) + _diagnostic_rows(found.get("posterior") or {})
    stages, seconds = words_of_pages()["stage"], found.get("seconds") or {}
    return rows + [(f"{stages.get(name, name)} [s]", f"{value:.1f}", "") for name, value in seconds.items()]


def _exact_law_rows(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return rows for data whose exact law is known."""
    exact, modes = found.get("w1_exact"), found.get("modes")
    if exact is None or modes is None:
        return []
    own = f"training data {_number(exact['data_relative'])}"
    weight = f"data {_number(modes['p_low_data'])}, exact {_number(modes['p_low_exact'])}"
    widths = [_number(modes[f"{name}_std{which}"]) for which in ("", "_exact") for name in ("low", "high")]
    return [
        ("W1 to the exact law / its rms std", _number(exact["relative"]), own),
        ("probability of the low mode", _number(modes["p_low"]), weight),
        ("std of the modes", " and ".join(widths[:2]), f"exact {' and '.join(widths[2:])}"),
    ]


def _weight_rows(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    drawn = found.get("data_weights")
    if drawn is None or not drawn["comparable"]:
        return []
    rows = []
    for i, name in enumerate(("W", "b")):
        ours, theirs = found["weights"]["std"][i], drawn["std"][i]
        rows.append((f"std of {name}", f"{ours:.4f}", f"drawn {theirs:.4f}"))
    return [*rows, ("correlation of W and b", f"{found['weights']['corr']:.4f}", f"drawn {drawn['corr']:.4f}")]


# Diagnostics of a sampler, if it has them: their name, format and comment.
_DIAGNOSTICS = {
    "elbo": ("ELBO", ".4f", ""),
    "log_evidence": ("log-evidence", ".4f", ""),
    "horizon_gap": ("log-evidence missed, by the check", ".4f", ""),
    "relative_ess": ("relative ESS", ".4f", ""),
    "ancestors": ("surviving ancestors", ".3f", "fraction of the paths"),
    "k_hat": ("k-hat", ".2f", "trust below 0.7"),
    "r_hat": ("R-hat", ".3f", "trust below 1.05"),
    "ess": ("effective sample size", ".0f", "of the worst weight"),
    "divergences": ("divergences", "d", ""),
    "acceptance": ("acceptance", ".2f", ""),
    "num_evaluations": ("model evaluations on all data", "d", ""),
}


def _diagnostic_rows(diagnostics: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    rows = []
    for key, (label, style, beside) in _DIAGNOSTICS.items():
        value = diagnostics.get(key)
        if value is None or (key == "k_hat" and not is_k_hat_telling(diagnostics.get("relative_ess"))):
            continue
        error = diagnostics.get(f"{key}_se")
        rows.append((label, format(value, style), beside if error is None else f"s.e. {error:.1g}"))
    if "reason" in diagnostics:
        rows.append((f"draws of {diagnostics['method']}", str(diagnostics["num_draws"]), diagnostics["reason"]))
    return rows


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}"


def _short(value: Any, longest: int = 160) -> str:
    text = str(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left")
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    _console().print(table)


def _print(text: str) -> None:
    _console().print(text, markup=False, highlight=False, soft_wrap=True)


def _console() -> Any:
    from rich.console import Console

    class OurConsole(Console):
        """One that leaves it to the command what happens where nobody reads on."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    # A file or pipe has no width: table lines stay unbroken.
    console = OurConsole()
    return console if console.is_terminal else OurConsole(width=160)
