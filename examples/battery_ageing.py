# %% [markdown]
# # Battery ageing: a network with latent inputs
#
# Cells of one type lose capacity as they are cycled, slowly at first and, beyond a knee, fast. Each cell ages at its
# own pace and has its knee at its own capacity; no equation is known for either. **Question:** when will a cell fall
# below 80 % of its capacity, given its first readings?
#
# The mean rate of ageing so far is a network of time and of two latent inputs. These are each cell's own, normal
# between cells, and mean nothing by themselves: the network shapes what they do. The data are simulated, so that the
# future of the new cells is known.

# %%
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
# Twenty-four cells, each read twelve times within a thousand cycles, with a noise of half a percent of the capacity.
# The last three are new: the fit does not see them.

# %%
rng = np.random.default_rng(SEED)
NOISE, NUM_CELLS, NUM_NEW, NUM_GIVEN = 0.005, 24, 3, 5


def age(pace, knee, cycles):
    """Capacity at some cycles [thousands], by small steps: the rate grows tenfold beyond the knee."""
    fine = np.linspace(0.0, 1.0, 2001)
    capacity = np.ones_like(fine)
    for step in range(len(fine) - 1):
        rate = pace * (1.0 + 9.0 / (1.0 + np.exp((capacity[step] - knee) / 0.01)))
        capacity[step + 1] = max(capacity[step] - rate * (fine[step + 1] - fine[step]), 0.0)
    return np.interp(cycles, fine, capacity)


cells = []
for number in range(NUM_CELLS):
    pace, knee = 0.13 * np.exp(0.25 * rng.standard_normal()), 0.91 + 0.015 * rng.standard_normal()
    cycles = np.linspace(0.0, 1.0, 12)
    capacity = age(pace, knee, cycles)
    # A cell is taken out of the test below 60 %.
    capacity = np.where(capacity > 0.6, capacity + NOISE * rng.standard_normal(12), np.nan)
    cells.append({"times": cycles, "outputs": capacity, "unit": f"cell {number}", "condition": f"cell {number}"})
data = ln.Dataset.from_list(cells, output_names=("capacity",))
print(data)
is_new = np.arange(NUM_CELLS) >= NUM_CELLS - NUM_NEW
train, new = data.select(~is_new), data.select(is_new)

# %% [markdown]
# ## The model
#
# The network is made positive, so that no cell gains capacity. All cells start with a capacity of one.


# %%
class Ageing(eqx.Module):
    network: ln.MLP

    def __call__(self, times, inputs, p):
        seen = jnp.stack([4.0 * times - 2.0, p.first + 0.0 * times, p.second + 0.0 * times], axis=1)
        return 1.0 - 0.5 * times[:, None] * jax.nn.softplus(jax.vmap(self.network)(seen) - 1.0)


effects = ln.Effects(first=ln.Normal(0.0, 1.0), second=ln.Normal(0.0, 1.0))
model = ln.UnitModel(effects, Ageing(ln.MLP((3, 8, 1), "tanh", key=jax.random.key(SEED))), noise="additive")
options = {"hierarchical": {"num_laplace": 40, "num_importance": 2, "num_draws": 2}} if QUICK else {}
fit = ln.fit(train, model=model, method="gaussian-diagonal", seed=SEED, options=options)
record = fit.diagnostics["hierarchical"]
print(
    f"log-likelihood {record['log_likelihood']:.1f} ± {record['log_likelihood_se']:.2f} of {record['num_units']} cells"
)

# %% [markdown]
# ## New cells
#
# Bands of a new cell, and of the same cell once its first readings are known.

# %%
first = np.arange(new.num_times) < NUM_GIVEN
known = ln.Dataset.from_arrays(
    new.times,
    np.where(first[None, :, None] & new.mask, new.outputs, np.nan),
    unit=[new.unit_names[i] for i in new.unit],
    condition=[new.condition_names[i] for i in new.condition],
    output_names=new.output_names,
)
num_samples = 200 if QUICK else 1000
alone = fit.predict(new, given="nothing", num_samples=num_samples)
given = fit.condition(known).predict(num_samples=num_samples)
low, high = (given["observation_quantiles"].sel(level=level).values[..., 0] for level in (0.05, 0.95))
later, readings = new.mask[..., 0] & ~first, new.outputs[..., 0]
error = (given["mean"].values[..., 0] - readings)[later]
inside = ((readings >= low) & (readings <= high))[later]
figure, axes = plt.subplots(1, NUM_NEW, figsize=(10, 3.5), sharex=True, sharey=True, layout="constrained")
for cell, axis in enumerate(axes):
    cycles = 1000.0 * new.times[cell]
    for bands, colour, label in ((alone, "0.8", "new cell"), (given, "C0", f"given {NUM_GIVEN} readings")):
        edges = bands["observation_quantiles"].sel(level=[0.05, 0.95]).values[:, cell, :, 0]
        axis.fill_between(cycles, *edges, color=colour, alpha=0.5, label=f"{label}, 90 % of readings")
    seen = new.mask[cell, :, 0]
    axis.plot(cycles[seen], readings[cell, seen], "ko", ms=3, label="readings")
    axis.plot(cycles[first], readings[cell, first], "o", color="C1", ms=5, label="given")
    axis.axhline(0.8, color="C3", lw=0.8, label="end of life")
    axis.set(title=new.unit_names[new.unit[cell]], xlabel="cycles")
axes[0].set_ylabel("capacity / nominal capacity")
axes[0].legend(fontsize=7)
figure.savefig(OUT / "battery_ageing.png", dpi=150)
rmse, spread, coverage = np.sqrt(np.mean(error**2)), readings[later].std(), 100.0 * inside.mean()
print(f"held-out capacity: rmse {rmse:.3g}, spread {spread:.3g} -; 90 % coverage {coverage:.0f} %")
