"""An elimination that nobody knows: a network in place of Michaelis and Menten's formula, units that differ.

    python benchmarks/neural_elimination.py --seeds 1 2 3

40 units with 5 to 8 readings and 10 % noise; ka, V and Vmax are log-normal. Absorption is known. Candidates: the true
family; a network whose last layer is each unit's own (with ka and V); a network with one or two latent inputs. Each
line has 60 new units: log score per reading and the share of readings within 90 % bands, of which nothing, or the
first three readings, are known.
"""

import argparse
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import langenode as ln
from langenode._types import Array
from langenode.data import Dataset
from langenode.fitting.units.predicting import predict_units
from langenode.fitting.units.scoring import first_readings

DOSE, NUM_UNITS, NUM_NEW, NUM_GIVEN = 320.0, 40, 60, 3
# Typical ka [1/h], V [l], Vmax [mg/h], their spreads, and the concentration [mg/l] of half the largest rate.
TYPICAL, SPREAD, HALF = np.array([1.5, 30.0, 25.0]), np.array([0.5, 0.2, 0.3]), 4.0
ADDITIVE, RELATIVE = 0.05, 0.1
SUBSTEPS = 4


def solve(times: Array, dose: Array, p: Any, loss: Any) -> Array:
    """Concentrations at some times, by Runge-Kutta steps for the amount that has been eliminated.

    What has been absorbed is known exactly, so that nothing in the equation is fast.
    """

    def rate(time, gone):
        level = jnp.maximum(dose * (-jnp.expm1(-p.ka * time)) - gone, 0.0) / p.V
        return loss(level, p)

    def step(carry, end):
        begin, gone = carry
        length = (end - begin) / SUBSTEPS
        for number in range(SUBSTEPS):
            time = begin + number * length
            k1 = rate(time, gone)
            k2 = rate(time + length / 2, gone + length / 2 * k1)
            k3 = rate(time + length / 2, gone + length / 2 * k2)
            k4 = rate(time + length, gone + length * k3)
            gone = gone + length / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        level = jnp.maximum(dose * (-jnp.expm1(-p.ka * end)) - gone, 0.0) / p.V
        return (end, gone), level

    _, levels = jax.lax.scan(step, (jnp.zeros_like(times[0]), jnp.zeros_like(times[0])), times)
    return levels[:, None]


class Formula(eqx.Module):
    """The true elimination."""

    half: Array

    def __call__(self, times, inputs, p):
        """Concentrations."""
        half = jnp.exp(self.half)
        return solve(times, inputs[0, 0], p, lambda level, p: p.Vmax * level / (half + level))


class Network(eqx.Module):
    """A positive network of the concentration and of latent inputs, times the concentration."""

    network: ln.MLP
    latents: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, times, inputs, p):
        """Concentrations."""
        own = [getattr(p, name) for name in self.latents]

        def loss(level, p):
            return 5.0 * level * jax.nn.softplus(self.network(jnp.stack([level / 5.0, *own]))[0])

        return solve(times, inputs[0, 0], p, loss)


def models(key: Array) -> dict[str, tuple[ln.UnitModel, Any]]:
    """The candidates by name, each with the weights that are a unit's own (None: the effects)."""
    shared = {"ka": ln.LogNormal(1.0, 0.4), "V": ln.LogNormal(20.0, 0.3)}
    found: dict[str, tuple[ln.UnitModel, Any]] = {
        "true family": (
            ln.UnitModel(ln.Effects(**shared, Vmax=ln.LogNormal(20.0, 0.3)), Formula(jnp.log(jnp.asarray(3.0)))),
            None,
        ),
        "last layer": (
            ln.UnitModel(ln.Effects(**shared), Network(ln.MLP((1, 8, 1), "tanh", key=key), ())),
            lambda m: (m.effects.values, m.curve.network.layers[-1].weight, m.curve.network.layers[-1].bias),
        ),
    }
    for num in (1, 2):
        latents = tuple(f"z{place}" for place in range(num))
        effects = ln.Effects(**shared, **{name: ln.Normal(0.0, 1.0) for name in latents})
        model = ln.UnitModel(effects, Network(ln.MLP((1 + num, 8, 1), "tanh", key=key), latents))
        found[f"latent inputs {num}"] = (model, None)
    return found


def simulate(num: int, *, seed: int) -> Dataset:
    """Units of the true family."""
    rng = np.random.default_rng(seed)
    curve = jax.jit(lambda times, own: _true_curve(times, own))
    trajectories = []
    for number in range(num):
        count = int(rng.integers(5, 9))
        times = np.sort(np.exp(rng.uniform(np.log(0.25), np.log(36.0), count)))
        own = np.log(TYPICAL) + SPREAD * rng.standard_normal(3)
        fine = np.union1d(times, np.linspace(0.0, 36.0, 721)[1:])  # small steps
        level = np.interp(times, fine, np.asarray(curve(jnp.asarray(np.resize(fine, 730)), own))[: len(fine)])
        readings = level + np.hypot(ADDITIVE, RELATIVE * level) * rng.standard_normal(count)
        inputs = np.full((count, 1), DOSE)
        trajectories.append({"times": times, "outputs": readings, "inputs": inputs, "unit": str(number)})
    return Dataset.from_list(trajectories, input_names=["dose"], output_names=["conc"])


class _Own(NamedTuple):
    ka: Array
    V: Array
    Vmax: Array


def _true_curve(times: Array, own: np.ndarray) -> Array:
    p = _Own(*jnp.exp(own))
    return solve(times, jnp.asarray(DOSE), p, lambda level, p: p.Vmax * level / (HALF + level))[:, 0]


class Scored(NamedTuple):
    """Log score per reading, and the share of readings within 90 % bands."""

    log_score: float
    coverage: float


def score(fit: ln.Fit, new: Dataset, num_given: int, *, num_samples: int = 1000) -> Scored:
    """Readings of new units after the first ones."""
    prepared = fit.prepared(new)
    given = first_readings(prepared, num_given)
    asked = prepared.mask & ~given

    def predicted(mask: np.ndarray) -> Any:
        arguments = (fit.problem, fit.config, prepared, num_samples, fit.rule)
        return predict_units(*arguments, key=jax.random.key(0), rng=np.random.default_rng(0), given=mask)

    found = predicted(given)
    low, high = np.quantile(found.observed, (0.05, 0.95), axis=0)
    inside = (low <= prepared.outputs) & (prepared.outputs <= high)
    gain = predicted(prepared.mask).log_evidence - found.log_evidence
    return Scored(float(gain.sum() / asked.sum()), float(inside[asked].mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--models", nargs="+", default=None)
    arguments = parser.parse_args()
    print(f"{'':20s}{'new units':>18s}{'given ' + str(NUM_GIVEN):>18s}")
    for seed in arguments.seeds:
        with jax.enable_x64(True):
            train, new = simulate(NUM_UNITS, seed=seed), simulate(NUM_NEW, seed=seed + 10_000)
        for name, (model, where) in models(jax.random.key(seed)).items():
            if arguments.models is not None and name not in arguments.models:
                continue
            begin = time.process_time()
            method = "gaussian-diagonal" if where is not None else "gaussian-full"
            fit = ln.fit(train, model=model, stochastic=where, method=method, seed=seed, progress=False)
            rows = [score(fit, new, num) for num in (0, NUM_GIVEN)]
            shown = "".join(f"{row.log_score:10.3f}{row.coverage:8.3f}" for row in rows)
            print(f"{seed} {name:18s}{shown}{time.process_time() - begin:8.0f} s", flush=True)


if __name__ == "__main__":
    main()
