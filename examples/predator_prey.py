# %% [markdown]
# # Predator and prey: a model for data without known equations
#
# Thirty enclosures were stocked with different, known numbers of prey and predators. The animals were then counted for
# twelve years, at irregular times and with counting errors; 15 % of the counts are missing. **Question:** how will the
# two populations develop in an unseen enclosure, given only its initial stock, and how certain can we be?
#
# We pretend not to know the equations. `ln.fit` then tries a few generic neural ODEs, keeps the simplest one that
# predicts the validation enclosures well, and infers the uncertainty of its weights and of the noise.

# %%
import os
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import solve_ivp

import langenode as ln

# The maximum-likelihood fit ends in a line search, which converges further in 64 bits. Importing langenode never
# changes JAX's settings, so we enable 64 bits here. (The sampler itself still runs in 32 bits.)
jax.config.update("jax_enable_x64", True)

SEED = int(os.environ.get("LANGENODE_SEED", "0"))
QUICK = bool(os.environ.get("LANGENODE_QUICK"))  # a minute faster, for the tests; the results are rougher
OUT = Path(os.environ.get("LANGENODE_EXAMPLES_OUT", "examples-output"))
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## The data
#
# The truth is the Lotka-Volterra law, with times in years and animals in hundreds. Each enclosure is one dict with its
# own times; NaN means "not counted", and `initial` is its stock at the first time. (If the start of a trajectory is not
# known, leave `initial` out: the first reading is used instead; see forced_oscillator.py.)

# %%
NUM_ENCLOSURES, NUM_COUNTS, YEARS = 20 if QUICK else 30, 30, 12.0
NOISE = np.array([0.10, 0.10])  # standard deviation of a count, hundreds of animals
MISSING = 0.15


def truth(start, times):
    def law(_, animals):
        prey, predators = animals
        return [0.9 * prey - 0.45 * prey * predators, 0.4 * prey * predators - 0.8 * predators]

    return solve_ivp(law, (0.0, YEARS), start, t_eval=times, rtol=1e-8, atol=1e-10).y.T


rng = np.random.default_rng(SEED)
starts, enclosures = rng.uniform([0.8, 0.8], [4.0, 3.5], (NUM_ENCLOSURES, 2)), []
for start in starts:
    times = np.concatenate([[0.0], np.sort(rng.uniform(0.1, YEARS, NUM_COUNTS))])
    counts = truth(start, times) + NOISE * rng.standard_normal((len(times), 2))
    counts[rng.random(counts.shape) < MISSING] = np.nan
    counts[0] = np.nan  # no counts on the day of stocking
    enclosures.append({"times": times, "outputs": counts, "initial": start})
units = {"time": "years", "prey": "hundreds", "predators": "hundreds"}
data = ln.Dataset.from_list(enclosures, output_names=["prey", "predators"], units=units)
train, valid, test = data.split(0.6, 0.15, 0.25, seed=SEED)
print(data)
print(f"{train.num_trajectories} to train, {valid.num_trajectories} to validate, {test.num_trajectories} held out")

# %% [markdown]
# ## The fit
#
# No choices are needed. The validation enclosures select the kind of model and, together with the training enclosures,
# calibrate the noise: the noise factor increases if new enclosures scatter more than the fitted ones.

# %%
options = {}
if QUICK:
    options = {
        "model": {"kind": "state", "largest_step": 0.05},
        "mle": {"num_adam": 300, "num_lbfgs": 0, "learning_rate": 0.03},
        "langevin": {"num_steps": 2, "layers": [8]},
        "training": {"num_updates": 10, "num_samples": 8},
        "predict": {"num_samples": 128},
    }
fit = ln.fit(train, validation=valid, seed=SEED, options=options)
print(fit)
kind = fit.config.model.model_dump()["kind"]
print(f"model kept: {kind}; trained in {fit.seconds:.0f} s; noise factors {np.round(fit.noise_factor, 2)}")

# %% [markdown]
# ## A fit is one file

# %%
fit.save(OUT / "predator_prey.langenode")
fit = ln.load_fit(OUT / "predator_prey.langenode")

# %% [markdown]
# ## Predictions for held-out enclosures
#
# `predict` returns an xarray Dataset. `quantiles` are those of the model's curve; `observation_quantiles` include the
# counting error, so these are the ones to compare with counts: 90 % of new counts should lie between the levels 0.05
# and 0.95.

# %%
predicted = fit.predict(test)
print(predicted)
band = predicted["observation_quantiles"].sel(level=[0.05, 0.95]).to_numpy()  # (2, enclosure, time, output)
for k, name in enumerate(test.output_names):
    seen = test.mask[..., k]
    counted = test.outputs[..., k][seen]
    rmse = np.sqrt(np.mean((predicted["mean"].to_numpy()[..., k][seen] - counted) ** 2))
    covered = np.mean((band[0, ..., k][seen] <= counted) & (counted <= band[1, ..., k][seen]))
    print(f"held-out {name}: rmse {rmse:.3f}, spread {counted.std():.3f} hundreds; 90 % coverage {100 * covered:.1f} %")

# %% [markdown]
# A prediction needs only a start and the times of interest: all outputs may be NaN. This gives smooth bands between the
# counts.
#
# **What to look for:** the band follows unseen counts through a cycle and a half. At first it is not much wider than
# the counting error, and the truth (dashed) lies within it. The missing counts do no harm: they are treated as gaps in
# the data, not as zeros.

# %%
fine = np.linspace(0.0, YEARS, 121)
shown = test.select(slice(0, 3))
stocked = np.asarray(shown.initial)
empty = np.full((shown.num_trajectories, len(fine), 2), np.nan)
curves = fit.predict(ln.Dataset.from_arrays(fine, empty, initial=stocked, output_names=data.output_names))

colours = {"prey": "#0072B2", "predators": "#D55E00"}
figure, axes = plt.subplots(1, shown.num_trajectories, figsize=(12, 3.6), sharey=True, layout="constrained")
for i, axis in enumerate(axes):
    exact = truth(stocked[i], fine)
    for k, (name, colour) in enumerate(colours.items()):
        low, high = curves["observation_quantiles"].isel(condition=i, out=k).sel(level=[0.05, 0.95]).to_numpy()
        axis.fill_between(fine, low, high, color=colour, alpha=0.25, lw=0, label=f"{name}: 90 % band of counts")
        axis.plot(fine, curves["mean"].isel(condition=i, out=k), color=colour, lw=1.2, label=f"{name}: mean")
        axis.plot(fine, exact[:, k], "k--", lw=0.9, label="truth" if k else None)
        seen = shown.mask[i, :, k]
        axis.plot(shown.times[i, seen], shown.outputs[i, seen, k], "os"[k], color=colour, ms=4, mec="k", mew=0.5,
                  label=f"{name}: counted")  # fmt: skip
    axis.set(title=f"held-out enclosure {shown.unit_names[i]}", xlabel="time (years)")
axes[0].set(ylabel="animals (hundreds)", ylim=(0, None))
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
figure.savefig(OUT / "predator_prey.png", dpi=150)
print(f"figure: {OUT / 'predator_prey.png'}")
