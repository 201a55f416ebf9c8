"""What can be asked: frozen records with a meaning beside every key. The methods bring records of their own."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import pydantic
from pydantic import Field

OutputScale = Literal["linear", "positive", "log"]
TargetName = Literal["posterior", "tempered", "population", "hierarchical"]
Stochastic = Literal["all", "last_layer", "last_two_layers", "last_three_layers", "unit", "none", "function"]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
AtLeastTwo = Annotated[int, Field(ge=2)]
# Beyond these, no machine could do what is asked; a random key takes 32 bits of a seed.
MOST_COUNT, MOST_ENTRIES, MOST_CELLS, LARGEST_SEED = 10_000_000, 10_000, 20_000_000, 2**32 - 1
MOST_LAYERS = 64


class Section(pydantic.BaseModel):
    """A frozen record that refuses unknown keys; the text below a key is its meaning."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _none_is_a_word(cls, values: Any) -> Any:
        """TOML has no null: the word none switches off an option that can be switched off."""
        if not isinstance(values, Mapping):
            return values
        return {key: None if value == "none" and cls._can_be_none(key) else value for key, value in values.items()}

    @pydantic.model_validator(mode="after")
    def _within_bounds(self) -> "Section":
        """Sizes that no machine can hold are refused here, before anything is made of them."""
        for key in type(self).model_fields:
            value = getattr(self, key)
            numbers = value if isinstance(value, tuple) else (value,)
            whole = [number for number in numbers if isinstance(number, int) and key != "seed"]
            if any(number > MOST_COUNT for number in whole):
                raise ValueError(f"{key} must be at most {MOST_COUNT}; got {max(whole)}; choose less")
            if len(numbers) > (MOST_LAYERS if whole else MOST_ENTRIES):
                raise ValueError(f"{key} must have fewer entries; got {len(numbers)}; name at most {MOST_LAYERS}")
        return self

    @classmethod
    def _can_be_none(cls, key: Any) -> bool:
        field = cls.model_fields.get(key)
        return field is not None and type(None) in get_args(field.annotation)


class TrainedOptions(Section):
    """The options of a method that trains a distribution of the weights."""


class DrawnOptions(Section):
    """The options of a method that draws from a posterior and trains nothing."""


MethodOptions = TrainedOptions | DrawnOptions


class ModelConfig(Section):
    """The networks and the integrator."""

    layers: tuple[Count, ...] = (16, 16)
    """widths of the hidden layers of each network"""
    activation: Literal["tanh", "softplus", "silu", "gelu", "relu", "elu", "sigmoid", "sin"] = "tanh"
    """activation function of the hidden layers"""
    solver: Literal["heun", "adaptive", "stiff"] = "heun"
    """integrator of the hidden state: fixed Heun steps, or an adaptive explicit or implicit solver"""
    substeps: Count = 1
    """Heun steps per interval between two times"""
    input_rule: Literal["trapezoid", "paper"] = "trapezoid"
    """inputs within a Heun step: at both ends (second order), or at the end only, as printed in the paper"""
    largest_step: Positive | None = None
    """intervals longer than this, in scaled time, are subdivided"""
    trainable_start: bool = False
    """the hidden state starts at weights of the model, one start for all trajectories, in place of a known one"""


class PriorConfig(Section):
    """The normal prior of the stochastic weights; leaves are named as in `fit.problem.partition.leaf_names`."""

    mean: Literal["zero", "mle"] = "mle"
    """centre of the prior: zero, or the maximum-likelihood weights"""
    scale: Positive | Literal["automatic"] = 1.0
    """standard deviation of the prior; automatic takes it from the model and the data, for weights with units"""
    means: dict[str, float | tuple[float, ...]] = {}
    """centre of the prior for single leaves, by name: one number, or one per weight of the leaf"""
    scales: dict[str, Positive | tuple[Positive, ...]] = {}
    """standard deviation of the prior for single leaves, by name"""
    lower: float | dict[str, float | tuple[float, ...]] | None = None
    """lower bound of the weights, at which the prior is truncated: of all of them, or of single leaves, by name"""
    upper: float | dict[str, float | tuple[float, ...]] | None = None
    """upper bound of the weights, likewise"""

    @property
    def has_bounds(self) -> bool:
        """Whether any weight has a bound."""
        return any(bound is not None and bound != {} for bound in (self.lower, self.upper))


class NoiseConfig(Section):
    """Observation noise."""

    kind: Literal["replicates", "given", "inferred"] = "replicates"
    """where the noise scale comes from: replicates, noise.sigma, or inferred with the weights"""
    sigma: Positive | None = None
    """standard deviation of given noise, in the data's own units"""
    num_modes: Count = 1
    """modes of the mixture likelihood"""
    mode_split: float | None = None
    """counts trajectories by mode: the upper one ends above this, in the data's own units; none for k-means"""
    mode_centres: bool = False
    """each mode has a centre of its own: the prediction, shifted by the mode's mean less the point fit"""
    correlation_time: Positive | Literal["estimated"] | None = None
    """decay time of correlated noise, in the data's own units; estimated from the residuals of the point fit"""
    calibrate: bool = False
    """rescale the predictive noise so that 90 % bands cover 90 % of new trajectories' readings"""
    proportional: bool | Literal["auto"] = False
    """inferred noise has a part in proportion to the level, for linear outputs; auto: if residuals show it"""
    in_start: bool = False
    """the start of a trajectory is a reading too, so predictions start there with its noise"""


