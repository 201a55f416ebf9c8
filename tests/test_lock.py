"""The lock of a folder: one process at a time, whatever a dead one left behind."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from langenode.storage import lock
from langenode.storage.folder import RunFolder, RunFolderError

RACING = Path(__file__).with_name("racing.py")
# No process has this number.
NOBODY = "999999999"


def left_behind(number: int) -> str | None:
    """What a lock file may hold before a race: nothing, a dead process, one that lives, or half a number."""
    return (None, NOBODY, str(os.getpid()), "", "1", "no number")[number % 6]


def race(path: Path, num_races: int, num_processes: int = 3) -> list[bytes]:
    """The answers of every race, one letter per process."""
    pipe = subprocess.PIPE
    words = [sys.executable, str(RACING), str(path), str(path.with_name("mark"))]
    processes = [subprocess.Popen([*words, str(seed)], stdin=pipe, stdout=pipe) for seed in range(num_processes)]
    ends = [(p.stdin.fileno(), p.stdout.fileno()) for p in processes if p.stdin and p.stdout]
    found = []
    try:
        assert [os.read(out, 1) for _, out in ends] == [b"r"] * num_processes
        for number in range(num_races):
            text = left_behind(number)
            if text is not None:
                path.mkdir(exist_ok=True)
                (path / ".lock").write_text(text)
            for into, _ in ends:
                os.write(into, b"g")
            found.append(b"".join(os.read(out, 1) for _, out in ends))
    finally:
        for process in processes:
            assert process.stdin and process.stdout
            process.stdin.close()
            process.stdout.close()
            assert process.wait() == 0
    return found


def check_races(path: Path, num_races: int) -> None:
    found = race(path, num_races)
    assert len(found) == num_races and all(len(answers) == 3 for answers in found)
    assert not [answers for answers in found if b"B" in answers]
    assert all(b"i" in answers for answers in found), "somebody must get in"
    inside = [sum(answers[who : who + 1] == b"i" for answers in found) for who in range(3)]
    assert min(inside) > 0, inside
    assert not path.exists() or not list(path.iterdir())


def test_a_folder_that_another_process_removes_meanwhile_is_made_again(tmp_path, monkeypatch):
    path, make, calls = tmp_path / "run", os.mkdir, []

    def make_slowly(name, mode=0o777):
        """The folder is there when it is to be made, and gone a moment later."""
        calls.append(name)
        if len(calls) == 1:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(name))
        make(name, mode)

    monkeypatch.setattr(os, "mkdir", make_slowly)
    with RunFolder(path).locked():
        assert (path / ".lock").exists()
    assert len(calls) == 2


def test_a_file_in_the_place_of_the_folder_is_refused_at_once(tmp_path):
    path = tmp_path / "run"
    path.write_text("mine")
    with pytest.raises(RunFolderError, match=r"must be writable.*File exists"), RunFolder(path).locked():
        pass
    assert path.read_text() == "mine"


def test_no_race_has_two_inside(tmp_path):
    check_races(tmp_path / "run", 90)


@pytest.mark.slow
def test_no_race_of_two_thousand_has_two_inside(tmp_path):
    check_races(tmp_path / "run", 2000)


@pytest.mark.parametrize("text", [NOBODY, "our own", "1", "", "no number"])
def test_a_number_in_the_file_is_not_believed(tmp_path, text):
    """Numbers are used again, also our own after a restart of a container: only a lock is a lock."""
    folder = RunFolder(tmp_path)
    folder.lock.write_text(str(os.getpid()) if text == "our own" else text)
    with folder.locked():
        assert folder.lock.read_text() == str(os.getpid())
        with pytest.raises(RunFolderError, match=f"in use by process {os.getpid()}; wait"), folder.locked():
            pass
        assert folder.lock.exists()
    assert not folder.lock.exists()


def test_a_lock_that_is_removed_while_it_is_taken_is_taken_again(tmp_path, monkeypatch):
    """The holder before removes the file between our opening and our locking it."""
    path, removed = tmp_path / ".lock", []
    flock = fcntl.flock

    def late(number, how):
        if not removed:
            removed.append(os.fstat(number).st_ino)
            path.unlink()
        flock(number, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with lock.locked(path):
        assert path.exists() and len(removed) == 1
        other = os.open(path, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the file in the folder is the one that is locked
        os.close(other)


def test_a_file_that_another_put_in_place_of_ours_is_left(tmp_path):
    path = tmp_path / ".lock"
    with lock.locked(path):
        path.unlink()
        path.write_text("another")
    assert path.read_text() == "another"


def test_an_error_inside_releases_the_lock(tmp_path):
    folder = RunFolder(tmp_path / "new")
    with pytest.raises(KeyError), folder.locked():
        raise KeyError
    assert not folder.path.exists()  # which was made for the lock
    assert not lock._HELD


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    """There the file itself is the lock; nobody can tell whether its owner lives, so it is never taken over."""

    def refuse(number, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    folder = RunFolder(tmp_path)
    with folder.locked():
        with pytest.raises(RunFolderError, match=r"in use by process .* or delete .*\.lock if none is at work"):
            folder.locked().__enter__()
        assert folder.lock.exists()
    assert not folder.lock.exists()
    folder.lock.write_text(NOBODY)
    with pytest.raises(RunFolderError, match="delete"), folder.locked():
        pass
    assert folder.lock.read_text() == NOBODY


def test_another_fault_of_the_file_system_is_said(tmp_path, monkeypatch):
    def fail(number, how):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(RunFolderError, match=r"must be writable; .*Input/output error"), RunFolder(tmp_path).locked():
        pass


def test_a_lock_ends_with_its_process(tmp_path):
    code = (
        "import sys, os, signal; from pathlib import Path; from langenode.storage.folder import RunFolder\n"
        "held = RunFolder(Path(sys.argv[1])).locked(); held.__enter__(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)])
    assert done.returncode == -9 and (tmp_path / ".lock").exists()
    with RunFolder(tmp_path).locked():
        pass
    assert not list(tmp_path.iterdir())
