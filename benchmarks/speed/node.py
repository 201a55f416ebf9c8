"""Value and gradient of a neural ODE's loss: ours beside Diffrax; and shared layers beside weights repeated per sample.

256 samples of a 1-16-16-1 net (321 weights), 100 steps of Heun's method, squared error, single precision; Diffrax takes
the same net, steps and method. Then 16-16-16-6, 50 samples, 100 conditions: the last layer stochastic, once with the
other layers shared and once with every weight repeated for every sample.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langenode.inference.partition import Partition
from langenode.inference.problem import simulate
from langenode.models import neural_ode
from speed import common


def main() -> None:
    options = common.options(__doc__)
    record, repeats = common.Record(), 11
    against_diffrax(record, 256, 100, repeats)
    record.write(options.out)
    shared_layers(record, 50, 100, 20 if options.quick else 50, repeats)
    record.write(options.out)


def spread(model: Any, partition: Partition, num: int) -> jax.Array:
    """Weight vectors near those of the model."""
    flat = jnp.concatenate([jnp.ravel(jax.tree.leaves(model)[i]) for i in partition.positions])
    return flat + 0.1 * jax.random.normal(jax.random.key(1), (num, partition.dim))


def against_diffrax(record: common.Record, samples: int, steps: int, repeats: int) -> None:
    """The neural ODE of the Schlögl demonstration."""
    layers: dict[str, Any] = {"dynamics_layers": (16, 16), "observation_layers": None}
    model = neural_ode(num_inputs=0, num_outputs=1, num_hidden=1, **layers, key=jax.random.key(0))
    partition = Partition.of(model, "all")
    weights = spread(model, partition, samples)
    times, initial = jnp.linspace(0.0, 2.0, steps + 1), jnp.ones((1, 1))
    data = jnp.sin(times)

    def ours(weights: jax.Array) -> jax.Array:
        outputs = simulate(model, partition, weights, times[None], jnp.zeros((1, steps + 1, 0)), initial)
        return jnp.mean((outputs[:, 0, :, 0] - data) ** 2)

    candidates = diffrax_candidates(model, partition, weights, times, data)
    best, told = common.quickest(candidates, repeats=5)
    record.notes.append(f"Diffrax, neural ODE: {told}")
    run = jax.jit(jax.value_and_grad(ours))
    difference = float(jnp.abs(run(weights)[0] - candidates[best]()[0]))
    timings = common.interleaved({"ours": lambda: run(weights), "Diffrax": candidates[best]}, repeats)
    ratio = timings["Diffrax"].median / timings["ours"].median
    record.row(f"neural ODE of {partition.dim} weights, ours", timings["ours"], "Heun, one program")
    record.row("neural ODE, Diffrax", timings["Diffrax"], best, ratio_of_medians=ratio, difference_of_losses=difference)
    record.results["node.vs_diffrax"] = ratio


def diffrax_candidates(
    model: Any, partition: Partition, weights: jax.Array, times: jax.Array, data: jax.Array
) -> dict[str, Callable[[], Any]]:
    """Diffrax with fixed steps: its adjoints, its ways to save, each sample solved alone or all as one state."""
    import diffrax

    steps = len(times) - 1
    adjoints = {
        "RecursiveCheckpointAdjoint": diffrax.RecursiveCheckpointAdjoint(),
        "RecursiveCheckpointAdjoint, all steps kept": diffrax.RecursiveCheckpointAdjoint(checkpoints=steps),
        "DirectAdjoint": diffrax.DirectAdjoint(),
    }
    nothing = jnp.zeros(0)

    def solve(field: Callable, start: jax.Array, adjoint: Any, save: str, control: str) -> jax.Array:
        solution: Any = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Heun(),
            t0=times[0],
            t1=times[-1],
            dt0=None if control == "StepTo" else times[1] - times[0],
            y0=start,
            adjoint=adjoint,
            stepsize_controller=diffrax.StepTo(times) if control == "StepTo" else diffrax.ConstantStepSize(),
            saveat=diffrax.SaveAt(ts=times) if save == "ts" else diffrax.SaveAt(t0=True, steps=True),
            max_steps=steps + (save == "ts"),
        )
        return solution.ys

    def alone(w: jax.Array, *how: Any) -> jax.Array:
        def one(w: jax.Array) -> jax.Array:
            dynamics = partition.combine(model, w).dynamics
            return solve(lambda t, y, args: dynamics(y, nothing), jnp.ones(1), *how)[: steps + 1, 0]

        return jnp.mean((jax.vmap(one)(w) - data) ** 2)

    def together(w: jax.Array, *how: Any) -> jax.Array:
        def field(t: Any, y: jax.Array, args: Any) -> jax.Array:
            return jax.vmap(lambda w, y: partition.combine(model, w).dynamics(y, nothing))(w, y)

        return jnp.mean((solve(field, jnp.ones((len(w), 1)), *how)[: steps + 1, :, 0].T - data) ** 2)

    found = {}
    for name, adjoint in adjoints.items():
        for kind, loss in (("each alone", alone), ("one state", together)):
            for save, control in (("ts", "constant"), ("steps", "constant"), ("steps", "StepTo")):
                run = jax.jit(jax.value_and_grad(lambda w, f=loss, a=adjoint, s=save, c=control: f(w, a, s, c)))
                found[f"{name}, {kind}, save {save}, {control}"] = lambda run=run: run(weights)
    return found


def shared_layers(record: common.Record, samples: int, conditions: int, num_times: int, repeats: int) -> None:
    """The rate net of the composite's material law, its last layer stochastic."""
    layers: dict[str, Any] = {"dynamics_layers": (16, 16), "observation_layers": None}
    model = neural_ode(num_inputs=10, num_outputs=6, num_hidden=6, **layers, key=jax.random.key(0))
    last, every = Partition.of(model, "last_layer"), Partition.of(model, "all")
    weights = spread(model, last, samples)
    times = jnp.broadcast_to(jnp.linspace(0.0, 1.0, num_times), (conditions, num_times))
    inputs = jax.random.normal(jax.random.key(2), (conditions, num_times, 10))
    data = jax.random.normal(jax.random.key(3), (conditions, num_times, 6))
    whole = jnp.broadcast_to(spread(model, every, 1) * 0.0, (samples, every.dim))
    flat = np.concatenate([np.ravel(jax.tree.leaves(model)[i]) for i in every.positions])
    whole = whole + flat
    places = np.concatenate([np.arange(a, a + n) for i, a, n in _spans(every) if i in last.positions])

    def shared(weights: jax.Array) -> jax.Array:
        return jnp.mean((simulate(model, last, weights, times, inputs) - data) ** 2)

    def repeated(weights: jax.Array, whole: jax.Array) -> jax.Array:
        return jnp.mean((simulate(model, every, whole.at[:, places].set(weights), times, inputs) - data) ** 2)

    one, two = jax.jit(jax.value_and_grad(shared)), jax.jit(jax.value_and_grad(repeated))
    difference = float(jnp.max(jnp.abs(one(weights)[1] - two(weights, whole)[1])))
    timings = common.interleaved({"shared": lambda: one(weights), "repeated": lambda: two(weights, whole)}, repeats)
    ratio = timings["repeated"].median / timings["shared"].median
    record.row("last layer stochastic, others shared", timings["shared"], f"{num_times} times")
    record.row("every weight repeated", timings["repeated"], f"{num_times} times", ratio_of_medians=ratio,
               difference_of_gradients=difference)  # fmt: skip
    record.results["node.bll_speedup"] = ratio


def _spans(partition: Partition) -> list[tuple[int, int, int]]:
    """Of every stochastic leaf its position, where it begins in the flat vector, and its size."""
    begins = np.concatenate([[0], np.cumsum(partition.sizes)[:-1]])
    return list(zip(partition.positions, begins, partition.sizes, strict=True))


if __name__ == "__main__":
    main()
