"""Configuration: strict TOML into frozen records, `a.b=value` overrides, and hints for misspelt keys.

Layers are merged from general to particular (defaults, the experiment's, the method's and target's, the user's file,
`--set`), and the result is checked once. Nothing else of Langenode is known here.
"""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import pydantic
from pydantic import Field

TrainedMethod = Literal["langevin", "bottleneck", "paper", "gaussian-full", "gaussian-diagonal", "gaussian-lowrank"]
DrawnMethod = Literal["guided", "nuts", "smc", "sgld", "svgd", "pathfinder", "laplace", "ensemble", "map"]
Method = TrainedMethod | DrawnMethod
TRAINED_METHODS: tuple[str, ...] = get_args(TrainedMethod)
# They make draws of the weights from a likelihood, and train nothing.
DRAWN_METHODS: tuple[str, ...] = get_args(DrawnMethod)
TargetName = Literal["posterior", "tempered", "population"]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class ConfigError(ValueError):
    """What must hold of the configuration, what was found and what to do."""


class Section(pydantic.BaseModel):
    """A frozen record that refuses unknown keys."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    @pydantic.model_validator(mode="before")
    @classmethod
    def _none_is_a_word(cls, values: Any) -> Any:
        """TOML has no null: the word none switches off an option that can be switched off."""
        if not isinstance(values, Mapping):
            return values
        return {key: None if value == "none" and cls._can_be_none(key) else value for key, value in values.items()}

    @classmethod
    def _can_be_none(cls, key: Any) -> bool:
        field = cls.model_fields.get(key)
        return field is not None and type(None) in get_args(field.annotation)


class ModelConfig(Section):
    """The networks and the integrator; intervals longer than `largest_step` (in scaled time) are cut."""

    layers: tuple[Count, ...] = (16, 16)
    activation: Literal["tanh", "softplus", "silu", "gelu", "relu", "elu", "sigmoid", "sin"] = "tanh"
    solver: Literal["heun", "adaptive", "stiff"] = "heun"
    substeps: Count = 1
    input_rule: Literal["trapezoid", "paper"] = "trapezoid"
    largest_step: Positive | None = None


class PriorConfig(Section):
    """Normal prior of the stochastic weights: its mean (zero or the MLE) and its scale."""

    mean: Literal["zero", "mle"] = "mle"
    scale: Positive = 1.0


class NoiseConfig(Section):
    """Observation noise: from replicates, of a given sigma, or inferred with the weights.

    `calibrate` changes the noise of predictions so that their 90 % bands hold 90 % of new trajectories' readings.
    `in_start` says that the start of a trajectory is a reading, too, so predictions begin there with its noise.
    """

    kind: Literal["replicates", "given", "inferred"] = "replicates"
    sigma: Positive | None = None
    num_modes: Count = 1
    correlation_time: Positive | None = None
    calibrate: bool = False
    in_start: bool = False


class PopulationConfig(Section):
    """The distance to the data's distribution, and the weight of the KL beside it.

    `transition_weight` is that of the transition likelihood, for models with noise of their own. `saturation` makes
    the quantile loss grow slowly beyond so many spreads, for data with several modes; `power` 2 takes its square.
    """

    loss: Literal["energy", "quantile", "log_mean_exp"] = "energy"
    kl_weight: Annotated[float, Field(ge=0)] = 1e-4
    moment_weight: Annotated[float, Field(ge=0)] = 0.0
    transition_weight: Annotated[float, Field(ge=0)] = 0.0
    saturation: Positive | None = None
    power: Literal[1, 2] = 1
    explained: Annotated[float, Field(gt=0, le=1)] = 0.999
    max_components: Count = 16


class TemperedConfig(Section):
    """The temperature: a number, or `mean` to average the log-likelihood over trajectories and times."""

    temperature: Positive | Literal["mean"] = "mean"
    kl_weight: Annotated[float, Field(ge=0)] = 1.0


class SamplerConfig(Section):
    """The chain over the weights (and, for the Gaussian methods, the rank and the estimator)."""

    num_steps: Count = 16
    horizon: Positive = 3.0
    layers: tuple[Count, ...] | None = (32, 32)
    grid: Literal["graded", "uniform"] = "graded"
    step: Literal["exact", "euler"] = "exact"
    noise: Literal["full", "diagonal", "fixed"] = "full"
    learn_start: bool = True
    diffusion: Positive = 1.0
    diffusion_start: Positive | None = None
    estimator: Literal["reparametrised", "sticking", "log_variance"] = "reparametrised"
    rank: Count = 4
    latent_dim: Count = 4
    decoder_layers: tuple[Count, ...] = (32, 32)
    pseudo_time_step: Positive = 1e-3
    start_variance: Positive = 1e-5
    contraction: Positive = 1.0


class DrawsConfig(Section):
    """The methods that draw from a posterior and train nothing; each uses some of these (`langenode run --help`).

    `guided`: paths of `num_steps` over `horizon`, doubled up to `most_steps` where few ancestors survive; `eta` is
    chosen by a pilot where it is not set; paths are resampled
    where the relative effective size falls below `resample_below`, and moved `num_moves` times at the end; `chunk`
    paths at a time. A result that is not to be trusted is replaced by that of `fallback`. `batch` is the number of
    cases in a mini-batch of `sgld`. `predictive` says whether draws of `laplace` go through the model or through its
    linearisation at the mode.
    """

    num: Annotated[int, Field(ge=2)] = 1024
    num_steps: Count = 64
    most_steps: Count = 256
    horizon: Positive = 0.25
    eta: Annotated[float, Field(ge=0)] | None = None
    resample_below: Annotated[float, Field(ge=0, lt=1)] = 0.5
    num_moves: Annotated[int, Field(ge=0)] = 0
    chunk: Count | None = None
    fallback: Literal["none", "smc"] = "none"
    num_chains: Count = 32
    num_warmup: Count = 300
    num_islands: Count = 4
    num_iterations: Count = 1000
    num_members: Count = 64
    batch: Count | None = None
    predictive: Literal["sampled", "linearised"] = "linearised"


class MLEConfig(Section):
    """The point estimate that training starts from."""

    num_adam: Annotated[int, Field(ge=0)] = 500
    num_lbfgs: Annotated[int, Field(ge=0)] = 200
    learning_rate: Positive = 1e-2
    penalty: Annotated[float, Field(ge=0)] = 0.0


class TrainingConfig(Section):
    """Algorithm 1. The learning rate decays by a cosine to the fraction `final_rate` of itself."""

    num_updates: Count = 1000
    num_samples: Annotated[int, Field(ge=2)] = 256
    num_chunks: Count = 1
    batch_trajectories: Count | None = None
    batch_conditions: Count | None = None
    learning_rate: Positive = 5e-3
    final_rate: Annotated[float, Field(ge=0, le=1)] = 0.02
    clip: Positive = 1.0
    average: Annotated[float, Field(ge=0, lt=1)] = 0.99
    block: Count = 50
    patience: Annotated[int, Field(ge=0)] = 0


class PredictConfig(Section):
    """How many samples predictions and scores are made of."""

    num_samples: Annotated[int, Field(ge=2)] = 1024
    num_weights: Annotated[int, Field(ge=2)] = 4096
    num_w1_draws: Count = 20


class Config(Section):
    """What a run was asked to do."""

    experiment: str
    method: Method = "langevin"
    target: TargetName = "population"
    stochastic: Literal["all", "last_layer", "none", "function"] = "all"  # a function comes from Python only
    rest: Literal["fixed", "refit"] = "fixed"
    seed: Annotated[int, Field(ge=0)] = 0
    budget: Positive | None = None  # seconds that the fit may take; what then is not done is said
    precision: Literal["float32", "float64"] = "float32"
    scaling: Literal["none", "standardise", "common"] = "standardise"  # common: one scale for all outputs
    model: ModelConfig = ModelConfig()
    prior: PriorConfig = PriorConfig()
    noise: NoiseConfig = NoiseConfig()
    population: PopulationConfig = PopulationConfig()
    tempered: TemperedConfig = TemperedConfig()
    sampler: SamplerConfig = SamplerConfig()
    draws: DrawsConfig = DrawsConfig()
    mle: MLEConfig = MLEConfig()
    training: TrainingConfig = TrainingConfig()
    predict: PredictConfig = PredictConfig()

    @property
    def is_drawn(self) -> bool:
        """Whether the method makes draws, rather than training a law of the weights."""
        return self.method in DRAWN_METHODS

    @property
    def is_linearised(self) -> bool:
        """Whether predictions are those of the model's linearisation at the mode."""
        return self.method == "laplace" and self.draws.predictive == "linearised"

    @pydantic.model_validator(mode="after")
    def _can_be_drawn(self) -> "Config":
        if self.is_drawn and self.target == "population":
            raise ValueError(
                f"method {self.method} draws from a posterior and needs a likelihood; got target='population', which "
                "compares distributions; use target='posterior' or 'tempered', or a method that is trained: langevin, "
                "bottleneck or gaussian-full"
            )
        if self.is_drawn and (self.rest == "refit" or self.stochastic == "none"):
            raise ValueError(
                f"method {self.method} draws the stochastic weights and leaves the others; got "
                f"stochastic={self.stochastic!r} and rest={self.rest!r}; set rest='fixed', and stochastic='all' or "
                "'last_layer'"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _go_together(self) -> "Config":
        if self.method == "bottleneck" and self.target != "population":
            raise ValueError(
                "a bottleneck's weights have no density, so it serves target='population' only; "
                f"got target={self.target!r}; change the target, or use method 'langevin'"
            )
        if self.sampler.estimator == "log_variance" and (self.target == "population" or self.rest == "refit"):
            raise ValueError(
                "the log-variance estimator has no gradient for a population loss or for refitted weights; got "
                f"target={self.target!r} and rest={self.rest!r}; use sampler.estimator='reparametrised'"
            )
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
        if self.noise.kind == "given" and self.noise.sigma is None:
            raise ValueError("given noise needs its scale; noise.sigma is not set; set it, or noise.kind to another")
        return self


ConfigType = TypeVar("ConfigType", bound=Config)


def resolve(kind: type[ConfigType], *layers: Mapping[str, Any]) -> ConfigType:
    """Merge layers, later ones winning, and check the result."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = merge(merged, layer)
    try:
        return kind.model_validate(merged)
    except pydantic.ValidationError as error:
        raise ConfigError(_first_problem(kind, error)) from None


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Two nested mappings into one, the second winning key by key."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a nested mapping."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"a configuration file must exist; there is no {path}; check the name") from None
    except OSError as error:
        raise ConfigError(f"a configuration file must be readable; {path}: {error.strerror}; check it") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"a configuration file must be TOML; {path} is not ({error}); correct it") from None


def to_toml(config: Config) -> str:
    """A resolved configuration as TOML; what is None is left out where that is its default, else the word none."""
    import tomli_w

    return tomli_w.dumps(_without_nulls(config))


def _without_nulls(section: Section) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in section.model_dump(mode="json").items():
        inner = getattr(section, key)
        if isinstance(inner, Section):
            kept[key] = _without_nulls(inner)
        elif value is not None:
            kept[key] = value
        elif type(section).model_fields[key].default is not None:
            kept[key] = "none"
    return kept


def parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """`["a.b=1", "c=[8]"]` as a nested mapping; the values are TOML, or plain text where that fails."""
    merged: dict[str, Any] = {}
    for text in overrides:
        name, equals, value = text.partition("=")
        keys = [key.strip() for key in name.split(".")]
        if not equals or not all(keys):
            raise ConfigError(f"an override must read section.key=value; got {text!r}; e.g. training.num_updates=500")
        nested: Any = _toml_value(value.strip())
        for key in reversed(keys):
            nested = {key: nested}
        merged = merge(merged, nested)
    return merged


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _first_problem(kind: type[Config], error: pydantic.ValidationError) -> str:
    """One line for the first thing that is wrong, with the nearest key for a misspelt one."""
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    name = ".".join(location)
    if first["type"] == "value_error":
        return first["msg"].removeprefix("Value error, ")
    if first["type"] != "extra_forbidden":
        return f"{name}: {first['msg'].lower()}; got {first['input']!r}; change it"
    keys = _keys_at(kind, location[:-1])
    near = difflib.get_close_matches(location[-1], keys, n=1)
    hint = f"did you mean {'.'.join([*location[:-1], near[0]])}?" if near else f"known keys here: {', '.join(keys)}"
    return f"a configuration key must be known; there is no {name}; {hint}"


def _keys_at(kind: type[pydantic.BaseModel], location: Sequence[str]) -> list[str]:
    for key in location:
        annotation = kind.model_fields[key].annotation
        assert isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel)
        kind = annotation
    return list(kind.model_fields)
