"""Value and gradient of the path loss of the weights' sampler: ours, Diffrax and torchsde; and the share of GEMM rate.

    dz = net(z) dtau + sqrt(2) dB,    loss = E [ 1/4 int |net(z) + z|^2 dtau + 1/2 |z_T - 1|^2 ]

by Euler-Maruyama in single precision, net D-D-D-D tanh, 50 samples, 2000 steps of 1e-3. All rivals in turn, warm.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode.posteriors import Reference, paper_langevin
from langenode.posteriors.many_paths import MEMORIES
from speed import common

NUM_DEVICES = min(2, os.cpu_count() or 1)
HERE = Path(__file__).parent


def main() -> None:
    options = common.options(__doc__)
    jax.config.update("jax_num_cpu_devices", NUM_DEVICES)
    record = common.Record()
    steps, repeats = (200, 5) if options.quick else (2000, 5)
    against_peers(record, 119, 50, steps, repeats, options.out)
    record.write(options.out)
    large(record, 1207, 256, 6 if options.quick else 24, repeats)
    record.write(options.out)


def operations(dim: int, samples: int, steps: int) -> float:
    """Of the matrix products alone: three layers forwards, and twice as many backwards; nothing recomputed counts."""
    return 3.0 * 3.0 * 2.0 * samples * dim**2 * steps


def against_peers(record: common.Record, dim: int, samples: int, steps: int, repeats: int, out: Path) -> None:
    """The three ratios, and the share of the GEMM rate."""
    ours = candidates(dim, samples, steps)
    best, told = common.quickest(ours, repeats=3)
    record.notes.append(f"ours: {told}")
    alone = common.interleaved({"ours": ours[best]}, repeats)["ours"]
    rate = common.gemm_rate()
    record.row(f"ours alone, D = {dim}, {samples} samples, {steps} steps", alone, best)
    record.results["sampler.gemm_share"] = {str(dim): operations(dim, samples, steps) / alone.least / rate}
    record.write(out)  # should the search for the rivals' best settings take too long
    theirs, tried = diffrax_best(dim, samples, steps)
    record.notes.append(f"Diffrax: {tried}")
    runs = {"ours": ours[best], "Diffrax": theirs[1]}
    settings = {"ours": best, "Diffrax": theirs[0]}
    processes = []
    for name, flag in (("torchsde", ()), ("torchsde adjoint", ("--adjoint",))):
        try:
            process, found = torch_process(dim, samples, steps, flag)
        except Exception as error:
            record.notes.append(f"{name} did not run: {error}")
            continue
        processes.append(process)
        runs[name], settings[name] = asked(process), found["best"]
        record.notes.append(f"{name}: {found['tried']}")
    timings = common.interleaved(runs, repeats)
    rate = max(rate, common.gemm_rate())
    for process in processes:
        process.stdin.close()
        process.wait()
    share = operations(dim, samples, steps) / timings["ours"].least / rate
    for name, timing in timings.items():
        ratio = timing.median / timings["ours"].median
        least = timing.least / timings["ours"].least
        record.row(name, timing, settings[name], ratio_of_medians=ratio, ratio_of_least=least)
    for name, key in (
        ("Diffrax", "vs_diffrax"),
        ("torchsde", "vs_torchsde"),
        ("torchsde adjoint", "vs_torchsde_adjoint"),
    ):
        if name in timings:
            record.results[f"sampler.{key}"] = timings[name].median / timings["ours"].median
    record.results["sampler.gemm_share"] = {str(dim): share}
    record.results["sampler.gemm_gflops"] = rate / 1e9


def large(record: common.Record, dim: int, samples: int, steps: int, repeats: int) -> None:
    """The share of the GEMM rate with many weights."""
    ours = candidates(dim, samples, steps)
    best, told = common.quickest(ours, repeats=1)
    rate = common.gemm_rate()
    timing = common.interleaved({"ours": ours[best]}, repeats)["ours"]
    rate = max(rate, common.gemm_rate())
    share = operations(dim, samples, steps) / timing.least / rate
    record.row(f"ours, D = {dim}, {samples} samples, {steps} steps", timing, best, gemm_share=share)
    record.notes.append(f"ours, D = {dim}: {told}")
    record.results["sampler.gemm_share"][str(dim)] = share


def chain(dim: int, steps: int, memory: Any) -> Any:
    """The paper's chain, drift net D-D-D-D."""
    reference = Reference(jnp.zeros(dim), jnp.ones(dim))
    made = paper_langevin(reference, jnp.zeros(dim), num_steps=steps, pseudo_time_step=1e-3, key=jax.random.key(0))
    return made.with_memory(memory)


def candidates(dim: int, samples: int, steps: int) -> dict[str, Callable[[], Any]]:
    """Our value and gradient: three amounts of memory, on one device and with the samples on two."""
    keys = jax.random.split(jax.random.key(1), samples)
    found = {}
    for memory in MEMORIES:
        sampler = chain(dim, steps, memory)
        params, static = eqx.partition(sampler, sampler.trained())

        def loss(params: Any, keys: jax.Array, static: Any = static) -> jax.Array:
            draws = eqx.combine(params, static).draws(keys)
            return jnp.mean(draws.kl) + 0.5 * jnp.mean(jnp.sum((draws.weights - 1.0) ** 2, -1))

        one = jax.jit(jax.value_and_grad(loss))
        found[f"{memory}, one device"] = lambda run=one, params=params: run(params, keys)
        if NUM_DEVICES > 1:
            two = jax.jit(on_devices(jax.value_and_grad(loss)))
            found[f"{memory}, samples on {NUM_DEVICES} devices"] = lambda run=two, params=params: run(params, keys)
    return found


