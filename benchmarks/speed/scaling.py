"""Weak scaling of Algorithm 1's update: two processes with twice the samples against one, each pinned to one core.

    python benchmarks/speed/scaling.py [--quick] [--out FILE]

Two processes of JAX's own runtime (gloo) time three things in turn, so that what disturbs the machine disturbs all of
them: the first alone with N samples, the other at rest; each by itself with N samples, at the same time and without a
word between them; both together with 2 N samples. `weak_2` is the first time over the last. `machine_2` is the first
over the second: what two busy cores of this machine, which share its memory, leave of one. `exchange_2` is the second
over the last: what the exchange of gradients, and waiting for each other, leave of two busy cores. The bytes that the
devices exchange in an update are counted in the compiled program.
"""

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS, QUICK_ROUNDS = 9, 3
# Samples of a process: as many as training takes by default, and fewer, where the exchange counts for more.
SAMPLES, FEW = 256, 64
BLOCK = 3  # updates that are timed at a time
# A neural ODE of 321 weights (16-16 hidden units) on 20 trajectories of 40 times; a chain of 16 steps.
LAYERS, CONTROL, STEPS, TRAJECTORIES, TIMES = (16, 16), (64, 64), 16, 20, 40
COLLECTIVE = re.compile(r"= (\(?[a-z0-9]+\[.*?) (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)\(")
ARRAY = re.compile(r"([a-z]+\d+)\[([\d,]*)\]")


def measure(*, quick: bool = False) -> dict[str, Any]:
    """Efficiencies of two processes, times of an update in milliseconds, and bytes exchanged per update."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        return {"weak_2": None, "note": "weak scaling needs two cores; this process may use one"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    rounds = QUICK_ROUNDS if quick else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        load = os.getloadavg()[0]
        words = [sys.executable, __file__, "--child", str(out), str(port), str(rounds)]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "NPROC": "1", "OMP_NUM_THREADS": "1"}
        pair = [subprocess.Popen([*words, str(k), str(core)], env=environment) for k, core in enumerate(cores)]
        codes = [process.wait() for process in pair]
        if any(codes):
            raise RuntimeError(f"both processes must end well; exit codes {codes}; see what they say")
        found = json.loads(out.read_text())
    result: dict[str, Any] = {}
    for samples, mark in ((SAMPLES, ""), (FEW, f"_{FEW}_samples")):
        result |= {f"{name}{mark}": value for name, value in _efficiencies(found["seconds"][str(samples)]).items()}
    sizes = {"samples_per_process": SAMPLES, "rounds": rounds, "load_before": load}
    return result | {"bytes_per_update": found["bytes"], "trained_numbers": found["trained_numbers"], **sizes}


def _efficiencies(seconds: dict[str, list[float]]) -> dict[str, float]:
    alone, apart, together = (seconds[name] for name in ("alone", "apart", "together"))
    return {
        "weak_2": _median_ratio(alone, together),
        "machine_2": _median_ratio(alone, apart),
        "exchange_2": _median_ratio(apart, together),
        "update_ms_1": 1e3 * statistics.median(alone),
        "update_ms_2": 1e3 * statistics.median(together),
        "update_ms_1_least": 1e3 * min(alone),
        "update_ms_2_least": 1e3 * min(together),
    }


def _median_ratio(above: list[float], below: list[float]) -> float:
    """Of neighbouring times, since the machine's speed drifts."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


# One of the two processes


def child(out: Path, port: int, rounds: int, index: int, core: int) -> None:
    os.sched_setaffinity(0, {core})
    import jax

    jax.distributed.initialize(f"127.0.0.1:{port}", 2, index)
    from jax.experimental import multihost_utils

    from langenode.inference import sharding

    def meet() -> None:
        multihost_utils.sync_global_devices("round")

    seconds, num_bytes, num_trained = {}, 0, 0
    for samples in (SAMPLES, FEW):
        with sharding.over(jax.devices()):
            together, num_bytes, num_trained = _updates(2 * samples)
        by_itself, _, _ = _updates(samples)
        seconds[samples] = _rounds(by_itself, together, meet, rounds, is_first=index == 0)
    if index == 0:
        out.write_text(json.dumps({"seconds": seconds, "bytes": num_bytes, "trained_numbers": num_trained}))
    meet()
    jax.distributed.shutdown()


