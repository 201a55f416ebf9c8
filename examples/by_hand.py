# %% [markdown]
# # By hand: a problem from its parts, and Algorithm 1
#
# `ln.fit` chooses and assembles everything. Here the same is done by hand, one part at a time: a model, which of its
# weights are stochastic, a prior, a likelihood, what is inferred, and the distribution that is trained. It is the way
# to combine the parts differently, or to replace one by your own.
#
# A tank is filled at a constant rate and drains through a hole: `dh/dt = source - rate h`. The level was read in
# sixteen experiments from known starts, with a gauge whose error is known. **Question:** what are the two numbers,
# and how certain are they?

# %%
import os
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import langenode as ln
from langenode import inference, posteriors

jax.config.update("jax_enable_x64", True)  # closed-form answers deserve it; importing langenode changes no setting

SEED = int(os.environ.get("LANGENODE_SEED", "0"))
OUT = Path(os.environ.get("LANGENODE_EXAMPLES_OUT", "examples-output"))
OUT.mkdir(parents=True, exist_ok=True)
RATE, SOURCE, NOISE = 0.8, 0.5, 0.05  # 1/min, m/min, m

# %% [markdown]
# ## Data
#
# `(trajectory, time, output)` arrays with a known start per trajectory. Every trajectory has its own start, so each is
# a condition of its own.

# %%
rng = np.random.default_rng(SEED)
times, starts = np.linspace(0.0, 4.0, 21), rng.uniform(0.2, 4.0, 16)
levels = SOURCE / RATE + (starts[:, None] - SOURCE / RATE) * np.exp(-RATE * times)
readings = levels + NOISE * rng.standard_normal(levels.shape)
data = ln.Dataset.from_arrays(
    times, readings[..., None], initial=starts[:, None], condition=np.arange(16), output_names=("level",)
)
train, valid, test = data.split(0.5, 0.25, 0.25, seed=SEED)


# %% [markdown]
# ## Model and its stochastic weights
#
# Any Equinox module `model(times, inputs, initial) -> outputs` will do. A `Partition` says which leaves are stochastic
# and turns them into one flat vector and back.


# %%
class Tank(eqx.Module):
    """`dh/dt = source - rate h`."""

    rate: jax.Array
    source: jax.Array

    def __call__(self, hidden, inputs):
        del inputs
        return self.source - self.rate * hidden


untrained = ln.NeuralODE(Tank(jnp.ones(()), jnp.zeros(())), num_hidden=1, solver=ln.Heun(4))
model = inference.fit_mle(untrained, train, num_adam=200, num_lbfgs=50, learning_rate=0.05).model
partition = inference.Partition.of(model, "all")
weights = partition.flatten(model)
print("maximum likelihood:", {name: round(float(w), 3) for name, w in zip(partition.names, weights, strict=True)})

# %% [markdown]
# ## What is believed, and what is asked
#
# A wide normal prior, noise of known scale, and the plain posterior as the target. The chain's reference is the Laplace
# approximation about the mode: without control the sampler draws from it.

# %%
prior = inference.GaussianPrior(jnp.zeros(2), jnp.full(2, 10.0))
likelihood = inference.given_noise(NOISE, train)
target = inference.targets.Posterior()
reference = inference.laplace_reference(model, partition, train, prior, likelihood)
key_sampler, key_training, key_weights, key_prediction = jax.random.split(jax.random.key(SEED), 4)
sampler = posteriors.langevin(reference, num_steps=8, layers=(16, 16), estimator="sticking", key=key_sampler)
problem = inference.Problem(model, partition, prior, likelihood, target, sampler)

# %% [markdown]
# ## Algorithm 1
#
# An objective is the data as the target sees them. `train` repeats the pass of `langenode/inference/algorithm1.py`:
# draw paths, run the model, form the bound, follow its gradient. Importance weights then say how far the result is from
# the posterior: a relative effective sample size of 1 is exact.

# %%
objective = inference.objective(problem, train, float)
settings = inference.TrainSettings(num_updates=200, num_samples=64, learning_rate=5e-3)
result = inference.train(problem, objective, settings, key=key_training)
fitted = result.problem
draws, log_weights = inference.log_weights(fitted, train, 2048, key=key_weights)
shares = jax.nn.softmax(log_weights)
print(f"relative effective sample size: {float(1.0 / (2048 * jnp.sum(shares**2))):.3f}")
for name, mean, std in zip(partition.names, draws.mean(0), draws.std(0), strict=True):
    print(f"{name}: {float(mean):.3f} +- {float(std):.3f}")

# %% [markdown]
# ## Predictions for experiments that were held out

# %%
prediction = inference.predict(fitted, test, 512, key=key_prediction)
outputs = np.asarray(prediction.outputs)[..., 0]  # (sample, condition, time)
observed = outputs + NOISE * rng.standard_normal(outputs.shape)
low, high = np.quantile(observed, [0.05, 0.95], axis=0)
heights, spread = test.outputs[..., 0], test.outputs.std()
inside = np.mean((low <= heights) & (heights <= high))
rmse = np.sqrt(np.mean((heights - outputs.mean(0)) ** 2))
print(f"held-out level: rmse {rmse:.3f}, spread {spread:.3f} m; 90 % coverage {100 * inside:.0f} %")

# %%
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
loss = np.asarray(result.state.history)[:, 0]
left.plot(loss, color="tab:blue")
left.set(xlabel="update", ylabel="minus the evidence lower bound", title="Training")
middle.scatter(*np.asarray(draws[:512]).T, s=6, color="tab:blue", alpha=0.5, label="samples")
middle.plot(RATE, SOURCE, "*", color="tab:orange", markersize=14, label="truth")
middle.set(xlabel="rate [1/min]", ylabel="source [m/min]", title="Posterior of the two weights")
middle.legend()
for number, colour in zip(range(2), ("tab:blue", "tab:orange"), strict=True):
    right.fill_between(times, low[number], high[number], color=colour, alpha=0.3, label=f"90 % band, test {number + 1}")
    right.plot(times, heights[number], "o", color=colour, markersize=3)
right.set(xlabel="time [min]", ylabel="level [m]", title="Held-out experiments")
right.legend()
figure.savefig(OUT / "by_hand.png", dpi=120)
print(f"the figure is {OUT / 'by_hand.png'}")