class PopulationConfig(Section):
    """The distance to the distribution of the data, and the weight of the KL beside it."""

    loss: Literal["energy", "quantile", "log_mean_exp"] = "energy"
    """the distance that is minimised"""
    kl_weight: Annotated[float, Field(ge=0)] = 1e-4
    """weight of the KL beside the distance"""
    moment_weight: Annotated[float, Field(ge=0)] = 0.0
    """weight of the squared error of the scores' mean and covariance, for the energy loss"""
    unbiased_spread: bool = False
    """spread n units by sqrt(n / (n - 1)) about their mean in the energy loss: a population is wider than a sample"""
    transition_weight: Annotated[float, Field(ge=0)] = 0.0
    """weight of the transition likelihood, for models with process noise"""
    saturation: Positive | None = None
    """distance, in spreads, beyond which the quantile loss grows slowly, for data with several modes"""
    power: Literal[1, 2] = 1
    """1 for the distance of quantiles, 2 for its square"""
    explained: Annotated[float, Field(gt=0, le=1)] = 0.999
    """fraction of the variance that the principal components of the energy loss explain"""
    max_components: Count = 16
    """largest number of principal components"""
    component_floor: Annotated[float, Field(ge=0)] = 0.0
    """share of the leading component's variance below which a principal component counts less; 0 counts all alike"""
    directions: Literal["data", "model"] = "data"
    """principal components of the data, or of the data within the span of what the model can do"""
    noise: Literal["none", "given", "estimated"] = "none"
    """measurement noise, which the weights need not explain: none, given (noise.sigma), or estimated from readings"""
    new_units: bool = False
    """widen the bands of new units by what the number of units leaves open"""

    @pydantic.model_validator(mode="after")
    def _is_widened_once(self) -> "PopulationConfig":
        if self.new_units and self.unbiased_spread:
            raise ValueError(
                "a population must be widened once; found new_units=true and unbiased_spread=true, and the bands of "
                "new_units make up for the spread of a sample already; leave one of them out"
            )
        return self


class HierarchicalConfig(Section):
    """The marginal likelihood of units that differ, and how well its maximum is known."""

    num_points: AtLeastTwo = 64
    """importance points per unit; one in eight is of the distribution of the effects itself"""
    num_laplace: Count = 150
    """most iterations with Laplace's approximation, which comes first"""
    num_importance: Annotated[int, Field(ge=0)] = 60
    """most iterations with importance sampling after that"""
    num_draws: Annotated[int, Field(ge=0)] = 16
    """draws of what all units share, for its uncertainty; 0 takes the estimate as known"""
    quantification_limit: tuple[float, ...] | None = None
    """readings at or below this are only known to be below it: one number for all outputs, or each; in their units"""
    occasions: bool = False
    """the trajectories of a unit deviate from the unit's own weights"""
    batch_units: AtLeastTwo = 128
    """units per update where there are more than 512"""
    num_updates: Count = 400
    """updates with such mini-batches"""


class TemperedConfig(Section):
    """The tempered likelihood."""

    temperature: Positive | Literal["mean"] = "mean"
    """divisor of the log-likelihood; mean averages over trajectories and times"""
    kl_weight: Annotated[float, Field(ge=0)] = 1.0
    """weight of the KL"""


class MLEConfig(Section):
    """The point estimate that everything starts from."""

    num_adam: Annotated[int, Field(ge=0)] = 500
    """updates by Adam"""
    num_lbfgs: Annotated[int, Field(ge=0)] = 200
    """updates by L-BFGS after that"""
    learning_rate: Positive = 1e-2
    """of Adam, decaying by a cosine"""
    penalty: Annotated[float, Field(ge=0)] = 0.0
    """weight of the squared weights in the loss"""
    weighting: Literal["outputs", "replicates"] = "outputs"
    """a squared error counts by the spread of its output, or by that of the replicates at its time (and in its mode)"""
    units: Literal["one", "automatic"] = "one"
    """units of the weights in the search and in the penalty: as they are, or by their effect on the outputs"""
    most_trajectories: AtLeastTwo | None = None
    """trajectories that the point estimate is found from, chosen at random; none for all"""


