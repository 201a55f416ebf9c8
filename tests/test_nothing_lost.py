"""What must never be lost: a user's files, a run that was not asked to go, results of other data, a signal."""

import argparse
import contextlib
import gc
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from langenode.config import ConfigError
from langenode.data import DataError, load_data, save_data
from langenode.fitting.choose import configure
from langenode.fitting.plan import content_hash
from langenode.fitting.progress import Reporter
from langenode.runs import stages
from langenode.runs.stages import existing_run, open_run
from langenode.storage import interrupts, writing
from langenode.storage.folder import RunFolder, RunFolderError, write_bytes, write_together
from langenode.storage.writing import temporary_for
from test_badinput import command, everything, rows, text

QUIET = Reporter(quiet=True)
OURS = {"seed": 0, "versions": {"langenode": "0"}}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's folder with a table and the configuration that `check` writes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "readings.csv").write_text(text(rows()))
    (tmp_path / "thesis.tex").write_text("years of work")
    return tmp_path


@pytest.fixture
def langenode(monkeypatch, capsys):
    return lambda *words: command(monkeypatch, capsys, *words)


@pytest.fixture
def no_stages(monkeypatch):
    """Stages leave a mark in place of their work."""
    monkeypatch.setattr("langenode.runs.stages.Run.complete", lambda self, *_: self.folder.report.write_text("done"))


# --force


def a_run(path: Path) -> RunFolder:
    """A folder with every file of a finished run."""
    folder = RunFolder(path)
    folder.path.mkdir(exist_ok=True)
    folder.config.write_text("experiment = 'own'\n")
    folder.provenance.write_text(json.dumps(OURS))
    for file in (folder.data, folder.test, folder.mle, folder.fit, folder.history, folder.metrics, folder.report):
        file.write_text("of the run")
    folder.companion("bbvi").write_text("of the run")
    write_bytes(folder.figures / "index.json", json.dumps([{"name": "loss", "file": "loss.png"}]).encode())
    (folder.figures / "loss.png").write_text("of the run")
    return folder


def test_force_never_takes_a_user_s_folder_for_a_run(home, langenode):
    """The table, and the configuration that `check` wrote beside it, are the user's."""
    assert langenode("check", "readings.csv")[0] == 0
    before = everything(home)
    assert {"readings.csv", "config.toml", "thesis.tex"} <= set(before)
    for words in (["fit", "readings.csv"], ["run", "ou"], ["simulate", "ou"]):
        code, _, err = langenode(*words, "--out", ".", "--force")
        assert code == 2 and "--force replaces only a run" in err and len(err.splitlines()) == 1
        assert everything(home) == before
    for verb in ("evaluate", "report", "predict"):  # which would make the missing stages first
        code, _, err = langenode(verb, ".", "--force")
        assert code == 2 and "no run's" in err and everything(home) == before


def test_force_replaces_what_a_run_wrote_and_nothing_else(home, langenode, no_stages):
    folder = a_run(home)
    (folder.figures / "sketch.png").write_text("the user's")
    (home / "companion.txt").write_text("the user's")
    (home / ".metrics.json.0123456789abcdef0123456789abcdef.tmp").write_text("left by a killed write")
    (home / ".thesis.tex.0123456789abcdef0123456789abcdef.tmp").write_text("the user's")
    assert langenode("fit", "readings.csv", "--out", ".", "--force")[0] == 0
    users = {"readings.csv", "thesis.tex", "companion.txt", ".thesis.tex.0123456789abcdef0123456789abcdef.tmp"}
    ours = {"config.toml", "provenance.json", "report.html"}
    assert set(everything(home)) == users | ours | {"figures", "figures/sketch.png"}
    assert (home / "thesis.tex").read_text() == "years of work"
    assert folder.report.read_text() == "done" and "readings.csv" in folder.config.read_text()


def test_a_refused_command_leaves_the_run_it_would_replace(home, langenode):
    a_run(home / "old")
    (home / "bad.csv").write_text(text(rows())[:-25])
    before = everything(home)
    for words in (["bad.csv"], ["readings.csv", "--set", "training.num_updates=0"], ["readings.csv", "--seed", "-1"]):
        assert langenode("fit", *words, "--out", "old", "--force")[0] == 2
        assert everything(home) == before


