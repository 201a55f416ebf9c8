# %% [markdown]
# # A batch reactor: known kinetics and an unknown side reaction
#
# In a batch reactor A turns into the desired product B by a first-order reaction with a known activation energy. Part
# of B is lost to a by-product at an unknown rate. **Question:** what is the rate law of that loss, over the
# temperatures and concentrations of our batches, and how well do the data determine it?
#
# We write down what we know in plain JAX and put a small network where we do not:
#
#     dA/dt = -k exp(-E/R (1/T - 1/T_ref)) A              known except for the constant k
#     dB/dt = +k exp(-E/R (1/T - 1/T_ref)) A - loss(B, T)  a network, times B: no B, no loss

# %%
import os
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import solve_ivp

import langenode as ln

# The maximum-likelihood fit ends in a line search, which converges further in 64 bits. Importing langenode never
# changes JAX's settings, so we enable 64 bits here.
jax.config.update("jax_enable_x64", True)

SEED = int(os.environ.get("LANGENODE_SEED", "0"))
QUICK = bool(os.environ.get("LANGENODE_QUICK"))  # a minute faster, for the tests; the results are rougher
OUT = Path(os.environ.get("LANGENODE_EXAMPLES_OUT", "examples-output"))
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## The data
#
# There are twenty-four batches, each with its own charge of A and its own temperature ramp. We measure A by titration,
# and the absorbance of the mixture, to which both A and B contribute. The by-product is not observed. The charge is
# weighed, so the start of every batch is known (`initial`); the temperature is an input.
#
# The true loss follows a saturation law, which we pretend not to know.

# %%
NUM_BATCHES, NUM_SAMPLES, MINUTES = 24, 20, 60.0
T_REF, E_OVER_R, K_TRUE = 340.0, 6000.0, 0.05  # K, K, 1/min at T_REF
ABSORPTIVITY = np.array([0.2, 1.0])  # of A and B, in 1/(mol/L) of the cuvette
NOISE = np.array([0.015, 0.015])  # mol/L, and units of absorbance


def true_loss(b, temperature):
    """The unknown loss of B in mol/(L min)."""
    return 0.03 * np.exp(-9000.0 * (1.0 / temperature - 1.0 / T_REF)) * b / (1.0 + 2.0 * b)


def truth(charge, first, last, times):
    def law(t, state):
        temperature = first + (last - first) * t / MINUTES
        rate = K_TRUE * np.exp(-E_OVER_R * (1.0 / temperature - 1.0 / T_REF)) * state[0]
        return [-rate, rate - true_loss(state[1], temperature)]

    return solve_ivp(law, (0.0, MINUTES), [charge, 0.0], t_eval=times, rtol=1e-8, atol=1e-10).y.T


def observe(state):
    return np.stack([state[:, 0], state @ ABSORPTIVITY], axis=1)


rng = np.random.default_rng(SEED)
batches = []
for _ in range(NUM_BATCHES):
    charge, first, last = rng.uniform([0.5, 325.0, 335.0], [2.0, 345.0, 355.0])
    times = np.concatenate([[0.0], np.sort(rng.uniform(1.0, MINUTES, NUM_SAMPLES - 2)), [MINUTES]])
    readings = observe(truth(charge, first, last, times))
    batches.append(
        {
            "times": times,
            "inputs": first + (last - first) * times / MINUTES,
            "outputs": readings + NOISE * rng.standard_normal(readings.shape),
            "initial": [charge, 0.0],
            "attributes": {"program": [charge, first, last]},
        }
    )
units = {"time": "min", "temperature": "K", "A": "mol/L"}
data = ln.Dataset.from_list(batches, input_names=["temperature"], output_names=["A", "absorbance"], units=units)
train, valid, test = data.split(0.6, 0.15, 0.25, seed=SEED)
print(data)
print(f"{train.num_trajectories} to train, {valid.num_trajectories} to validate, {test.num_trajectories} held out")

