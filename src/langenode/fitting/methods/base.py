"""What a method is: its name, its own options, the targets it serves, its words, and how it is made or drawn."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, PlainSerializer

from langenode.config import Config, ConfigError, DrawnOptions, TargetName, TrainedOptions

if TYPE_CHECKING:  # help pages are shown without JAX
    from langenode._types import Array, Float, PRNGKeyArray
    from langenode.posteriors import AbstractVariational, Reference, Sampled

ReferenceKind = Literal["prior", "local"]


def _is_no_name(network: Any) -> Any:
    """Refuse the word that stands for a function in a file."""
    if network == "own":
        raise ValueError(
            "a network of your own is a function, which no file can hold; got network='own'; give the function in "
            "Python: ln.fit(..., options={METHOD: {'network': function}})"
        )
    return network


# The net of a control: a name, or from Python a function `(num_inputs, num_outputs, key=key)`, which files call `own`.
NetworkOption = Annotated[
    Literal["mlp", "residual", "unet"] | Callable[..., Any],
    BeforeValidator(_is_no_name),
    PlainSerializer(lambda network: network if isinstance(network, str) else "own"),
]


class Ingredients(NamedTuple):
    """What a trained distribution is made of: its reference, the maximum-likelihood weights, and a random key."""

    reference: "Reference"
    start_weights: "Float[Array, ' dim']"
    key: "PRNGKeyArray"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """What all methods have.

    `targets` are those it serves, its default first. `summary` is a line for help pages, tables and the report.
    `remedy` is what to do about another target. `in_all` says whether `compare --methods all` has it. `needs_extra`
    names the optional extra of this package that it depends on.
    """

    name: str
    summary: str
    targets: tuple[TargetName, ...]
    options: type[Any]
    remedy: str = "choose another target or method"
    in_all: bool = True
    needs_extra: str | None = None

    @property
    def is_drawn(self) -> bool:
        """Whether it draws from a posterior and trains nothing."""
        return issubclass(self.options, DrawnOptions)

    @property
    def kind(self) -> str:
        """Trained or drawn, as a word."""
        return "drawn" if self.is_drawn else "trained"

    def check(self, config: Config) -> None:
        """Raise a `ConfigError` where the method cannot do what is asked."""
        if config.target not in self.targets:
            raise ConfigError(
                f"method {self.name} serves {' and '.join(self.targets)}; got target={config.target!r}; {self.remedy}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained(Method):
    """A distribution of the weights that Algorithm 1 trains.

    `reference_of(options)` is what the distribution is without training: the prior, or a Gaussian fitted about the
    point estimate (`local`). `diffusion(options, num_updates)` is a schedule of gamma, or None. `warns_of_scales`:
    whether a data term and a KL on different scales are worth a warning.
    """

    make: Callable[[Ingredients, Any], "AbstractVariational"]
    targets: tuple[TargetName, ...] = ("population", "posterior", "tempered", "hierarchical")
    options: type[TrainedOptions] = TrainedOptions
    reference_of: Callable[[Any], ReferenceKind] = lambda options: "local"
    diffusion: Callable[[Any, int], Any] = lambda options, num_updates: None
    warns_of_scales: bool = True

    def check(self, config: Config) -> None:
        """Raise a `ConfigError` where the method cannot do what is asked."""
        super().check(config)
        is_without_gradient = config.target == "population" or config.rest == "refit"
        if getattr(config.options, "estimator", None) == "log_variance" and is_without_gradient:
            raise ConfigError(
                "the log-variance estimator has no gradient for a population loss or for refitted weights; got "
                f"target={config.target!r} and rest={config.rest!r}; set {self.name}.estimator='reparametrised'"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn(Method):
    """An algorithm that draws from a posterior: `draw(density, options, key=..., budget=...)`.

    `minibatch(options)` is the number of cases whose gradient it uses at a time. `fallback(options)` names the method
    that takes over where the draws are not to be trusted. `predicts_linearised(options)`: predictions are those of the
    model's linearisation at the mode. `reference_rank`: draws that are trusted may serve other methods as the
    reference; the lowest rank is preferred. `has_steps`: `draw` takes an `on_step`. `has_checkpoint`: it takes a
    `checkpoint`, whose `read(shape)` gives a stored state of the shape that `shape(sizes)` makes, or None, and whose
    `write(state, sizes)` stores one now and then. `distils(options)` names the trained sampler that takes the draws'
    place in the fit, where it is near enough to them, and the number of updates.
    """

    draw: Callable[..., "Sampled"]
    targets: tuple[TargetName, ...] = ("posterior", "tempered")
    options: type[DrawnOptions] = DrawnOptions
    remedy: str = (
        "it draws from a posterior and needs a likelihood, where a population compares distributions; use "
        "target='posterior' or 'tempered', or a method that is trained: langevin, bottleneck or gaussian-full"
    )
    minibatch: Callable[[Any], int | None] = lambda options: None
    fallback: Callable[[Any], str | None] = lambda options: None
    predicts_linearised: Callable[[Any], bool] = lambda options: False
    reference_rank: int | None = None
    has_steps: bool = False
    has_checkpoint: bool = False
    distils: Callable[[Any], tuple[Literal["langevin", "bottleneck"], int] | None] = lambda options: None

    def check(self, config: Config) -> None:
        """Raise a `ConfigError` where the method cannot do what is asked."""
        super().check(config)
        if config.rest == "refit" or config.stochastic == "none":
            raise ConfigError(
                f"method {self.name} draws the stochastic weights and leaves the others; got "
                f"stochastic={config.stochastic!r} and rest={config.rest!r}; set rest='fixed', and stochastic='all' or "
                "'last_layer'"
            )