def test_a_run_goes_only_when_the_new_configuration_is_on_disk(home, langenode, monkeypatch):
    a_run(home / "old")
    before = everything(home)
    write, written = writing._write, []

    def full(path, content):
        if written:
            raise OSError(28, "No space left on device")
        written.append(path)
        write(path, content)

    monkeypatch.setattr(writing, "_write", full)
    code, _, err = langenode("fit", "readings.csv", "--out", "old", "--force")
    assert code == 2 and "disk is full" in err and len(written) == 1
    assert everything(home) == before


def test_a_run_is_not_made_of_its_own_files(home, langenode):
    folder = a_run(home / "old")
    save_data(load_data("readings.csv"), folder.data)
    before = everything(home)
    code, _, err = langenode("fit", folder.data, "--out", "old", "--force")
    assert code == 2 and "outside of the run" in err and everything(home) == before


@pytest.mark.parametrize("name", ["report.html", "config.toml", "figures/loss.png"])
def test_a_folder_with_the_name_of_a_file_of_ours_is_left(tmp_path, name):
    folder = a_run(tmp_path / "run")
    (folder.path / name).unlink()
    (folder.path / name).mkdir()
    (folder.path / name / "thesis.tex").write_text("years of work")
    before = everything(tmp_path)
    with pytest.raises(RunFolderError, match="is a folder"):
        folder.begin("x = 1", OURS, force=True)
    assert everything(tmp_path) == before


def test_an_index_cannot_name_files_elsewhere(tmp_path):
    folder = a_run(tmp_path / "run")
    (tmp_path / "thesis.png").write_text("years of work")
    names = ["../../thesis.png", str(tmp_path / "thesis.png"), "a/b.png", "notes.txt", "..", "\0.png", 3, None]
    write_bytes(folder.figures / "index.json", json.dumps([{"file": name} for name in names]).encode())
    (folder.figures / "notes.txt").write_text("the user's")
    folder.clear()
    assert set(everything(tmp_path)) == {
        "run",
        "run/figures",
        "run/figures/notes.txt",
        "run/figures/loss.png",
        "thesis.png",
    }


def test_a_folder_beside_tables_is_data_though_check_wrote_there(home, langenode, no_stages):
    """`check .` puts its config.toml among the tables; `fit .` still reads the tables."""
    (home / "tables").mkdir()
    for number in range(4):
        part = [row[1:] for row in rows() if row[0] == f"r{number}"]
        (home / "tables" / f"{number}.csv").write_text(text(part, "t,force,x,v"))
    os.chdir(home / "tables")
    assert langenode("check", ".")[0] == 0 and Path("config.toml").is_file()
    code, _, err = langenode("fit", ".", "--out", "../run")
    assert code == 0, err
    assert RunFolder(home / "run").is_run


@pytest.mark.parametrize("left", [[], ["provenance.json"], ["provenance.json", ".lock"]])
def test_what_a_killed_start_left_is_no_obstacle(home, langenode, no_stages, left):
    """A process may die between its first files; the same command, without --force, starts again."""
    (home / "run").mkdir()
    for name in left:
        (home / "run" / name).write_text(json.dumps(OURS) if name.endswith("json") else "999999999")
    (home / "run" / ".config.toml.0123456789abcdef0123456789abcdef.tmp").write_text("seed =")
    code, _, err = langenode("fit", "readings.csv", "--out", "run")
    assert code == 0, err
    assert {path.name for path in (home / "run").iterdir()} == {"config.toml", "provenance.json", "report.html"}


# A data file that changed


def test_the_same_command_notices_that_the_data_changed(home, langenode, no_stages):
    words = ("fit", "readings.csv", "--out", "run")
    assert langenode(*words)[0] == 0
    code, _, err = langenode(*words)
    assert code == 0 and "resuming the run" in err
    (home / "readings.csv").write_text(text(rows(scale=2.0)))
    before = everything(home)
    code, _, err = langenode(*words)
    assert code == 2 and len(err.splitlines()) == 1 and everything(home) == before
    assert "readings.csv has changed since" in err and "--force" in err and "another --out" in err
    assert langenode(*words, "--force")[0] == 0
    assert "resuming the run" in langenode(*words)[2]
    stored = json.loads((home / "run" / "provenance.json").read_text())["source"]["sha256"]
    assert stored == content_hash(Path("readings.csv")) and stored.encode() not in before["run/provenance.json"]


