"""One run by several processes, on one machine or many: who they are, what they share, and what ends them.

All do the same work on the same numbers; samples and conditions are divided over the devices of all (`inference.
sharding`). The first process owns the run folder. The others get a copy of it when it is opened, in a temporary folder
of their own, so that they resume where it does; nobody else writes into the folder. Each holds a connection to the
first: where it breaks, a process was lost, and all end at once, since the others would wait for it for ever.
"""

import contextlib
import json
import re
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from langenode import _version
from langenode.config import ConfigError
from langenode.fitting.methods import methods
from langenode.inference import sharding
from langenode.inference.errors import FitError
from langenode.runs.stages import STAGES, Run, Stage
from langenode.storage.folder import RunFolder, write_bytes

SECONDS_TO_JOIN = 300.0
# How long a process that has met an error of another waits to hear whose it was.
SECONDS_TO_HEAR = 5.0
# JAX's own means of finding a lost process, which also sees a machine without power.
HEARTBEAT_SECONDS = 60
LAST_SHARED: Stage = "predict"
OnLost = Callable[[str], Any]


class Place(NamedTuple):
    """Where the processes of a run meet, how many they are, and which of them this is."""

    host: str
    port: int
    num: int
    rank: int


# Who they are


def place_of(
    coordinator: str | None, num_processes: int | None, process_id: int | None, environ: Mapping[str, str]
) -> Place:
    """The place by the options, or else by what SLURM says of a task."""
    options = {"--coordinator": coordinator, "--num-processes": num_processes, "--process-id": process_id}
    if all(value is None for value in options.values()):
        return _by_slurm(environ)
    missing = [name for name, value in options.items() if value is None]
    if coordinator is None or num_processes is None or process_id is None:
        raise ConfigError(
            f"--distributed takes three options together, or none under SLURM; {' and '.join(missing)} missing; give "
            "all of them to every process"
        )
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"--coordinator must be HOST:PORT of the first process; got {coordinator!r}; e.g. 10.0.0.1:8476"
        )
    if num_processes < 2 or not 0 <= process_id < num_processes:
        raise ConfigError(
            f"processes are at least 2 and numbered from 0; got --num-processes {num_processes} --process-id "
            f"{process_id}; number them 0 to {max(num_processes, 2) - 1}"
        )
    return Place(host.strip("[]"), int(port), num_processes, process_id)


def _by_slurm(environ: Mapping[str, str]) -> Place:
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST")
    num = environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS")
    index, job = environ.get("SLURM_PROCID"), environ.get("SLURM_JOB_ID")
    if nodes is None or num is None or index is None or job is None:
        raise ConfigError(
            "--distributed must know the processes; found neither options nor a task of SLURM; give --coordinator "
            "HOST:PORT --num-processes N --process-id I, or start with srun"
        )
    if int(num) < 2:
        raise ConfigError(f"--distributed needs several tasks; SLURM has started {num}; use srun --ntasks=2 or more")
    # Jobs that share a machine must not share a port.
    return Place(first_host(nodes), 20_000 + int(job) % 20_000, int(num), int(index))


