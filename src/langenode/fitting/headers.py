"""The headers of our own files, every value checked before anything is built from it."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from langenode.data import Columns, DataError, Scaling
from langenode.inference.distillation import MOST_LATENTS, MOST_RANK
from langenode.inference.targets import Hierarchical, Population, Posterior, Target, Tempered
from langenode.storage import container
from langenode.storage.container import FitFileError
from langenode.storage.records import Diagnostics, Training, what_is_wrong

TARGETS = {kind.name: kind for kind in (Posterior, Tempered, Population, Hierarchical)}
Number = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(min_length=1)]


class _Header(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", strict=True, frozen=True)


class UnitsHeader(_Header):
    """How the weights of new units are stored: the places of a unit's own, and how many members there are."""

    own: Annotated[list[Whole], Field(min_length=1)]
    members: Annotated[int, Field(ge=1, le=100_000)]
    has_occasions: bool


class DistilledHeader(_Header):
    """The sizes of a trained sampler that stands for draws."""

    kind: Literal["langevin", "bottleneck"]
    rank: Annotated[int, Field(ge=1, le=MOST_RANK)] | None = None
    latents: Annotated[int, Field(ge=1, le=MOST_LATENTS)] = 1


def _increasing(ends: list[float]) -> list[float]:
    if ends[0] > ends[1]:
        raise ValueError("a range must not end before it begins")
    return ends


Range = Annotated[list[Number], Field(min_length=2, max_length=2), pydantic.AfterValidator(_increasing)]


class ExtentHeader(_Header):
    """What the training data cover."""

    duration: NotNegative  # of the longest trajectory
    inputs: list[Range]
    starts: list[Range]


class FitHeader(_Header):
    """What a fit file says beside its arrays."""

    experiment: str
    config: dict[str, Any]
    scaling: dict[str, Any]
    input_names: list[Name]
    output_names: Annotated[list[Name], Field(min_length=1)]
    noise_factor: Annotated[list[NotNegative], Field(min_length=1)]
    positions: list[Whole]
    target: dict[str, Any]
    num_draws: Annotated[int, Field(ge=1)] | None
    distilled: "DistilledHeader | None"
    units: "UnitsHeader | None"
    reference_rank: Whole | None
    is_linearised: bool
    noise_sigma: list[NotNegative] | None
    columns: dict[str, str | list[str] | None]
    extent: "ExtentHeader | None"
    training: Training
    diagnostics: Diagnostics

    @pydantic.model_validator(mode="after")
    def _agree(self) -> "FitHeader":
        num = len(self.output_names)
        for what, names in (("input", self.input_names), ("output", self.output_names)):
            if len(set(names)) < len(names):
                raise ValueError(f"{what}_names must differ from each other")
        if len(self.noise_factor) not in (1, num):
            raise ValueError(f"there must be one noise_factor, or one per output ({num})")
        if self.noise_sigma is not None and len(self.noise_sigma) not in (1, num):
            raise ValueError(f"there must be one noise_sigma, or one per output ({num})")
        if self.extent is not None and len(self.extent.inputs) != len(self.input_names):
            raise ValueError(f"there must be one range in extent per input ({len(self.input_names)})")
        if self.positions != sorted(set(self.positions)):
            raise ValueError("positions must increase")
        if set(self.columns) - set(Columns._fields):
            raise ValueError(f"columns must be among {', '.join(Columns._fields)}")
        return self


class _Tried(_Header):
    name: str
    error: Number


class PointHeader(_Header):
    """What the file of a maximum-likelihood model says beside its arrays."""

    model: dict[str, Any]
    chosen: str
    tried: list[_Tried]


class FoldPointsHeader(_Header):
    """What the file of a fold's candidates says beside their arrays."""

    errors: Annotated[dict[str, NotNegative], Field(min_length=1)]
    num_cells: Whole


def read_fit_header(path: Path) -> dict[str, Any]:
    """The header of a fit file, checked."""
    header = container.read_header(path)
    wanted = {"experiment", "config", "scaling", "input_names", "output_names", "noise_factor", "positions", "target"}
    if not wanted <= set(header):
        raise FitFileError(f"{path} must hold a whole fit; it holds a part of one; give fit.langenode")
    return _checked(path, header, FitHeader)


def read_point_header(path: Path) -> dict[str, Any]:
    """The header of the file of a maximum-likelihood model, checked."""
    return _checked(path, container.read_header(path), PointHeader)


def read_fold_header(path: Path) -> dict[str, Any]:
    """The header of the file of a fold's candidates, checked."""
    return _checked(path, container.read_header(path), FoldPointsHeader)


def _checked(path: Path, header: dict[str, Any], kind: type[_Header]) -> dict[str, Any]:
    try:
        kind.model_validate(header)
    except (pydantic.ValidationError, RecursionError) as error:
        raise FitFileError(f"a fit file must make sense; {path}: {what_is_wrong(error)}; create it again") from None
    return header


def stored_scaling(path: Path, header: Mapping[str, Any]) -> Scaling:
    """The units of a fit, one per column."""
    try:
        scaling = Scaling.from_dict(header["scaling"])
    except (DataError, TypeError, ValueError, OverflowError) as error:
        raise FitFileError(f"a fit file must make sense; {path}: {error}; create it again") from None
    for kind in ("input", "output"):
        found, wanted = getattr(scaling, f"{kind}_scale").size, len(header[f"{kind}_names"])
        if found != wanted:
            raise FitFileError(
                f"a fit file must have one scale per column; {path} has {found} for {wanted} {kind}s; create it again"
            )
    if not isinstance(header["scaling"]["from_zero"], bool):
        raise FitFileError(f"from_zero of a scaling must be true or false; {path} has another; create it again")
    return scaling


def stored_target(path: Path, header: Mapping[str, Any], name: str) -> Target:
    """What was inferred; `name` is what the configuration says of it."""
    fields = dict(header["target"])
    kind = TARGETS.get(name)
    try:
        if kind is None or fields.pop("name", None) != name:
            raise ValueError(f"target must be {name}, as in its configuration")
        for field in dataclasses.fields(kind):
            value = fields.get(field.name, field.default)
            wanted: Any = field.type
            pydantic.TypeAdapter(wanted).validate_python(value, strict=True)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"target.{field.name} must be finite")
        return kind(**fields)
    except (ValueError, TypeError) as error:
        why = what_is_wrong(error) if isinstance(error, pydantic.ValidationError) else error
        raise FitFileError(f"a fit file must make sense; {path}: {why}; create it again") from None