def _rounds(
    by_itself: Callable[[], Any], together: Callable[[], Any], meet: Callable[[], None], rounds: int, *, is_first: bool
) -> dict[str, list[float]]:
    """Seconds of an update of each kind, in turn."""
    seconds: dict[str, list[float]] = {"alone": [], "apart": [], "together": []}
    for update in (by_itself, together):
        update()  # compile
    for _ in range(rounds):
        meet()
        if is_first:
            seconds["alone"].append(_timed(by_itself))
        for name, update in (("apart", by_itself), ("together", together)):
            meet()
            seconds[name].append(_timed(update))
    return seconds


def _timed(update: Callable[[], Any]) -> float:
    """Seconds of an update."""
    begin = time.perf_counter()
    update()
    return (time.perf_counter() - begin) / BLOCK


def _updates(num_samples: int) -> tuple[Callable[[], Any], int, int]:
    """A block of updates as training runs it, the bytes that devices exchange in one, and how many numbers train."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np

    from langenode.data import Dataset
    from langenode.inference import Partition, TrainSettings, given_noise, objective, sharding, training
    from langenode.inference.priors import GaussianPrior
    from langenode.inference.problem import Problem
    from langenode.inference.targets import Posterior
    from langenode.models import MLP, NeuralODE, OnConcatenation
    from langenode.posteriors import Reference, cast, langevin

    key = jax.random.key(1)
    times = np.linspace(0.0, 2.0, TIMES)
    starts = np.linspace(0.5, 2.0, TRAJECTORIES)[:, None]
    data = Dataset.from_arrays(times, (starts * np.exp(-times))[..., None], initial=starts)
    model = NeuralODE(OnConcatenation(MLP((1, *LAYERS, 1), key=key)), num_hidden=1)
    partition = Partition.of(model, "all")
    weights = partition.flatten(model)
    posterior = langevin(
        Reference(weights, 0.1 * jnp.ones_like(weights)), num_steps=STEPS, layers=CONTROL, noise="diagonal", key=key
    )
    prior = GaussianPrior(weights, jnp.ones_like(weights))
    problem = cast(Problem(model, partition, prior, given_noise(0.1, data), Posterior(), posterior), "float32")
    settings = TrainSettings(num_updates=10**6, num_samples=num_samples, block=BLOCK)
    settings = settings._replace(devices=sharding.devices_for(num_samples, is_trained=True))
    seen = objective(problem, data, "float32")
    # The history of losses is as long as the training; here it must not count.
    state = training.initial_state(problem, settings._replace(num_updates=BLOCK))
    params, static = eqx.partition(problem, training.trained_numbers(problem, settings))

    def update() -> Any:
        return jax.block_until_ready(training._run_block(state, static, seen, key, settings))

    num_trained = sum(leaf.size for leaf in jax.tree.leaves(params))
    if settings.devices.mesh is None:
        return update, 0, num_trained
    one: Any = eqx.filter_jit(training._update)
    vectors, restored = training._as_vectors(state)
    program = one.lower(vectors, static, seen, key, settings, restored).compile().compiled.as_text()
    return update, exchanged(program), num_trained


def exchanged(program: str) -> int:
    """The bytes of what collective operations of a compiled program give."""
    return sum(_bytes(found[1]) for found in COLLECTIVE.finditer(program))


def _bytes(shapes: str) -> int:
    total = 0
    for kind, sizes in ARRAY.findall(shapes):
        width = int(re.sub(r"\D", "", kind)) // 8
        number = 1
        for size in filter(None, sizes.split(",")):
            number *= int(size)
        total += width * number
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        out, *numbers = options.child
        child(Path(out), *map(int, numbers))
        return
    found = measure(quick=options.quick)
    print(json.dumps(found, indent=1))
    if options.out is not None:
        results = {f"scaling.{name}": value for name, value in found.items()}
        options.out.write_text(json.dumps({"results": results, "rows": [], "notes": []}, indent=1))


if __name__ == "__main__":
    main()
