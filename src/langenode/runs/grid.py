"""Runs of a demonstration or of a user's file side by side: what a sweep and a comparison of methods share.

Every point is `langenode run`, or `langenode fit`, in a process of its own, started anew, since JAX does not survive a
fork. The request is stored first; points that are complete are not run again, so an interrupted grid, or one with
failed points, resumes where it was.
"""

import contextlib
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from langenode import _version
from langenode.config import ConfigError, merge, parse_overrides, to_toml
from langenode.fitting import choose
from langenode.fitting.progress import Reporter
from langenode.runs import stages
from langenode.runs.own_file import OwnFile, facts_of
from langenode.runs.processes import Ended, num_cores, run_commands
from langenode.runs.remote_commands import run_commands_remotely
from langenode.runs.stored import has_config
from langenode.storage.folder import RunFolder, RunFolderError, plain, read_provenance, read_record, write_json
from langenode.storage.writing import sweep

# The line of a traceback that names what was raised.
EXCEPTION = re.compile(r"[\w.]*(Error|Exception)\b")


# What is run: a demonstration by its name, or a user's file.
Subject = str | OwnFile


class Point(NamedTuple):
    """One run of the grid: its folder's name, its values of the varied keys, and its settings as `--set` takes them.

    `facts` are what a run of a user's file records of it.
    """

    name: str
    values: dict[str, Any]
    seed: int
    config: Any
    settings: list[str]
    facts: Mapping[str, Any] = MappingProxyType({})


class GridFolder:
    """A folder of points: the request, what is made of all of them, and logs; the points are folders beside these.

    `kind` is what people call it, and `identity` are the parts of the request that must stay the same.
    """

    kind = "grid"
    identity: tuple[str, ...] = ("experiment", "data", "settings", "seeds", "points")

    def __init__(self, path: Path, request: str, products: Sequence[str]):
        self.path = Path(path)
        self.request = self.path / request
        self.products = [self.path / name for name in products]
        self.logs = self.path / "logs"

    def run(self, point: Point) -> RunFolder:
        """The folder of a point."""
        return RunFolder(self.path / point.name)


# What is asked


def parse_values(text: str) -> list[Any]:
    """`32,64` or `tanh,relu` or `[[8],[16,16]]` as a list; the values are TOML, or plain text where that fails."""
    text = text.strip()
    for array in (text, f"[{text}]") if text.startswith("[[") else (f"[{text}]",):
        found = parse_overrides([f"list={array}"])["list"]
        if isinstance(found, list):
            return found
    return [parse_overrides([f"value={part}"])["value"] for part in text.split(",")]


def request_of(subject: Subject, points: Sequence[Point]) -> dict[str, Any]:
    """What is run, for the record of a request."""
    if isinstance(subject, str):
        return {"experiment": subject}
    return {"experiment": points[0].config.experiment, "data": points[0].facts["source"]}


def title_of(request: Mapping[str, Any]) -> str:
    """The name of what is run, for people."""
    return Path(request["data"]["path"]).name if request.get("data") else str(request["experiment"])


def make_point(subject: Subject, base: Mapping[str, Any], values: dict[str, Any], seed: Any) -> Point:
    """The values and the seed over the user's settings; the configuration is checked here."""
    settings = merge(base, {} if seed is None else {"seed": seed})
    for key, value in values.items():
        settings = merge(settings, nested(key, value))
    if isinstance(subject, str):
        config, facts = choose.configure(subject, [settings]), {}
    else:
        plan = subject.plan([settings])
        config, facts = plan.config, facts_of(plan)
    stages.refuse_function(config)
    words = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in flat(settings).items()]
    return Point(_name(values, None if seed is None else config.seed), values, config.seed, config, words, facts)


def nested(key: str, value: Any) -> dict[str, Any]:
    """`a.b` and a value as `{"a": {"b": value}}`."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping by dotted keys."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _name(values: Mapping[str, Any], seed: int | None) -> str:
    """`num_samples-32_num_steps-2_seed-1`: the last part of each key where that tells them apart, and its value."""
    last = [key.split(".")[-1] for key in values]
    words = [
        f"{short if last.count(short) == 1 else key}-{_slug(value)}"
        for short, (key, value) in zip(last, values.items(), strict=True)
    ]
    return "_".join(words if seed is None else [*words, f"seed-{seed}"])


def _slug(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(map(_slug, value)) or "empty"
    return re.sub(r"[^\w.+-]+", "-", text_of(value))


def text_of(value: Any) -> str:
    """A value as a cell or a label has it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def refuse_equal(points: Sequence[Point], kind: str) -> None:
    """No two points may be the same run."""
    seen: set[str] = set()
    for point in points:
        marks = {to_toml(point.config), point.name}
        if seen & marks:
            raise ConfigError(f"the points of a {kind} must differ; {point.name} comes twice; name each value once")
        seen |= marks


# The work