def test_a_run_without_a_record_of_its_data_is_not_resumed(home, langenode, no_stages):
    words = ("fit", "readings.csv", "--out", "run")
    assert langenode(*words)[0] == 0
    found = json.loads((home / "run" / "provenance.json").read_text())
    (home / "run" / "provenance.json").write_text(json.dumps({k: v for k, v in found.items() if k != "source"}))
    code, _, err = langenode(*words)
    assert code == 2 and "is not recorded" in err


def test_a_stage_that_reads_the_file_again_notices_too(home, langenode, monkeypatch):
    """The run was started, but its data were not divided yet."""
    with monkeypatch.context() as patch:
        patch.setattr("langenode.runs.stages.Run.complete", lambda *_: None)
        assert langenode("fit", "readings.csv", "--out", "run")[0] == 0
    (home / "readings.csv").write_text(text(rows(scale=2.0)))
    before = everything(home)
    for verb in ("fit", "evaluate", "report"):
        code, _, err = langenode(verb, "run")
        assert code == 2 and "has changed since" in err, err
        assert everything(home) == before


def test_a_run_that_has_its_data_says_that_the_file_changed(home, langenode, monkeypatch):
    monkeypatch.setattr("langenode.runs.stages.Run.complete", lambda self, *_: self.simulate())
    assert langenode("fit", "readings.csv", "--out", "run")[0] == 0
    monkeypatch.setattr("langenode.runs.stages.Run.complete", lambda *_: None)
    assert "note:" not in langenode("report", "run")[2]
    (home / "readings.csv").write_text(text(rows(scale=2.0)))
    code, _, err = langenode("report", "run")
    assert code == 0 and "note: readings.csv has changed since this run was started" in err


def test_the_hash_of_a_folder_is_that_of_its_tables(tmp_path):
    for name in ("a.csv", "b.tsv"):
        (tmp_path / name).write_text(f"t,x\n0,{name}\n")
    before = content_hash(tmp_path)
    for name in ("config.toml", ".hidden.csv", "notes.txt"):  # what is not read
        (tmp_path / name).write_text("anything")
    assert content_hash(tmp_path) == before
    (tmp_path / "a.csv").rename(tmp_path / "c.csv")
    assert content_hash(tmp_path) != before


def test_a_file_that_changes_while_it_is_read(home, monkeypatch):
    from langenode.fitting import plan

    read = plan.read_data

    def slowly(path, *words, **options):
        found = read(path, *words, **options)
        path.write_text(text(rows(scale=2.0)))
        return found

    monkeypatch.setattr(plan, "read_data", slowly)
    with pytest.raises(DataError, match="must stay as it is"):
        plan.plan_file(Path("readings.csv"), [])


# Temporaries


def test_temporaries_of_killed_writes_are_swept_when_the_run_is_opened(tmp_path):
    folder = a_run(tmp_path / "run")
    ours = [temporary_for(path) for path in (folder.fit, folder.companion("a"), folder.figures / "loss.png")]
    # What `save_data` and earlier versions left, and names that only look like it.
    foreign = [folder.path / name for name in (".fit.langenode.tmp", ".notes.txt.0123456789abcdef0123456789abcdef.tmp")]
    foreign += [
        folder.path / "fit.langenode.0123456789abcdef0123456789abcdef.tmp",
        folder.figures / ".fit.langenode.x.tmp",
    ]
    for path in (*ours, *foreign):
        path.write_text("half")
    with folder.locked():
        assert not any(path.exists() for path in ours) and all(path.exists() for path in foreign)


def test_data_files_leave_a_temporary_of_the_same_pattern(tmp_path, monkeypatch):
    """A process that is killed inside `save_data`."""
    (tmp_path / "readings.csv").write_text(text(rows()))
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()

    def killed(self, *_):
        raise SystemExit

    monkeypatch.setattr(Path, "replace", killed)
    monkeypatch.setattr(Path, "unlink", lambda self, **_: None)
    with pytest.raises(SystemExit):
        save_data(load_data(tmp_path / "readings.csv"), folder.data)
    monkeypatch.undo()
    (left,) = folder.path.iterdir()
    assert writing.TEMPORARY.fullmatch(left.name)
    with folder.locked():
        assert {path.name for path in folder.path.iterdir()} == {".lock"}


