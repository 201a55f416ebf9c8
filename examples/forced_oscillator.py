# %% [markdown]
# # A forced oscillator: unobserved quantities need hidden state
#
# A mass on a stiffening spring is pushed by a recorded force, and only its position is measured. **Question:** how will
# it move under a new force?
#
# An equation for the position alone, dx/dt = R(x, force), is not enough: at the same position and under the same force
# the mass may be moving either way. The model needs a state that is not measured. We request it with the model kind
# "hidden": the state is the outputs followed by `num_hidden` further components, whose dynamics are learned with the
# rest. By default (`kind` "auto") all kinds are tried and judged on validation data, which takes three times as long.

# %%
import os
from pathlib import Path
from typing import Any

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
# The truth is Duffing's equation, x'' = -0.4 x' - x - 0.5 x^3 + force, with x in cm, time in s and a mass of 100 kg, on
# which a force of 1 N gives 1 cm/s^2. Each run is released from rest at its own position and pushed by three sines of
# random strength, frequency and phase. Held-out runs have different forces.
#
# No start is given: a run begins at the first reading of its position, with the noise of a reading, which is neither
# fitted nor scored. That the mass was at rest is learned: the start of the hidden components is an affine function of
# the first reading and force.

# %%
NUM_RUNS, NUM_READINGS, SECONDS = 20 if QUICK else 30, 61, 15.0
NOISE = 0.03  # cm


def truth(start, sines, times):
    def law(t, state):
        x, v = state
        return [v, -0.4 * v - x - 0.5 * x**3 + force_of(sines, t)]

    return solve_ivp(law, (0.0, SECONDS), [start, 0.0], t_eval=times, rtol=1e-8, atol=1e-10).y[0]


def force_of(sines, t):
    strength, frequency, phase = sines
    return np.sum(strength * np.sin(np.multiply.outer(t, frequency) + phase), axis=-1)


rng = np.random.default_rng(SEED)
times = np.linspace(0.0, SECONDS, NUM_READINGS)
runs, forces, exact = [], [], []
for _ in range(NUM_RUNS):
    start = rng.uniform(-1.0, 1.0)
    sines = rng.uniform([[0.2], [0.3], [0.0]], [[0.7], [2.0], [2.0 * np.pi]], (3, 3))
    exact.append(truth(start, sines, times))
    forces.append(force_of(sines, times))
    runs.append(exact[-1] + NOISE * rng.standard_normal(NUM_READINGS))
data = ln.Dataset.from_arrays(
    times,
    np.array(runs),
    inputs=np.array(forces),
    input_names=["force"],
    output_names=["position"],
    units={"time": "s", "force": "N", "position": "cm"},
    attributes={"truth": np.array(exact)},
)
train, valid, test = data.split(0.6, 0.15, 0.25, seed=SEED)
print(data)
print(f"{train.num_trajectories} to train, {valid.num_trajectories} to validate, {test.num_trajectories} held out")

# %% [markdown]
# ## Two fits: without and with hidden state
#
# We only want to see how the first one fails, so it is trained briefly.


# %%
def settings(kind: str, num_updates: int) -> dict[str, Any]:
    if QUICK:
        return {
            "model": {"kind": kind, "num_hidden": 1, "largest_step": 0.05},
            "mle": {"num_adam": 600, "num_lbfgs": 0, "learning_rate": 0.03},
            "langevin": {"num_steps": 2, "layers": [8]},
            "training": {"num_updates": 10, "num_samples": 8},
            "predict": {"num_samples": 128},
        }
    return {"model": {"kind": kind, "num_hidden": 1}, "training": {"num_updates": num_updates}}


fits = {}
if not QUICK:
    fits["no hidden state"] = ln.fit(train, validation=valid, seed=SEED, options=settings("state", 100))
fits["hidden state"] = fit = ln.fit(train, validation=valid, seed=SEED, options=settings("hidden", 500))
print(f"{fit}\ntrained in {fit.seconds:.0f} s; noise factor {fit.noise_factor[0]:.2f}")