def claim(folder: GridFolder, request: Mapping[str, Any], points: Sequence[Point], *, force: bool) -> None:
    """Store the request in an empty folder, go on with the same one, or, with `force`, remove what another left."""
    kind = folder.kind
    sweep(folder.path, lambda name: folder.path / name in (folder.request, *folder.products))
    stored = read_record(folder.request, remedy="delete the folder, or choose another --out")
    if not stored and any(entry.name != ".lock" for entry in folder.path.iterdir()):
        raise RunFolderError(
            f"a new {kind} needs an empty folder; {folder.path} holds other things than a {kind}; choose another --out"
        )
    differing = [part for part in folder.identity if stored and stored.get(part) != request.get(part)]
    if differing and not force:
        raise RunFolderError(
            f"a folder holds one {kind}; that in {folder.path} was asked otherwise ({', '.join(differing)}); "
            "use --force or another --out"
        )
    if stored and force:
        _remove(folder, stored)
    for point in points:
        run = folder.run(point)
        if run.config.is_file() and not has_config(run, point.config):
            raise RunFolderError(
                f"a point must have the {kind}'s settings; those in {run.config} differ; use --force or another --out"
            )
    if force or not stored:
        write_json(folder.request, record_of(request) | {"complete": False})


def _remove(folder: GridFolder, stored: Mapping[str, Any]) -> None:
    """Remove the runs that a request names and what was made of them, nothing else."""
    points = stored.get("points")
    for name in map(str, points if isinstance(points, list) else []):
        run = RunFolder(folder.path / name)
        # A file that was tampered with may name a folder elsewhere.
        if "\0" in name or run.path.resolve().parent != folder.path.resolve():
            continue
        if run.is_run:
            run.remove()
        (folder.logs / f"{name}.log").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it has files of others
        folder.logs.rmdir()
    for file in (*folder.products, folder.request):
        file.unlink(missing_ok=True)


def record_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request with where it came from."""
    return {**request, "version": _version.__version__, "command": sys.argv}


def as_json(record: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> bytes:
    """A record, or several, as the content of a JSON file."""
    values = dict(record) if isinstance(record, Mapping) else list(record)
    return (json.dumps(plain(values), indent=2, allow_nan=False) + "\n").encode()


def is_complete(folder: GridFolder, point: Point) -> bool:
    """Whether all stages of a point are done."""
    run = folder.run(point)
    return run.config.is_file() and run.report.is_file()


def command(folder: GridFolder, point: Point) -> list[str]:
    """What makes a point: the same words give the same run by hand."""
    settings = [word for setting in point.settings for word in ("--set", setting)]
    source = point.facts.get("source")
    what = ["run", point.config.experiment] if source is None else ["fit", source["path"]]
    return [sys.executable, "-m", "langenode", *what, "--out", str(folder.run(point).path), *settings, "--json"]


def run_points(
    folder: GridFolder,
    pending: Sequence[Point],
    reporter: Reporter,
    *,
    num_points: int,
    num_done: int,
    jobs: int | None,
    scheduler: str | None = None,
) -> dict[str, str]:
    """Run points side by side; what each failed of, for those that did. `num_done` of all are complete already.

    They run in `jobs` processes of this machine, or by the workers of the Dask scheduler at an address.
    """
    if not pending:
        return {}
    commands = {point.name: command(folder, point) for point in pending}
    ended: dict[str, str | None] = {}
    named = {point.name: point for point in pending}

    def on_end(name: str, one: Ended) -> None:
        ended[name] = error = _other_data(folder, named[name]) if one.code == 0 else _what_failed(one)
        what = f"{one.seconds:.1f} s" if error is None else f"failed: {error}"
        reporter.say(f"{num_done + len(ended)}/{num_points} {name}: {what}")
        task.at(num_done + len(ended), num_points)

    if reporter.verbose:
        reporter.say("\n".join(map(shlex.join, commands.values())))
    folder.logs.mkdir(exist_ok=True)
    with reporter.task(f"runs of the {folder.kind}", first=num_done) as task:
        if scheduler is None:
            run_commands(commands, folder.logs, jobs=min(jobs or num_cores(), len(pending)), on_end=on_end)
        else:
            folders = {point.name: folder.run(point).path for point in pending}
            run_commands_remotely(commands, folders, folder.logs, scheduler=scheduler, on_end=on_end)
    return {name: error for name, error in ended.items() if error is not None}


def _other_data(folder: GridFolder, point: Point) -> str | None:
    """What is wrong where a user's file has changed between the request and the run."""
    source = point.facts.get("source")
    if source is None or read_provenance(folder.run(point).provenance).get("source") == source:
        return None
    return f"the runs of a {folder.kind} must have the same data; {source['path']} has changed meanwhile; use --force"


def _what_failed(ended: Ended) -> str:
    """The line that `--json` gave, or what else can be said in one."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return str(json.loads(ended.out)["error"])
    if ended.code < 0:
        return f"its process was ended by signal {-ended.code}; see {ended.log}"
    said = [line.strip() for line in ended.log.read_text(encoding="utf-8", errors="replace").splitlines()]
    said = [line for line in said if line and not line.startswith("langenode: this is a bug")]
    named = [line for line in said if EXCEPTION.match(line)]  # libraries may say more below it
    last = [*said, *named][-1] if said else "nothing was said"
    return f"exit code {ended.code}: {last}; see {ended.log}"