def test_a_signal_while_a_module_is_loaded_ends_the_process_without_a_traceback(tmp_path, monkeypatch):
    """Compiled modules print what is raised in them, so nothing is raised before the process has ended."""
    (tmp_path / "interrupted_module.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    monkeypatch.syspath_prepend(tmp_path)
    ended = []
    with interrupts.caught(ended.append), pytest.raises(interrupts.Interrupted):
        importlib.import_module("interrupted_module")
    assert ended == [signal.SIGTERM]
    with interrupts.caught(ended.append), pytest.raises(interrupts.Interrupted):
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended == [signal.SIGTERM]


def test_files_that_belong_together_are_not_torn_apart_by_a_signal(tmp_path, monkeypatch):
    """The signal comes between the two moves; both are done, then it is raised."""
    moved, replace = [], Path.replace

    def interrupted(self, target):
        replace(self, target)
        moved.append(target)
        if len(moved) == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Path, "replace", interrupted)
    paths = [tmp_path / name for name in ("a", "b")]
    with interrupts.caught(lambda number: None), pytest.raises(interrupts.Interrupted):
        write_together(dict.fromkeys(paths, b"whole"))
    assert moved == paths and sorted(tmp_path.iterdir()) == paths


# Signals


@pytest.fixture
def alone(monkeypatch):
    """A verb that does what the test says, in place of `methods`, which needs no time."""

    def replace(work):
        monkeypatch.setattr("langenode.cli.work.list_methods", lambda **_: work())

    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    handlers = [signal.getsignal(number) for number in interrupts.SIGNALS]
    if signal.SIG_IGN in handlers:  # of a shell's background job; it would stay ignored
        for number in interrupts.SIGNALS:
            signal.signal(number, signal.default_int_handler)
    yield replace
    for number, handler in zip(interrupts.SIGNALS, handlers, strict=True):
        signal.signal(number, handler)


SAYS = {
    signal.SIGINT: (130, "langenode: interrupted; the same command resumes where it was\n"),
    signal.SIGTERM: (143, "langenode: terminated; the same command resumes where it was\n"),
    signal.SIGHUP: (129, "langenode: ended; the same command resumes where it was\n"),
}


@pytest.mark.parametrize("number", SAYS)
def test_a_signal_ends_in_one_line_with_the_lock_released(tmp_path, langenode, alone, number):
    def work():
        with RunFolder(tmp_path / "run").locked():
            os.kill(os.getpid(), number)
            time.sleep(10)

    alone(work)
    before = signal.getsignal(number)
    code, out, err = langenode("methods")
    assert (code, err, out) == (*SAYS[number], "")
    assert not (tmp_path / "run").exists() and signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_is_swallowed_is_not_lost(langenode, alone, number):
    """What is raised inside a callback of the garbage collection is ignored, as in JAX's own."""
    reached = []

    def in_collection(phase, info):
        if phase == "start" and not reached:
            reached.append("callback")
            os.kill(os.getpid(), number)
            time.sleep(0)  # the handler runs here, and what it raises is ignored

    def work():
        gc.callbacks.append(in_collection)
        try:
            gc.collect()
            reached.append("work went on")
            Reporter(quiet=True).say("between two stages")
            reached.append("next stage")
        finally:
            gc.callbacks.remove(in_collection)

    alone(work)
    code, _, err = langenode("methods")
    assert reached == ["callback", "work went on"] and (code, err) == SAYS[number]


def test_what_python_says_of_a_swallowed_signal_is_not_shown(monkeypatch):
    said = []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: said.append(ignored.exc_type))
    with interrupts.caught(lambda number: None):
        for error in (interrupts.Interrupted(2), ValueError()):
            cast(Any, sys.unraisablehook)(argparse.Namespace(exc_type=type(error)))
    assert said == [ValueError]
    cast(Any, sys.unraisablehook)(argparse.Namespace(exc_type=interrupts.Interrupted))  # nobody waits for signals now
    assert said == [ValueError, interrupts.Interrupted]


def test_a_signal_that_a_library_makes_something_else_of(langenode, alone):
    def work():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        except KeyboardInterrupt as error:
            raise RuntimeError("a library's own words") from error

    alone(work)
    code, _, err = langenode("methods")
    assert (code, err) == SAYS[signal.SIGINT]


