"""What is being inferred.

- `Posterior`: one true w. Summed log-likelihood, temperature 1: epistemic, contracts with data.
- `Tempered`: the same with an explicit temperature (the paper averages over trajectories and times).
- `Population`: every unit has its own w; q(w) is to have the data's distribution: aleatory, does not contract.
- `Hierarchical`: every unit has its own w; the distribution of w has the largest marginal likelihood.

The first two are a bound, `-ELBO = KL - E[log-likelihood / temperature + log prior - log reference]`. The third is a
distance between distributions plus `kl_weight` times the KL. Its scale is arbitrary, so the KL weight is a choice:
large enough that directions the data do not see stay at the reference, small enough not to bias the ones they do. The
default 1e-4 costs no visible accuracy on the demonstrations; raise it tenfold at a time until the validation score
worsens, then go back one.
"""

import warnings
from typing import ClassVar, Literal

import equinox as eqx

PopulationLoss = Literal["energy", "quantile", "log_mean_exp"]


class Posterior(eqx.Module):
    """One true weight vector, inferred at temperature 1."""

    name: ClassVar[str] = "posterior"
    temperature: ClassVar[float] = 1.0
    kl_weight: ClassVar[float] = 1.0


class Tempered(eqx.Module):
    """One true weight vector, with the log-likelihood divided by `temperature` and the KL times `kl_weight`."""

    name: ClassVar[str] = "tempered"
    temperature: float = eqx.field(static=True)
    kl_weight: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        if not self.temperature > 0.0:
            raise ValueError(f"a temperature must be positive; got {self.temperature}; 1 is the plain posterior")


class Population(eqx.Module):
    """Every unit has its own weights; match the distribution of the data.

    **Losses:** `energy` compares whole trajectories by whitened principal scores (fair energy score, plus
    `moment_weight` times the squared error of the scores' mean and covariance); `quantile` sorts the samples at each
    time and takes the L1 distance to the data's quantiles (`saturation`: see `quantile_distance`); `log_mean_exp` is
    the marginal likelihood of a trajectory under the samples.

    `transition_weight` times minus the mean log density of a reading given the one before is added for models with
    noise of their own, whose memory a distance between marginal distributions does not see. `joint`: one unit keeps
    one w in all conditions, so trajectories of all conditions are compared together.

    `has_noise`: readings have the measurement noise of the problem's likelihood. It is simulated on top of predictions
    before they are compared with data, so that the weights have only the spread that is not noise. `num_units`, the
    number of units fitted to, widens the bands of new units accordingly (`predictions.for_new_units`). With
    `unbiased_spread` the energy loss compares with data that are spread by sqrt(n / (n - 1)) about their mean.
    """

    name: ClassVar[str] = "population"
    kind: PopulationLoss = eqx.field(static=True, default="energy")
    kl_weight: float = eqx.field(static=True, default=1e-4)
    moment_weight: float = eqx.field(static=True, default=0.0)
    joint: bool = eqx.field(static=True, default=False)
    transition_weight: float = eqx.field(static=True, default=0.0)
    saturation: float | None = eqx.field(static=True, default=None)
    power: int = eqx.field(static=True, default=1)
    has_noise: bool = eqx.field(static=True, default=False)
    num_units: int | None = eqx.field(static=True, default=None)
    unbiased_spread: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if self.kind not in ("energy", "quantile", "log_mean_exp"):
            raise ValueError(
                f"a population loss must be 'energy', 'quantile' or 'log_mean_exp'; got {self.kind!r}; choose one"
            )
        if self.kl_weight < 0.0:
            raise ValueError(f"kl_weight must not be negative; got {self.kl_weight}; 1e-4 is the default")


class Hierarchical(eqx.Module):
    """Every unit has its own weights, whose distribution maximises the marginal likelihood of all units' readings.

    Unlike a population it needs no replicates, tells noise from differences between units, and serves a unit whose
    first readings are known (`inference.hierarchical`).
    """

    name: ClassVar[str] = "hierarchical"


Target = Posterior | Tempered | Population | Hierarchical


def warn_of_mismatched_scales(target: Posterior | Tempered, num_observed: int) -> None:
    """Warn where a mean-scaled data term meets an unscaled KL: the result is then a prior-dominated compromise."""
    if target.temperature >= 0.1 * num_observed > 1.0 and target.kl_weight >= 0.1:
        warnings.warn(
            f"the data term is divided by {target.temperature:g}, about the number of observations "
            f"({num_observed}), but the KL is weighted by {target.kl_weight:g}: the two are on different scales, and "
            "bands will not shrink with more data; use target='posterior' for a calibrated posterior, or scale both",
            stacklevel=2,
        )