# %% [markdown]
# ## The model: what is known, and a network for the rest
#
# Any callable `(hidden, inputs) -> rate` can be a right-hand side. Here it is an Equinox module: its floating-point
# arrays are weights (those of the network, and `log_k`), while plain numbers are constants. The model sees the data in
# their own physical units, so we scale the network's arguments to order one by hand.


# %%
class Reactor(eqx.Module):
    log_k: jax.Array
    network: ln.MLP

    def __init__(self, key):
        self.log_k = jnp.log(jnp.asarray(0.03))  # an initial guess
        self.network = ln.MLP((2, 6, 1), key=key)

    def loss(self, b, temperature):
        """Loss of B in mol/(L min): zero without B, and never negative."""
        arguments = jnp.stack([b, (temperature - T_REF) / 10.0])
        return 0.01 * jax.nn.softplus(self.network(arguments)[0]) * b

    def __call__(self, hidden, inputs):
        a, b = hidden
        temperature = inputs[0]
        rate = jnp.exp(self.log_k - E_OVER_R * (1.0 / temperature - 1.0 / T_REF)) * a
        return jnp.stack([-rate, rate - self.loss(b, temperature)])


def observation(hidden, inputs):
    return jnp.stack([hidden[0], ABSORPTIVITY @ hidden])


model = ln.NeuralODE(
    Reactor(jax.random.key(SEED)),
    observation,
    num_hidden=2,
    log_noise=jnp.full(2, -3.0),  # the noise of the two outputs is inferred along with the weights
)

# %% [markdown]
# ## The fit
#
# In a model this small all weights can be stochastic, so that the band of the loss is not too narrow. Readings may be
# ten minutes apart, in which time A halves: `largest_step` makes the integrator (Heun's, of second order) take smaller
# steps. With long steps its error would be mistaken for a property of the reactor, and would bias k.

# %%
options = {
    "model": {"largest_step": 1.0},  # minutes
    "mle": {"penalty": 1e-5},
    "langevin": {"num_steps": 8, "estimator": "sticking"},
    "training": {"num_updates": 500, "num_samples": 32},
}
if QUICK:
    options = {
        "mle": {"num_adam": 400, "num_lbfgs": 0, "learning_rate": 0.03},
        "langevin": {"num_steps": 2, "layers": [8]},
        "training": {"num_updates": 10, "num_samples": 8},
        "predict": {"num_samples": 128},
    }
fit = ln.fit(train, validation=valid, model=model, method="langevin", stochastic="all", seed=SEED, options=options)
print(f"{fit}\ntrained in {fit.seconds:.0f} s; noise factors {np.round(fit.noise_factor, 2)}")

# %% [markdown]
# A fit file never contains code: to load it, pass a model of the same structure. The weights of that model do not
# matter.

# %%
fit.save(OUT / "batch_reactor.langenode")
fit = ln.load_fit(OUT / "batch_reactor.langenode", model=model)

# %% [markdown]
# ## Held-out batches

# %%
predicted = fit.predict(test)
band = predicted["observation_quantiles"].sel(level=[0.05, 0.95]).to_numpy()  # (2, batch, time, output)
for k, (name, unit) in enumerate(zip(test.output_names, ("mol/L", "(absorbance)"), strict=True)):
    seen = test.mask[..., k]
    measured = test.outputs[..., k][seen]
    rmse = np.sqrt(np.mean((predicted["mean"].to_numpy()[..., k][seen] - measured) ** 2))
    covered = np.mean((band[0, ..., k][seen] <= measured) & (measured <= band[1, ..., k][seen]))
    print(f"held-out {name}: rmse {rmse:.4f}, spread {measured.std():.4f} {unit}; 90 % coverage {100 * covered:.1f} %")

# %% [markdown]
# ## The learned rate law
#
# `fit.sample` draws weights, and `fit.problem.partition.combine(model, weights)` puts a sample into the model, so that
# anything computed from the model has a band. First the rate constant, then the loss of B.
#
# One 90 % interval in ten misses the truth. With seed 0 that of k does, by a tenth of a percent: an exact fit to the
# readings of A alone, without any network, is as low (0.0498). Other seeds give other measurement errors; try some.