def test_a_signal_while_the_lock_is_taken_waits(tmp_path, langenode, alone, monkeypatch):
    from langenode.storage import lock

    take = lock._take

    def slowly(path):
        held = take(path)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        assert path.exists()
        return held

    monkeypatch.setattr(lock, "_take", slowly)
    alone(lambda: RunFolder(tmp_path / "run").locked().__enter__())
    code, _, err = langenode("methods")
    assert (code, err) == SAYS[signal.SIGTERM] and not (tmp_path / "run").exists() and not lock._HELD


# The main thread is inside one long call that no signal ends: the other thread ends the process.
STUCK = """
import hashlib, sys
from pathlib import Path
from typing import Any, cast
from langenode.cli import command, work
from langenode.storage import interrupts
from langenode.storage.folder import RunFolder

interrupts.SECONDS_TO_END = 0.2

def stuck(**_):
    with RunFolder(Path(sys.argv[2])).locked():
        print("held", flush=True)
        hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)

work.list_methods = stuck
sys.argv = ["langenode", "methods", *sys.argv[2:2]]
command()
"""


def test_a_signal_inside_a_program_that_cannot_be_interrupted(tmp_path):
    code = STUCK.replace("sys.argv[2]", repr(str(tmp_path / "run")), 1)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        assert (tmp_path / "run" / ".lock").exists()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == SAYS[signal.SIGTERM]
    assert not (tmp_path / "run" / ".lock").exists()


# Streams and names


def run_command(*words, **options):
    return subprocess.run([sys.executable, "-m", "langenode", *words], capture_output=True, **options)


def test_standard_output_that_is_closed(tmp_path):
    words = [sys.executable, "-m", "langenode", "methods", "--json"]
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *words], capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1
    assert "standard output was closed" in done.stderr


def test_a_reader_that_goes_away():
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "langenode", "methods", "--json"], stdout=write, stderr=subprocess.PIPE, text=True
        )
    finally:
        os.close(write)
    assert done.returncode == 2 and "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_streams_that_are_closed_in_this_process(langenode, monkeypatch, stream):
    monkeypatch.setattr(sys, stream, None)
    code = None
    with contextlib.suppress(SystemExit):
        monkeypatch.setattr(sys, "argv", ["langenode", "methods", "--json"])
        from langenode.cli import main

        try:
            main()
        except SystemExit as stop:
            code = stop.code
    assert code == (2 if stream == "stdout" else None)


def test_a_file_name_that_is_not_utf_8(home, langenode):
    odd = os.fsdecode(b"caf\xe9.csv")
    shutil.copy("readings.csv", odd)
    for words in (["check", odd], ["fit", odd], ["fit", "readings.csv", "--out", odd], ["predict", odd, "--data", odd]):
        before = everything(home)
        code, out, err = langenode(*words, "--json")
        assert code == 2 and len(err.splitlines()) == 1 and "UTF-8" in err and "caf\\xe9" in err
        assert json.loads(out)["exit_code"] == 2 and everything(home) == before
    with pytest.raises(ConfigError):  # from Python, where its configuration would be stored
        open_run(home / "run", configure("own", [{"data": {"path": odd}}]), QUIET, force=False)
    (home / "tables").mkdir()
    for name in (b"a\xe9.csv", b"b.csv"):
        Path(os.fsdecode(os.fsencode(home / "tables") + b"/" + name)).write_text(text(rows()))
    code, _, err = langenode("check", "tables")
    assert code == 2 and "UTF-8" in err and len(err.splitlines()) == 1


def test_letters_that_a_terminal_cannot_show(home):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = run_command("check", "größe.csv", env=environment, cwd=home)
    assert done.returncode == 2 and b"Traceback" not in done.stderr and b"gr\\xf6\\xdfe.csv" in done.stderr


def test_too_little_memory_is_said_in_one_line(langenode, alone):
    def work():
        np.zeros(10**18)

    alone(work)
    code, _, err = langenode("methods")
    assert code == 3 and "must fit into memory" in err and len(err.splitlines()) == 1


def test_existing_runs_are_opened_as_before(tmp_path):
    config = configure("ou", [{"data": {"num_times": 4, "num_trajectories": 4}}])
    run = stages.Run.start(tmp_path / "run", config, QUIET, force=False)
    assert existing_run(tmp_path / "run", QUIET).config == config
    assert RunFolder(tmp_path / "run").own_files() == [run.folder.provenance, run.folder.config]
