# %% [markdown]
# # Theophylline: units that differ
#
# Twelve subjects took one oral dose of theophylline, and its concentration in their blood was read eleven times (the
# table is a textbook one: Boeckmann, Sheiner and Beal, 1994). Each subject absorbs and eliminates the drug at their own
# rates. **Questions:** how do these rates vary between subjects, and what will a new subject's concentration be, given
# the first three readings?
#
# The model is a few lines of JAX with parameters that differ between units. In the second part a network takes the
# place of the elimination that a pharmacologist would write down.

# %%
import csv
import os
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import langenode as ln

SEED = int(os.environ.get("LANGENODE_SEED", "0"))
QUICK = bool(os.environ.get("LANGENODE_QUICK"))  # fewer iterations, for the tests; the results are rougher
OUT = Path(os.environ.get("LANGENODE_EXAMPLES_OUT", "examples-output"))
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## The data
#
# The dose in mg is an input, constant in time; the weight is another.

# %%
with (Path(__file__).parent / "theophylline.csv").open() as file:
    rows = [list(map(float, row)) for row in list(csv.reader(file))[1:]]
subjects = []
for subject in sorted({row[0] for row in rows}):
    _, weight, dose, time, concentration = np.array([row for row in rows if row[0] == subject]).T
    inputs = np.stack([dose * weight, weight], axis=1)
    label = f"subject {subject:.0f}"
    subjects.append({"times": time, "outputs": concentration, "inputs": inputs, "unit": label, "condition": label})
data = ln.Dataset.from_list(subjects, input_names=("dose", "weight"), output_names=("concentration",))
print(data)
is_new = np.isin(np.arange(12), [2, 7, 10])
train, new = data.select(~is_new), data.select(is_new)

# %% [markdown]
# ## One compartment
#
# The dose is absorbed into the blood at the rate ka and cleared from the volume V at CL litres per hour. Typical values
# and spreads of the logarithms are where the fit starts. Clearance scales with body weight to a power that all subjects
# share, and which is estimated, too.

# %%
effects = ln.Effects(
    ka=ln.LogNormal(1.5, 0.6), V=ln.LogNormal(30.0, 0.3), CL=ln.LogNormal(2.7, 0.3), power=ln.Fixed(0.75)
)


def concentration_curve(times, inputs, p):
    dose, weight = inputs[:, 0], inputs[:, 1]
    clearance = p.CL * (weight / 70.0) ** p.power
    rate = clearance / p.V
    absorbed = jnp.exp(-rate * times) - jnp.exp(-p.ka * times)
    return (dose * p.ka / (p.V * (p.ka - rate)) * absorbed)[:, None]


options = {"hierarchical": {"num_laplace": 10, "num_importance": 2, "num_draws": 4}} if QUICK else {}
model = ln.UnitModel(effects, concentration_curve, noise="additive")
fit = ln.fit(train, model=model, seed=SEED, options=options)
record = fit.diagnostics["hierarchical"]
print(f"log-likelihood {record['log_likelihood']:.2f} ± {record['log_likelihood_se']:.2f}, AIC {record['aic']:.1f}")
for row in record["parameters"]:
    error = "at zero" if row["se"] is None else f"± {row['se']:.3g}"
    print(f"  {row['name']:20s} {row['estimate']:8.3g} {error}")

# %% [markdown]
# ## Elimination by a network
#
# Where the law of elimination is not known, a small network takes its place. It is positive, sees the concentration,
# and its weights are common to all subjects; a subject's own factor `CL` multiplies it.


# %%
class Elimination(eqx.Module):
    network: ln.MLP

    def __call__(self, state, inputs, p):
        depot, amount = state
        concentration = amount / p.V
        cleared = p.CL * concentration * jax.nn.softplus(self.network(concentration[None] / 10.0)[0])
        return jnp.stack([-p.ka * depot, p.ka * depot - cleared])


neural = ln.UnitModel(
    ln.Effects(ka=ln.LogNormal(1.5, 0.6), V=ln.LogNormal(30.0, 0.3), CL=ln.LogNormal(3.0, 0.3)),
    rate=Elimination(ln.MLP((1, 4, 1), "tanh", key=jax.random.key(SEED))),
    start=lambda inputs, p: jnp.stack([inputs[0], 0.0 * inputs[0]]),
    observe=lambda state, inputs, p: state[1:] / p.V,
    noise="additive",
)
fit_neural = ln.fit(train, model=neural, method="gaussian-diagonal", seed=SEED, options=options)

# %% [markdown]
# ## New subjects
#
# A new subject is predicted from the distribution of the effects alone; then given the first three readings. Bands hold
# what is left open of the subject, the uncertainty of what all subjects share, and the noise of a reading.

# %%
first = np.arange(new.num_times) < 3
known = ln.Dataset.from_arrays(
    new.times,
    np.where(first[None, :, None] & new.mask, new.outputs, np.nan),
    inputs=new.inputs,
    unit=[new.unit_names[i] for i in new.unit],
    condition=[new.condition_names[i] for i in new.condition],
    input_names=new.input_names,
    output_names=new.output_names,
)
num_samples = 200 if QUICK else 1000
scores = {}
figure, axes = plt.subplots(2, 3, figsize=(10, 5.5), sharex=True, sharey=True, layout="constrained")
for row, (name, one) in enumerate({"one compartment": fit, "network": fit_neural}.items()):
    alone = one.predict(new, given="nothing", num_samples=num_samples)
    given = one.condition(known).predict(num_samples=num_samples)
    low, high = (given["observation_quantiles"].sel(level=level).values[..., 0] for level in (0.05, 0.95))
    later = new.mask[..., 0] & ~first
    readings = new.outputs[..., 0]
    error = (given["mean"].values[..., 0] - readings)[later]
    inside = ((readings >= low) & (readings <= high))[later]
    scores[name] = np.sqrt(np.mean(error**2)), readings[later].std(), 100.0 * inside.mean()
    for column in range(3):
        times, axis = new.times[column], axes[row, column]
        for bands, colour, label in ((alone, "0.8", "new subject"), (given, "C0", "given three readings")):
            edges = bands["observation_quantiles"].sel(level=[0.05, 0.95]).values[:, column, :, 0]
            axis.fill_between(times, *edges, color=colour, alpha=0.5, label=f"{label}, 90 % of readings")
        axis.plot(times, new.outputs[column, :, 0], "ko", ms=3, label="readings")
        axis.plot(times[first], new.outputs[column, first, 0], "o", color="C1", ms=5, label="given")
        axis.set_title(f"{new.unit_names[new.unit[column]]}: {name}")
for axis in axes[-1]:
    axis.set_xlabel("time [h]")
for axis in axes[:, 0]:
    axis.set_ylabel("concentration [mg/L]")
axes[0, 0].legend(fontsize=7)
figure.savefig(OUT / "theophylline.png", dpi=150)
for name, (rmse, spread, coverage) in scores.items():
    print(f"held-out {name}: rmse {rmse:.3g}, spread {spread:.3g} mg/L; 90 % coverage {coverage:.0f} %")
