"""The figures of the paper, each in our words, and which of ours show the same."""

from langenode.experiments.paper_results.chemistry import OU, SCHLOGL
from langenode.experiments.paper_results.materials import DATA, HYPER, VISCO
from langenode.experiments.paper_results.readers import METHOD, PaperFigure

# Figures that are made of several runs, or of none.
FRAMEWORK, CONVERGENCE, CUBES = "framework", "convergence", "deformed-cubes"

FIGURES: tuple[PaperFigure, ...] = (
    PaperFigure(
        METHOD,
        "3 Methodology",
        "hypernet",
        "The framework",
        "Three schematics: a sampler that gives weights to a model of the data, the model with its hidden state, and "
        "the stochastic equation of the weights with its drift network.",
        (FRAMEWORK,),
        "One drawing has all three parts.",
    ),
    PaperFigure(
        "ou",
        OU,
        "langevin_trajectories",
        "Densities over time",
        "Kernel density estimates of 1024 trajectories over time, with the mean: the data, predictions by Langevin "
        "sampling, which cannot be distinguished by eye, and by BBVI, which differ at early times.",
        ("density",),
    ),
    PaperFigure(
        "ou",
        OU,
        "langevin_correlation",
        "The two weights",
        "Marginal and joint densities of W and b: Langevin sampling near the analytic distribution, BBVI wider and "
        "more correlated, with the first principal vectors.",
        ("weights",),
        "Joint densities are contours of kernel estimates over the samples, with the exact ones in black.",
    ),
    PaperFigure(
        "ou",
        OU,
        "langevin_convergence",
        "W1 during training",
        "W1 between predictions and data over time, one curve per epoch: first largest at late times, then falling "
        "everywhere, with a remainder at early times.",
        ("w1",),
    ),
    PaperFigure(
        "ou",
        "C Score of the demonstration",
        "appendix C (no figure)",
        "The learned drift and the exact score",
        "The paper derives the exact score of W and b, and calls its drift a score, but does not show both.",
        ("score",),
    ),
    PaperFigure(
        "schlogl",
        SCHLOGL,
        "schlogl_trajectories",
        "Trajectories and densities",
        "Trajectories above and densities below, in three columns: data and Langevin sampling with a narrow low and a "
        "wide high mode, BBVI with the high mode only.",
        ("trajectories",),
        "Densities are kernel estimates.",
    ),
    PaperFigure(
        "schlogl",
        SCHLOGL,
        "schlogl_convergence",
        "W1 against replicas",
        "W1 against the number of replicas, one line per number of pseudo-time steps: falling fast, with little "
        "difference between the lines.",
        (CONVERGENCE,),
        "Replicas are the samples of an update. One seed. As printed the pseudo-time of a step is given, by default "
        "that of the whole chain.",
    ),
    PaperFigure(
        "schlogl",
        SCHLOGL,
        "schlogl_weights",
        "Dependence between weights",
        "Matrix of the distance correlations of all pairs of weights, and their histogram about 0.1.",
        ("dependence",),
        "The level of independent weights is drawn into the histogram.",
    ),
    PaperFigure(
        "hyperelastic",
        DATA,
        "viscoelastic_inclusion_realizations",
        "Microstructures",
        "Three cubes with spherical inclusions in biaxial stretch, deformed, with the stress in colour.",
        (CUBES, "microstructures"),
        "First three cubes in equibiaxial stretch by finite-strain elements: logarithmic strain 5 %, displacements "
        "three times as large. Then cubes of the runs, undeformed, since their data need the effective stiffness only.",
    ),
    PaperFigure(
        "hyperelastic",
        HYPER,
        "elastic_accuracy_map",
        "Parity of the point fit",
        "Predicted against mean observed stress on training and validation data, with the standard deviation of the "
        "data as a band: errors are of the size of that band.",
        ("mle_parity",),
    ),
    PaperFigure(
        "hyperelastic",
        HYPER,
        "elastic_weights",
        "Weights in pseudo-time",
        "Trajectories of some weights of each layer from their start at the maximum likelihood, with the mean of 50: "
        "they mix well, and some show a decay from their start.",
        ("weight_paths",),
    ),
    PaperFigure(
        "hyperelastic",
        HYPER,
        "elastic_accuracy",
        "Parity of the three ways",
        "Every realisation against the data, with one standard deviation of both: all weights stochastic, the last "
        "layer with the rest fixed (slightly too narrow), and with the rest refitted (on par).",
        ("stochastic_parity",),
    ),
    PaperFigure(
        "viscoelastic",
        VISCO,
        "viscoelastic_inclusion_comparison",
        "The point fit",
        "Normalised stress over time with one standard deviation and the fitted law; and a parity plot of all held-out "
        "samples with two standard deviations, and an inset near zero.",
        ("mle_trajectories", "mle_parity"),
    ),
    PaperFigure(
        "viscoelastic",
        VISCO,
        "viscoelastic_samples",
        "Bands on held-out loadings",
        "Three loadings: predicted spread on par with the data's, of average size, and largest relative to the data's.",
        ("bands",),
    ),
    PaperFigure(
        "viscoelastic",
        VISCO,
        "viscoelastic_dcorr",
        "Dependence between weights",
        "Distance correlations within the stochastic weights of each of the two networks, and their histograms, which "
        "are alike.",
        ("dependence",),
        "Our law has one group of six weights.",
    ),
)
