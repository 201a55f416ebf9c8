"""How time and memory of one pass of Algorithm 1 grow with samples, steps, weights, conditions and times.

Each series changes one size of a small problem (a neural ODE observed through its state, the weights' sampler in front
of it). Slopes are fitted to the larger half of a series, where fixed costs no longer count.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode.inference.partition import Partition
from langenode.inference.problem import simulate
from langenode.models import neural_ode
from langenode.posteriors import Reference, gaussian, langevin
from speed import common

BASE = {"samples": 64, "steps": 16, "width": 16, "conditions": 8, "times": 32}
SERIES = {
    "samples": (16, 64, 256, 1024, 4096),
    "steps": (64, 256, 1024, 4096),
    "width": (3, 8, 16, 32, 64, 98),
    "conditions": (8, 32, 128, 512),
    "times": (32, 128, 512, 2048),
}


def main() -> None:
    options = common.options(__doc__)
    record = common.Record()
    for name, sizes in SERIES.items():
        chosen = sizes[:-1] if options.quick else sizes
        series(record, name, chosen, 3 if options.quick else 5)
        record.write(options.out)
    trained(record, 20 if options.quick else 100)
    record.write(options.out)


def series(record: common.Record, name: str, sizes: tuple[int, ...], repeats: int) -> None:
    """Time and memory at every size, and their slopes."""
    seconds, mib, amounts = [], [], []
    for size in sizes:
        run, memory, weights = one_pass(**{**BASE, name: size})
        timing = common.interleaved({"run": run}, repeats)["run"]
        amount = weights if name == "width" else size
        record.row(f"growth: {name if name != 'width' else 'weights'} {amount}", timing, "", mib=memory)
        seconds.append(timing.least)
        mib.append(memory)
        amounts.append(amount)
    half = len(sizes) // 2
    slopes = {"time": common.slope(amounts[half:], seconds[half:]), "memory": common.slope(amounts[half:], mib[half:])}
    record.results.setdefault("growth", {})["weights" if name == "width" else name] = slopes


def one_pass(samples: int, steps: int, width: int, conditions: int, times: int) -> tuple[Callable[[], Any], float, int]:
    """A compiled pass, its temporary memory in MiB and the number of weights."""
    layers: dict[str, Any] = {"dynamics_layers": (width, width), "observation_layers": None}
    model = neural_ode(num_inputs=1, num_outputs=1, num_hidden=1, **layers, key=jax.random.key(0))
    partition = Partition.of(model, "all")
    dim = partition.dim
    reference = Reference(jnp.zeros(dim), jnp.full(dim, 0.1))
    sampler = langevin(reference, num_steps=steps, layers=(32, 32), noise="diagonal", key=jax.random.key(1))
    params, static = eqx.partition(sampler, sampler.trained())
    grid = jnp.broadcast_to(jnp.linspace(0.0, 1.0, times), (conditions, times))
    inputs = jnp.sin(grid)[..., None]
    keys = jax.random.split(jax.random.key(2), samples)

    def loss(params: Any) -> jax.Array:
        draws = eqx.combine(params, static).draws(keys)
        outputs = simulate(model, partition, draws.weights, grid, inputs, jnp.ones((conditions, 1)))
        return jnp.mean(draws.kl) + jnp.mean((outputs - 1.0) ** 2)

    program = jax.jit(jax.value_and_grad(loss)).lower(params).compile()
    return lambda: program(params), common.temporary_mib(program), dim


def trained(record: common.Record, num_updates: int) -> None:
    """Updates of a low-rank distribution of 10 000 weights: peak memory of this process, and the time of an update."""
    import resource

    import optax

    model = neural_ode(
        num_inputs=1, num_outputs=1, num_hidden=1, dynamics_layers=(98, 98), observation_layers=None,
        key=jax.random.key(0),
    )  # fmt: skip
    partition = Partition.of(model, "all")
    reference = Reference(jnp.zeros(partition.dim), jnp.full(partition.dim, 0.05))
    posterior = gaussian(reference, "lowrank", rank=8, key=jax.random.key(1))
    params, static = eqx.partition(posterior, posterior.trained())
    grid = jnp.broadcast_to(jnp.linspace(0.0, 1.0, 32), (8, 32))
    inputs, data = jnp.sin(grid)[..., None], jnp.cos(grid)[..., None]
    optimiser = optax.adam(1e-3)

    def loss(params: Any, key: jax.Array) -> jax.Array:
        draws = eqx.combine(params, static).draws(jax.random.split(key, 64))
        outputs = simulate(model, partition, draws.weights, grid, inputs, jnp.ones((8, 1)))
        return 1e-4 * jnp.mean(draws.kl) + jnp.mean((outputs - data) ** 2)

    @jax.jit
    def update(params: Any, moments: Any, key: jax.Array) -> tuple[Any, Any, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(params, key)
        steps, moments = optimiser.update(gradient, moments)
        return optax.apply_updates(params, steps), moments, value

    moments, values = optimiser.init(params), []
    for number in range(num_updates):
        params, moments, value = update(params, moments, jax.random.key(number))
        values.append(float(value))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    run = lambda: update(params, moments, jax.random.key(0))  # noqa: E731
    timing = common.interleaved({"run": run}, 5)["run"]
    told = f"rank 8, loss {values[0]:.3g} to {values[-1]:.3g} in {num_updates} updates"
    record.row(f"update of {partition.dim} weights", timing, told, peak_gib=peak)
    record.results.setdefault("growth", {})["training_of_10000_weights_gib"] = peak


if __name__ == "__main__":
    main()
