"""The numbers of section 3, and of the two chemical demonstrations."""

from langenode.experiments.paper_results.readers import (
    METHOD,
    NO_PULL,
    OURS_DIFFERS,
    Fact,
    Reader,
    Record,
    at,
    both,
    drift_size,
    find,
    motion_facts,
    option,
)

OU, SCHLOGL = "4.1 Langevin dynamics", "4.1 Schlögl model"


def _variance(i: int) -> Reader:
    def read(record: Record) -> float | None:
        std = find(record.metrics, f"exact_weights.std.{i}")
        return None if std is None else std**2

    return read


def _covariance(record: Record) -> float | None:
    found = find(record.metrics, "exact_weights")
    return None if found is None else found["corr"] * found["std"][0] * found["std"][1]


def gaussian_size(record: Record) -> int | None:
    """The numbers of a full Gaussian over the stochastic weights: means, and a symmetric matrix."""
    dim = find(record.metrics, "problem.num_stochastic")
    return None if dim is None else dim + dim * (dim + 1) // 2


METHOD_FACTS = (
    Fact(
        METHOD,
        "3 Methodology",
        "diffusion gamma of the prior and of the sampler",
        1.0,
        option("paper.diffusion"),
        option("langevin.diffusion"),
    ),
    Fact(
        METHOD,
        "3 Methodology",
        "standard deviation of the prior",
        1.0,
        *both(option("prior.scale")),
        "Of OU and Schlögl; the default of the materials and of all-weights populations is 0.1.",
    ),
    Fact(
        METHOD,
        "3 Methodology",
        "variance of the start about the maximum likelihood",
        1e-5,
        option("paper.start_variance"),
        None,
        "Our start is learned.",
    ),
    Fact(
        METHOD,
        "3 Methodology",
        "factor of the path KL",
        0.5,
        lambda record: {"half": 0.5, "quarter": 0.25}.get(find(record.config, "paper.kl_rate")),
        None,
        "The covariance of this SDE is 2 gamma^2, so that the rate is 1/4; ours is that of the discrete chain.",
    ),
)
# The ratio of sigmas that the paper finds small for all its models.
POINT_FITS = (
    ("ou", "OU", ""),
    ("schlogl", "Schlögl", "Within the mode of each trajectory: one prediction cannot be at the centre of both modes."),
    ("hyperelastic", "hyperelastic", ""),
    ("viscoelastic", "viscoelastic", "The default has our law."),
)
METHOD_FACTS += tuple(
    Fact(
        demonstration,
        "3 Methodology",
        f"sigma of the point fit over sigma of the data, {name}",
        "much smaller than 1 for all models",
        *both(at("point_fit.sigma_mle_over_data")),
        note,
        bounds=(0.0, 0.3),
    )
    for demonstration, name, note in POINT_FITS
)
OU_FACTS = (
    Fact("ou", OU, "training trajectories", 1024, *both(option("data.num_trajectories"))),
    Fact("ou", OU, "times per trajectory", 100, *both(option("data.num_times")), "The interval is ours: [0, 1]."),
    Fact("ou", OU, "exact mean of W", -8.0, *both(at("exact_weights.mean.0"))),
    Fact("ou", OU, "exact mean of b", 8.0, *both(at("exact_weights.mean.1"))),
    Fact("ou", OU, "exact variance of W", 0.64, *both(_variance(0))),
    Fact("ou", OU, "exact variance of b", 1.29, *both(_variance(1))),
    Fact("ou", OU, "exact covariance of W and b", -0.64, *both(_covariance)),
    Fact("ou", OU, "exact correlation of W and b", -0.71, *both(at("exact_weights.corr"))),
    Fact("ou", OU, "steps of the chain", 10_000, option("paper.num_steps"), option("langevin.num_steps")),
    Fact("ou", OU, "weights of the drift network 2-2-2-2", 18, drift_size(), None, OURS_DIFFERS),
    Fact("ou", OU, "numbers of the BBVI baseline", 5, *both(gaussian_size), "Two means, a 2 x 2 covariance."),
    Fact(
        "ou",
        OU,
        "std of W by Langevin sampling",
        "matches 0.80",
        *both(at("weights.std.0")),
        NO_PULL,
        bounds=(0.76, 0.84),
    ),
    Fact(
        "ou",
        OU,
        "std of b by Langevin sampling",
        "within 7 % of 1.13",
        *both(at("weights.std.1")),
        NO_PULL,
        bounds=(1.05, 1.21),
    ),
    Fact(
        "ou",
        OU,
        "correlation by Langevin sampling",
        "close to -0.71",
        *both(at("weights.corr")),
        "The averaged likelihood of one weight vector does not ask for the correlation between trajectories.",
        bounds=(-0.76, -0.66),
    ),
    *(
        Fact(
            "ou",
            OU,
            f"std of {name} by BBVI",
            value,
            *both(at(f"bbvi_weights.std.{i}")),
            "Ours is trained by reparametrised gradients; the paper says neither its estimator nor how long it trains.",
        )
        for i, (name, value) in enumerate((("W", 1.46), ("b", 1.73)))
    ),
    Fact("ou", OU, "correlation by BBVI", -0.92, *both(at("bbvi_weights.corr")), "See the rows above."),
    Fact(
        "ou",
        OU,
        "W1 of the predicted densities over its floor",
        "no visible difference",
        *both(at("w1.ratio")),
        "The floor is the W1 of two samples of this size; about 1 cannot be seen in a figure.",
        bounds=(0.0, 2.0),
    ),
    *motion_facts("ou", OU),
    Fact(
        "ou",
        "C Score of the demonstration",
        "error of the learned score, relative to the exact one",
        "the drift is the score",
        *both(at("score.relative_error")),
        "As printed the drift itself is compared; by default the score of the chain's end, estimated from 16384 runs, "
        "whose sampling error is part of the number.",
        bounds=(0.0, 0.25),
    ),
)
SCHLOGL_FACTS = (
    Fact("schlogl", SCHLOGL, "weights of the right-hand side 1-16-16-1", 321, *both(at("problem.num_weights"))),
    Fact(
        "schlogl",
        SCHLOGL,
        "weights of the drift network 321-101-101-321",
        "321-101-101-321 (75566 weights)",
        drift_size(),
        None,
        OURS_DIFFERS,
        bounds=(75566, 75566),
    ),
    Fact(
        "schlogl",
        SCHLOGL,
        "diffusion at the start of annealing",
        2.0,
        option("paper.diffusion_start"),
        None,
        "The default is not annealed.",
    ),
    Fact(
        "schlogl",
        SCHLOGL,
        "fraction of trajectories in the low mode",
        "roughly equal weights",
        *both(at("modes.p_low")),
        "Exact: 0.513, from the master equation of our numbers of molecules; the paper gives none.",
        bounds=(0.4, 0.6),
    ),
    *(
        Fact(
            "schlogl",
            SCHLOGL,
            f"samples at the {name} mode (within three exact standard deviations)",
            f"has the {name} mode",
            *both(at(f"modes.at_{name}")),
            "The fraction below the valley alone does not show whether there are modes.",
            bounds=(0.4, 0.6),
        )
        for name in ("low", "high")
    ),
    *(
        Fact(
            "schlogl",
            SCHLOGL,
            f"samples of BBVI at the {name} mode",
            words,
            *both(at(f"bbvi.at_{name}")),
            "A diagonal Gaussian under the averaged mixture likelihood; the rest of its samples is at neither mode.",
            bounds=bounds,
        )
        for name, words, bounds in (("low", "none", (0.0, 0.05)), ("high", "the only mode", (0.8, 1.0)))
    ),
    Fact(
        "schlogl",
        SCHLOGL,
        "W1 of BBVI to the exact law, over the rms std",
        "figure only",
        *both(at("bbvi.w1_exact")),
        "Beside it the next row: neither mode is where the samples are.",
    ),
    Fact(
        "schlogl",
        SCHLOGL,
        "W1 to the exact law, over the rms std",
        "figure only",
        *both(at("w1_exact.relative")),
        "Sampling error of the training data alone: about 0.02 to 0.03 with 1024 trajectories.",
    ),
    Fact(
        "schlogl",
        SCHLOGL,
        "W1 with the fewest replicas over that with the most, longest chain",
        "converges fast, insensitive",
        *both(at("convergence.by_replicas")),
        "Replicas are the samples of an update. 1 is no difference.",
    ),
    Fact(
        "schlogl",
        SCHLOGL,
        "W1 with the shortest chain over that with the longest, most replicas",
        "converges fast, insensitive",
        *both(at("convergence.by_steps")),
        "As printed the pseudo-time of a step is given, so that in fewer steps weights without a pull spread less; by "
        "default that of the whole chain is.",
    ),
    Fact(
        "schlogl",
        SCHLOGL,
        "median distance correlation of pairs of weights",
        0.1,
        *both(at("distance_correlation.median")),
        "The next row has what independent weights reach with as many samples. The default draws all weights from 4 "
        "numbers, so that they depend on each other strongly.",
    ),
    Fact(
        "schlogl",
        SCHLOGL,
        "the same of independent weights",
        "not given",
        *both(at("distance_correlation.independence")),
        "From the same samples, each weight permuted.",
    ),
    *motion_facts("schlogl", SCHLOGL),
)