# %%
partition, fitted = fit.problem.partition, fit.problem.model
draws = jnp.asarray(fit.flat_sample(128 if QUICK else 512))
k_low, k_high = np.quantile(jnp.exp(draws[:, partition.names.index("dynamics.log_k")]), [0.05, 0.95])
print(f"k at {T_REF:.0f} K: {k_low:.5f} to {k_high:.5f} per minute (90 %); the truth is {K_TRUE}")


@eqx.filter_jit
def losses(draws, b, temperature):
    def one(weights):
        dynamics = partition.combine(fitted, weights).dynamics
        return jax.vmap(dynamics.loss)(b, temperature)

    return jax.vmap(one)(draws)


def band_of_loss(b, temperature):
    values = losses(draws, jnp.asarray(b), jnp.asarray(temperature))
    return np.quantile(values, [0.05, 0.5, 0.95], axis=0)


# %% [markdown]
# The loss can only be learned where there are data: each curve ends at the largest B that the training batches reached
# within 3 K of its temperature. (B itself is not measured; for the plot we take it from the truth.)
#
# **What to look for:** the learned law bends like a saturating one, although nothing in the network imposes it. Its
# band is narrow where there are many batches and wide at high B and 350 K, where there are few; the truth lies in the
# band or close to it. Beyond the ends of the curves it would be a guess.

# %%
paths = []
for (charge, first, last), times, inputs in zip(train.attributes["program"], train.times, train.inputs, strict=True):
    paths.append(np.stack([truth(charge, first, last, times)[:, 1], inputs[:, 0]], axis=1))
paths = np.concatenate(paths)
figure, axes = plt.subplots(1, 3, figsize=(12.5, 3.8), layout="constrained")
within, top = [], 0.0
for temperature, colour in ((330.0, "#0072B2"), (340.0, "#009E73"), (350.0, "#D55E00")):
    reached = paths[np.abs(paths[:, 1] - temperature) < 3.0, 0].max()
    b = np.linspace(0.0, reached, 60)
    low, middle, high = band_of_loss(b, np.full_like(b, temperature))
    exact = true_loss(b, temperature)
    within.append((low <= exact) & (exact <= high))
    axes[2].fill_between(b, 1e3 * low, 1e3 * high, color=colour, alpha=0.3, lw=0)
    axes[2].plot(b, 1e3 * middle, color=colour, lw=1.3, label=f"{temperature:.0f} K: median, 90 % band")
    top = max(top, 1e3 * max(high.max(), exact.max()))
    axes[2].plot(b, 1e3 * exact, "k--", lw=1.0, label="truth" if temperature == 350.0 else None)
print(f"the 90 % band of the loss holds the truth at {100 * np.mean(np.concatenate(within)):.0f} % of the points drawn")
axes[2].set(title="the unknown loss of B", xlabel="B (mol/L)", ylabel="loss (mmol/(L min))", ylim=(0, 1.45 * top))
axes[2].legend(frameon=False, loc="upper left")

colours = ("#0072B2", "#D55E00", "#009E73")
for k, (axis, label) in enumerate(zip(axes, ("A (mol/L)", "absorbance (1)"), strict=False)):
    for i, colour in enumerate(colours[: test.num_trajectories]):
        axis.fill_between(test.times[i], *band[:, i, :, k], color=colour, alpha=0.3, lw=0)
        axis.plot(test.times[i], predicted["mean"][i, :, k], color=colour, lw=1.2)
        _, first, last = test.attributes["program"][i]
        axis.plot(test.times[i], test.outputs[i, :, k], "o", color=colour, ms=3.5, mec="k", mew=0.5,
                  label=f"batch {test.unit_names[i]}, {first:.0f} to {last:.0f} K")  # fmt: skip
    axis.set(title="held out: mean and 90 % band", xlabel="time (min)", ylabel=label, ylim=(0, None))
axes[0].legend(frameon=False)
figure.savefig(OUT / "batch_reactor.png", dpi=150)
print(f"figure: {OUT / 'batch_reactor.png'}")