def on_devices(value_and_gradient: Callable) -> Callable:
    """The same function with the samples divided among the devices, and its results averaged."""
    mesh = jax.sharding.Mesh(jax.devices(), ("device",))
    parts = jax.sharding.PartitionSpec

    def local(params: Any, keys: jax.Array) -> Any:
        # An exchange at the beginning: without one the devices of a CPU run one after the other.
        params = jax.lax.pmean(params, "device")
        return jax.lax.pmean(value_and_gradient(params, keys), "device")

    return jax.shard_map(local, mesh=mesh, in_specs=(parts(), parts("device")), out_specs=parts(), check_vma=False)


def diffrax_best(dim: int, samples: int, steps: int) -> tuple[tuple[str, Callable[[], Any]], dict[str, str]]:
    """The best of Diffrax's Brownian paths, adjoints and step controls, searched with fewer steps."""
    import diffrax

    motions = ("VirtualBrownianTree", "UnsafeBrownianPath")
    adjoints = {
        "RecursiveCheckpointAdjoint": diffrax.RecursiveCheckpointAdjoint(),
        "RecursiveCheckpointAdjoint, all steps kept": diffrax.RecursiveCheckpointAdjoint(checkpoints=steps),
        "DirectAdjoint": diffrax.DirectAdjoint(),
    }
    few = min(steps, 100)
    short, full = {}, {}
    for motion in motions:
        for name, adjoint in adjoints.items():
            if motion == "UnsafeBrownianPath" and name != "DirectAdjoint":
                continue  # refused by Diffrax, which has no other adjoint for it and then no gradient either
            for control in ("ConstantStepSize", "StepTo"):
                for devices in ("one device", "samples on devices") if NUM_DEVICES > 1 else ("one device",):
                    label = f"{motion}, {name}, {control}, {devices}"
                    made = (motion, adjoint, control, devices != "one device")
                    short[label] = lambda made=made, run=[]: diffrax_run(run, dim, samples, few, *made)
                    full[label] = lambda made=made, run=[]: diffrax_run(run, dim, samples, steps, *made)
    best, told = common.quickest(short, repeats=2)
    return (best, full[best]), told


def diffrax_run(
    kept: list, dim: int, samples: int, steps: int, motion: str, adjoint: Any, control: str, divided: bool
) -> Any:
    """Run once; compiled at the first call."""
    if not kept:
        kept.append(diffrax_gradient(dim, steps, motion, adjoint, control, divided))
    sampler = chain(dim, 2, "plain")
    return kept[0](sampler.control.network, jax.random.split(jax.random.key(1), samples))


def diffrax_gradient(dim: int, steps: int, motion: str, adjoint: Any, control: str, divided: bool) -> Callable:
    """Value and gradient with all samples as one state."""
    import diffrax
    import lineax

    end = 1e-3 * steps
    controller: Any = diffrax.ConstantStepSize()
    if control == "StepTo":
        controller = diffrax.StepTo(jnp.linspace(0.0, end, steps + 1))

    def loss(net: Any, keys: jax.Array) -> jax.Array:
        num = keys.shape[0]
        shape = (jax.ShapeDtypeStruct((num, dim), jnp.float32), jax.ShapeDtypeStruct((num,), jnp.float32))
        if motion == "VirtualBrownianTree":
            path: Any = diffrax.VirtualBrownianTree(0.0, end, tol=9.9e-4, shape=shape, key=keys[0])
        else:
            path = diffrax.UnsafeBrownianPath(shape=shape, key=keys[0])

        def drift(t: Any, y: Any, args: Any) -> Any:
            u = jax.vmap(net)(y[0])
            return u, 0.25 * jnp.sum((u + y[0]) ** 2, -1)

        def noise(t: Any, y: Any, args: Any) -> Any:
            return lineax.DiagonalLinearOperator((jnp.full((num, dim), 2.0**0.5), jnp.zeros(num)))

        solution = diffrax.diffeqsolve(
            diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(noise, path)),
            diffrax.Euler(),
            t0=0.0,
            t1=end,
            dt0=None if control == "StepTo" else 1e-3,
            y0=(jnp.zeros((num, dim)), jnp.zeros(num)),
            adjoint=adjoint,
            stepsize_controller=controller,
            max_steps=steps + 1,
        )
        states: Any = solution.ys
        last, kl = (leaf[-1] for leaf in states)
        return jnp.mean(kl) + 0.5 * jnp.mean(jnp.sum((last - 1.0) ** 2, -1))

    run = jax.value_and_grad(loss)
    return jax.jit(on_devices(run) if divided else run)


def torch_process(dim: int, samples: int, steps: int, flags: tuple[str, ...]) -> tuple[Any, dict[str, Any]]:
    """Start torchsde; return the process and its settings."""
    command = [sys.executable, HERE / "torch_sampler.py", "--dim", dim, "--samples", samples, "--steps", steps, *flags]
    process = subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"torchsde ended with {process.wait()}; is it installed (make bench does so)?")
    return process, json.loads(line)


def asked(process: Any) -> Callable[[], float]:
    """One run of a process that waits for a line."""

    def run() -> float:
        process.stdin.write("\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    return run


if __name__ == "__main__":
    main()