class TrainingConfig(Section):
    """Algorithm 1."""

    num_updates: Count = 1000
    """updates of the sampler"""
    num_samples: AtLeastTwo = 256
    """samples of the weights per update"""
    num_chunks: Count = 1
    """parts in which the samples are evaluated, to save memory"""
    batch_trajectories: Count | None = None
    """trajectories per update; none for all"""
    batch_conditions: Count | None = None
    """conditions per update; none for all"""
    learning_rate: Positive = 5e-3
    """of Adam, decaying by a cosine"""
    final_rate: Annotated[float, Field(ge=0, le=1)] = 0.02
    """fraction of the learning rate that is left at the end"""
    clip: Positive | None = 1.0
    """largest norm of the gradient of an update; none for no limit"""
    average: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """memory of the running average of the parameters"""
    block: Count = 50
    """updates between two checks of validation score, progress and budget"""
    patience: Annotated[int, Field(ge=0)] = 0
    """blocks without a better validation score before training stops; 0 never stops early"""


class PredictConfig(Section):
    """Sizes of predictions and scores."""

    num_samples: AtLeastTwo = 1024
    """samples behind predictions and scores"""
    num_weights: AtLeastTwo = 4096
    """samples behind the moments of the weights and the importance diagnostics"""
    num_w1_draws: Count = 20
    """draws behind the median W1"""


class Config(Section):
    """What a run was asked to do; the registry of methods adds one section per method, under its name."""

    experiment: str
    """the demonstration, or own for data of your own"""
    method: str = "langevin"
    """which sampler"""
    target: TargetName = "population"
    """what is inferred: posterior (one true weight vector), population or hierarchical (units differ), tempered"""
    stochastic: Stochastic = "all"  # a function comes from Python only
    """which weights are uncertain"""
    rest: Literal["fixed", "refit"] = "fixed"
    """the other weights: fixed at maximum likelihood, or trained with the sampler"""
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] = 0
    """seed of all random numbers, and of the division of the data"""
    budget: Positive | None = None
    """seconds that the fit may take; what was left undone is reported"""
    precision: Literal["float32", "float64"] = "float32"
    """precision of the arrays"""
    scaling: Literal["none", "standardise", "common"] = "standardise"
    """standardise every column, use one scale for all outputs (common), or none"""
    output_scale: tuple[OutputScale, ...] = ()
    """linear, positive (linear, never below zero) or log (logarithmic above a knee): one for all outputs, or each"""
    model: ModelConfig = ModelConfig()
    prior: PriorConfig = PriorConfig()
    noise: NoiseConfig = NoiseConfig()
    population: PopulationConfig = PopulationConfig()
    hierarchical: HierarchicalConfig = HierarchicalConfig()
    tempered: TemperedConfig = TemperedConfig()
    mle: MLEConfig = MLEConfig()
    training: TrainingConfig = TrainingConfig()
    predict: PredictConfig = PredictConfig()

    @property
    def options(self) -> Any:
        """The options of the method."""
        return getattr(self, self.method)

    @property
    def is_drawn(self) -> bool:
        """Whether the method makes draws, rather than training a distribution of the weights."""
        return isinstance(self.options, DrawnOptions)

    @pydantic.model_validator(mode="after")
    def _go_together(self) -> "Config":
        if self.stochastic == "none" and (self.target != "population" or self.rest != "refit"):
            raise ValueError(
                "without stochastic weights only the rest can be trained, on a population; got "
                f"target={self.target!r} and rest={self.rest!r}; set target='population' and rest='refit'"
            )
        if self.training.num_samples % self.training.num_chunks:
            raise ValueError(
                "training.num_chunks must divide training.num_samples; got "
                f"{self.training.num_chunks} and {self.training.num_samples}; change one of them"
            )
        if self.noise.num_modes > 1 and self.noise.correlation_time is not None:
            raise ValueError("correlated noise needs one mode; got noise.num_modes > 1; drop one of the two options")
        if self.noise.mode_split is not None and self.noise.num_modes != 2:
            raise ValueError(
                f"a split separates two modes; got noise.num_modes={self.noise.num_modes}; set it to 2, or drop "
                "noise.mode_split"
            )
        if self.noise.mode_centres and (self.noise.num_modes == 1 or self.noise.kind != "replicates"):
            raise ValueError(
                "centres are those of several modes of replicates; got noise.mode_centres=true with noise.num_modes="
                f"{self.noise.num_modes} and noise.kind={self.noise.kind!r}; set noise.num_modes=2, or drop it"
            )
        if self.prior.has_bounds and self.target == "hierarchical":
            raise ValueError(
                "bounds belong to one prior of all weights; units that differ have a distribution that is estimated; "
                "got prior.lower or prior.upper with target='hierarchical'; drop them, or use another target"
            )
        if self.population.noise == "given" and self.noise.sigma is None:
            raise ValueError(
                "given noise of a population needs its scale; noise.sigma is not set; set it, or population.noise to "
                "estimated or none"
            )
        if self.noise.kind == "given" and self.noise.sigma is None:
            raise ValueError("given noise needs its scale; noise.sigma is not set; set it, or noise.kind to another")
        sizes = [getattr(getattr(self, "data", None), name, 1) for name in ("num_trajectories", "num_times")]
        if math.prod(sizes) > MOST_CELLS:
            raise ValueError(f"data must have at most {MOST_CELLS} readings; got {sizes[0]} x {sizes[1]}; make less")
        return self