def first_host(nodes: str) -> str:
    """The first of SLURM's list of nodes: `gpu-[003-006,9],x1` gives `gpu-003`."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", nodes)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first[0] if first else nodes)


def check(config: Any) -> None:
    """Raise where a fit has nothing to divide: only what Algorithm 1 trains is."""
    if config.is_drawn or config.target == "hierarchical":
        trained = ", ".join(name for name, method in methods().items() if not method.is_drawn)
        raise ConfigError(
            f"--distributed divides the samples of a training; got method {config.method} and target "
            f"{config.target}, which have none; choose one of {trained} and another target than hierarchical"
        )


# What they share


class Team:
    """The processes of a run. By itself, without `place`, it is the one that there is."""

    def __init__(self, place: Place | None = None):
        self.place = place
        self.links: list[_Link] = []

    @property
    def is_first(self) -> bool:
        """Whether this process owns the run folder."""
        return self.place is None or self.place.rank == 0

    @contextlib.contextmanager
    def folder(self, path: Path) -> Iterator[Path]:
        """The folder to work in: the run's own for the first process, a copy of it for another once it is shared."""
        if self.is_first:
            yield path
            return
        with tempfile.TemporaryDirectory(prefix="langenode-") as temporary:
            self.links[0].receive(Path(temporary))
            self.links[0].watch()
            yield Path(temporary)

    def share(self, path: Path) -> None:
        """Give the files of the run folder to the other processes."""
        if self.is_first:
            for link in self.links:
                link.send_files(path)

    def complete(self, run: Run, last: Stage = "report") -> None:
        """Do the missing stages: together as far as there is something to divide, the others by the first process."""
        if self.place is None:
            run.complete(last)
            return
        check(run.config)
        import jax

        common = STAGES[min(STAGES.index(last), STAGES.index(LAST_SHARED))]
        with sharding.over(jax.devices()):
            try:
                run.complete(common)
            except jax.errors.JaxRuntimeError as error:
                time.sleep(SECONDS_TO_HEAR)  # a lost process is told by its connection, which ends this one
                raise FitError(
                    f"processes must reach each other as long as they train; {str(error).splitlines()[0]}; see what "
                    "the others say; the same command resumes from the last checkpoint"
                ) from error
        for link in self.links:
            link.say_end()
        jax.distributed.shutdown()
        if self.is_first:
            run.complete(last)


class _Link:
    """A connection between the first process and another."""

    def __init__(self, connection: socket.socket, other: int, on_lost: OnLost):
        self.connection, self.other, self._on_lost = connection, other, on_lost
        self.stream = connection.makefile("rwb")
        self._is_over = False

    def say(self, **message: Any) -> None:
        self.stream.write(json.dumps(message).encode() + b"\n")
        self.stream.flush()

    def hear(self) -> dict[str, Any]:
        """The next message; an empty one where the connection has ended."""
        try:
            line = self.stream.readline()
            found = json.loads(line) if line else {}
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def say_end(self) -> None:
        """Say that from now on nobody waits for us."""
        self._is_over = True
        with contextlib.suppress(OSError):
            self.say(end=True)

    def say_error(self, error: BaseException) -> None:
        if not self._is_over:
            self._is_over = True
            with contextlib.suppress(OSError, ValueError):
                self.say(error=f"{type(error).__name__}: {' '.join(str(error).split())}")

    def send_files(self, folder: Path) -> None:
        files = [path for path in RunFolder(folder).own_files() if path.is_file()]
        content = {str(path.relative_to(folder)): path.read_bytes() for path in files}
        self.say(files={name: len(data) for name, data in content.items()})
        for data in content.values():
            self.stream.write(data)
        self.stream.flush()

    def receive(self, folder: Path) -> None:
        """Write the files that the first process sends, once it has opened the run."""
        message = self.hear()
        if "files" not in message:
            raise FitError(self._lost(message))
        for name, size in message["files"].items():
            path = folder / name
            if not path.resolve().is_relative_to(folder.resolve()):
                raise FitError(f"files of a run must lie in its folder; the first process sent {name!r}; end the job")
            write_bytes(path, self.stream.read(size))

    def watch(self) -> None:
        """Look out for the other's end, in a thread."""
        threading.Thread(target=self._watch, daemon=True, name="langenode-link").start()

    def _watch(self) -> None:
        message = self.hear()
        if "end" not in message and not self._is_over:
            self._on_lost(self._lost(message))

    def _lost(self, message: Mapping[str, Any]) -> str:
        what = f"ended with {message['error']}" if "error" in message else "was lost"
        return (
            f"all processes of a run must live as long as they work together; process {self.other} {what}; the same "
            "command resumes from the last checkpoint"
        )

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


# How they meet


@contextlib.contextmanager
def team(place: Place | None, on_lost: OnLost) -> Iterator[Team]:
    """The processes of a run, connected; `on_lost(message)` ends this one from a thread where another is lost."""
    found = Team(place)
    if place is None:
        yield found
        return
    try:
        port = _gather(found, place, on_lost) if place.rank == 0 else _join(found, place, on_lost)
        _initialize(place, port)
        yield found
    except BaseException as error:
        for link in found.links:
            link.say_error(error)
        raise
    finally:
        for link in found.links:
            link.close()