# %% [markdown]
# ## Predictions under held-out forces
#
# `with_observed_start` masks the readings that define the start, so that they are not scored.

# %%
seen = ln.with_observed_start(test).mask[..., 0]
measured = test.outputs[..., 0][seen]
bands = {}
for name, one in fits.items():
    predicted = one.predict(test)
    mean = predicted["mean"].to_numpy()[..., 0]
    low, high = predicted["observation_quantiles"].sel(level=[0.05, 0.95]).to_numpy()[..., 0]
    bands[name] = (mean, low, high)
    rmse = np.sqrt(np.mean((mean[seen] - measured) ** 2))
    covered = np.mean((low[seen] <= measured) & (measured <= high[seen]))
    print(f"held-out position, {name}: rmse {rmse:.3f}, spread {measured.std():.3f} cm; "
          f"90 % coverage {100 * covered:.1f} %")  # fmt: skip

# %% [markdown]
# ## Export to ArviZ
#
# `to_arviz` returns samples of the stochastic weights, one variable per array of the model, and, if given data, also
# the predictions and observations: all of ArviZ's tables and plots work with it.

# %%
posterior = fit.to_arviz(test, num_samples=128 if QUICK else 500)
print("groups:", ", ".join(posterior.groups()))
noise = np.exp(posterior["posterior"]["log_noise"].to_numpy()).ravel() * fit.noise_factor
noise = noise * fit.scaling.output_scale[0]  # the fit uses scaled units
print(f"inferred noise {noise.mean():.3f} cm, of which the readings' own is {NOISE} cm")

# %% [markdown]
# **What to look for:** without hidden state the model can only give a wide band, which correctly reflects its
# ignorance. With one hidden component the prediction follows the mass for fifteen seconds under a new force, so
# closely that the difference is plotted separately (bottom row). Most of the difference is measurement error; the rest
# (dashed line) is smooth in time. Part of it comes from the first reading, whose error propagates (and is included in
# the band).

# %%
figure, axes = plt.subplots(3, 3, figsize=(12, 7.5), sharex=True, sharey="row", layout="constrained",
                            height_ratios=[1, 2, 1.4])  # fmt: skip
colours = {"no hidden state": "#D55E00", "hidden state": "#0072B2"}
for i, (top, middle, bottom) in enumerate(axes.T):
    top.plot(times, test.inputs[i, :, 0], color="#009E73", lw=1.3)
    for name, (mean, low, high) in bands.items():
        colour = colours[name]
        middle.fill_between(times, low[i], high[i], color=colour, alpha=0.3, lw=0, label=f"{name}: 90 % band")
        middle.plot(times, mean[i], color=colour, lw=1.2, label=f"{name}: mean")
    middle.plot(times, test.attributes["truth"][i], "k--", lw=0.9, label="truth")
    middle.plot(times, test.outputs[i, :, 0], "ko", ms=2.4, label="measured")
    mean, low, high = (part[i] for part in bands["hidden state"])
    bottom.fill_between(times, low - mean, high - mean, color=colours["hidden state"], alpha=0.3, lw=0)
    bottom.axhline(0.0, color=colours["hidden state"], lw=1.2)
    bottom.plot(times, test.attributes["truth"][i] - mean, "k--", lw=0.9)
    bottom.plot(times, test.outputs[i, :, 0] - mean, "ko", ms=2.4)
    top.set_title(f"held-out run {test.unit_names[i]}")
    bottom.set_xlabel("time (s)")
axes[0, 0].set_ylabel("force (N)")
axes[1, 0].set_ylabel("position (cm)")
axes[2, 0].set_ylabel("position less the mean\nwith hidden state (cm)")
figure.legend(*axes[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
figure.savefig(OUT / "forced_oscillator.png", dpi=150)
print(f"figure: {OUT / 'forced_oscillator.png'}")
