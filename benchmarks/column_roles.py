"""How often inputs and outputs are told apart by their numbers, on simulated tables with and without helpful names.

    python benchmarks/column_roles.py --tables 50 --seed 0

Each table has 6 trajectories of 60 readings with noise. *Wrong* counts tables in which a column has the wrong role;
*doubts* those with a doubt, of which *wrong with a doubt* are the wrong ones that say so.
"""

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from langenode.data.columns.evidence import Paths
from langenode.data.columns.roles import find_roles
from langenode.data.tables import Groups

NUM, STEPS, DT = 6, 60, 0.5
TIMES = np.arange(STEPS) * DT


class Case(NamedTuple):
    """A process: `draw(rng)` gives the columns of one trajectory; `inputs` are those that drive it."""

    inputs: set[str]
    draw: Callable[[np.random.Generator], dict[str, np.ndarray]]


def integrated(rate, start, drive):
    """The path of dh/dt = rate(h, u) with an input that is held between the times."""
    path, hidden = [np.array(start, float)], np.array(start, float)
    for value in drive[:-1]:
        for _ in range(10):
            hidden = hidden + DT / 10 * np.asarray(rate(hidden, value))
        path.append(hidden)
    return np.array(path)


def held(rng, levels, chance=0.1):
    changes = rng.random(STEPS) < chance
    changes[0] = True
    return rng.choice(levels, size=STEPS)[np.maximum.accumulate(np.where(changes, np.arange(STEPS), 0))]


def noise(rng, size):
    return size * rng.normal(size=STEPS)


def heater(rng):
    power = held(rng, [0.0, 25.0, 50.0])
    path = integrated(lambda h, u: -0.2 * (h - 20) + 0.2 * u, [20 + rng.normal()], power)[:, 0]
    return {"heater_W": power, "temp_degC": np.round(path + noise(rng, 0.2), 1)}


def thermostat(rng):
    state, on, power, path = 20.0 + rng.normal(), 0.0, [], []
    for _ in range(STEPS):
        on = 1.0 if state < 24 else 0.0 if state > 26 else on
        power.append(on)
        path.append(state)
        state += DT * (-0.1 * (state - 20) + on)
    return {"a": np.array(power), "b": np.array(path) + noise(rng, 0.04)}


def battery(rng, current):
    charge = 0.8 - np.append(0.0, np.cumsum(current[:-1])) * DT / 100
    warm = integrated(lambda h, u: -0.05 * (h - 25) + 0.05 * u**2, [25.0], current)[:, 0]
    slow = integrated(lambda h, u: -0.3 * h + 0.02 * u, [0.0], current)[:, 0]
    voltage = 3.5 + 0.6 * charge - 0.05 * current - slow
    return {"I [A]": current, "U [V]": voltage + noise(rng, 0.002), "T [°C]": warm + noise(rng, 0.03)}


def pulses(rng):
    return battery(rng, held(rng, [-2.0, 0.0, 1.0, 2.0]) + noise(rng, 0.01))


def drive_cycle(rng):
    return battery(rng, 2 * np.convolve(rng.normal(size=STEPS + 10), np.ones(4) / 2, "same")[:STEPS])


def sine_driven(rng):
    force = np.sin(0.6 * TIMES + rng.uniform(0, 6))
    path = integrated(lambda h, u: [h[1], -h[0] - 0.3 * h[1] + u], rng.normal(size=2), force)
    return {"a": force, "b": path[:, 0] + noise(rng, 0.02), "c": path[:, 1] + noise(rng, 0.02)}


def step_driven(rng):
    force = held(rng, rng.uniform(-1, 1, size=8))
    path = integrated(lambda h, u: [h[1], -h[0] - 0.3 * h[1] + u], rng.normal(size=2), force)
    return {"a": force, "b": path[:, 0] + noise(rng, 0.02), "c": path[:, 1] + noise(rng, 0.02)}


def oscillator(rng):
    path = integrated(lambda h, u: [h[1], -h[0] - 0.1 * h[1]], rng.normal(size=2), np.zeros(STEPS))
    return {"a": path[:, 0] + noise(rng, 0.02), "b": path[:, 1] + noise(rng, 0.02)}


def cascade(rng):
    path = integrated(lambda h, u: [-0.2 * h[0], 0.2 * h[0] - 0.1 * h[1]], [rng.uniform(1, 3), 0.0], np.zeros(STEPS))
    return {"a": path[:, 0] + noise(rng, 0.02), "b": path[:, 1] + noise(rng, 0.02)}


def counts(rng):
    rate = lambda h, u: [0.5 * h[0] * (1 - h[1]), 0.5 * h[1] * (h[0] - 1)]  # noqa: E731
    path = 20 * integrated(rate, rng.uniform(0.5, 1.5, size=2), np.zeros(STEPS))
    return {"a": np.round(path[:, 0] + noise(rng, 0.3)), "b": np.round(path[:, 1] + noise(rng, 0.3))}


def half_noisy(rng):
    path = integrated(lambda h, u: [h[1], -h[0] - 0.1 * h[1]], rng.normal(size=2), np.zeros(STEPS))
    return {"a": path[:, 0], "b": path[:, 1] + noise(rng, 0.1)}


CASES = {
    "heater and temperature": Case({"heater_W"}, heater),
    "thermostat, no names": Case({"a"}, thermostat),
    "battery, pulses": Case({"I [A]"}, pulses),
    "battery, drive cycle": Case({"I [A]"}, drive_cycle),
    "sine-driven oscillator, no names": Case({"a"}, sine_driven),
    "step-driven oscillator, no names": Case({"a"}, step_driven),
    "oscillator without input": Case(set(), oscillator),
    "reaction cascade without input": Case(set(), cascade),
    "two species, whole counts": Case(set(), counts),
    "oscillator, one column without noise": Case(set(), half_noisy),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    groups = Groups(
        tuple(map(str, range(NUM))),
        np.repeat(np.arange(NUM), STEPS),
        np.arange(NUM * STEPS),
        np.arange(NUM) * STEPS,
    )
    print("| table | wrong | doubts | wrong with a doubt |\n|---|---|---|---|")
    for number, (name, case) in enumerate(CASES.items()):
        rng = np.random.default_rng([options.seed, number])
        found = []
        for _ in range(options.tables):
            parts = [case.draw(rng) for _ in range(NUM)]
            columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
            roles = find_roles(Paths.of(columns, np.tile(TIMES, NUM), groups))
            is_wrong = {key for key, role in roles.items() if role.is_input} != case.inputs
            found.append((is_wrong, any(role.doubt for role in roles.values())))
        wrong, doubts = np.array(found).T
        print(f"| {name} | {wrong.sum()} | {doubts.sum()} | {(wrong & doubts).sum()} |")


if __name__ == "__main__":
    main()