def _gather(found: Team, place: Place, on_lost: OnLost) -> int:
    """Wait for the other processes; tell them the port of JAX's own coordinator."""
    until = time.monotonic() + SECONDS_TO_JOIN
    port = _free_port(_bound(place))
    members: dict[int, _Link] = {}
    with _listening(place) as server:
        while len(members) < place.num - 1:
            server.settimeout(max(0.01, until - time.monotonic()))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                absent = sorted({*range(1, place.num)} - {*members})
                raise FitError(
                    f"all processes must come within {SECONDS_TO_JOIN:.0f} s; {', '.join(map(str, absent))} of "
                    f"{place.num} did not; start them with the same --coordinator"
                ) from None
            link = _Link(connection, -1, on_lost)
            connection.settimeout(10.0)  # whoever connects and says nothing
            said = link.hear()
            connection.settimeout(None)
            refusal = _refusal(said, place, members)
            if refusal is not None:
                with contextlib.suppress(OSError):
                    link.say(error=refusal)
                link.close()
                continue
            link.other = said["index"]
            members[link.other] = link
    found.links = [members[index] for index in sorted(members)]
    for link in found.links:
        link.say(port=port)
        link.watch()
    return port


def _refusal(said: Mapping[str, Any], place: Place, members: Mapping[int, Any]) -> str | None:
    index = said.get("index")
    if not isinstance(index, int) or not 0 < index < place.num or said.get("num") != place.num:
        return f"a process must be one of {place.num}, from 1; it said {dict(said)}; check --num-processes"
    if index in members:
        return f"each process must have a number of its own; {index} comes twice; check --process-id"
    if said.get("version") != _version.__version__:
        return f"all processes must have one version; found {said.get('version')} and {_version.__version__}; update"
    return None


def _listening(place: Place) -> socket.socket:
    try:
        return socket.create_server((_bound(place), place.port))
    except OSError as error:
        raise ConfigError(
            f"the first process must listen at the coordinator's port; {place.host}:{place.port}: {error.strerror}; "
            "choose another port in --coordinator"
        ) from None


def _bound(place: Place) -> str:
    """The address to listen at; a machine's own name may be a loopback address to itself, which others do not reach."""
    return "127.0.0.1" if place.host in ("127.0.0.1", "localhost") else ""


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as server:
        return server.getsockname()[1]


def _join(found: Team, place: Place, on_lost: OnLost) -> int:
    """Come to the first process, which may start later; hear the port of JAX's coordinator."""
    until = time.monotonic() + SECONDS_TO_JOIN
    while True:
        try:
            connection = socket.create_connection((place.host, place.port), timeout=10.0)
            break
        except OSError as error:
            if time.monotonic() > until:
                raise FitError(
                    f"the first process must listen at {place.host}:{place.port}; nobody did within "
                    f"{SECONDS_TO_JOIN:.0f} s ({error}); start it, or correct --coordinator"
                ) from None
            time.sleep(0.2)
    connection.settimeout(None)
    link = _Link(connection, 0, on_lost)
    found.links = [link]
    link.say(index=place.rank, num=place.num, version=_version.__version__)
    said = link.hear()
    if not isinstance(said.get("port"), int):
        raise FitError(str(said.get("error", "the first process must take part; it has ended; see what it says")))
    return said["port"]


def _initialize(place: Place, port: int) -> None:
    """Start JAX's runtime for several processes: gloo between CPUs, NCCL between GPUs."""
    import jax

    if "jax_enable_preemption_service" in jax.config.values:
        jax.config.update("jax_enable_preemption_service", False)  # SIGTERM is ours
    try:
        jax.distributed.initialize(
            f"{place.host}:{port}",
            place.num,
            place.rank,
            initialization_timeout=int(SECONDS_TO_JOIN),
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            coordinator_bind_address=f"{_bound(place) or '[::]'}:{port}" if place.rank == 0 else None,
        )
        jax.devices()  # waits for those of the others, so all must ask at this time
    except (RuntimeError, ValueError) as error:
        raise FitError(
            f"JAX must connect the processes; {type(error).__name__}: {error}; start them anew, with another port"
        ) from error
