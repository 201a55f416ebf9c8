"""The JSON records of a run, checked value by value before anything is made of them.

Keys that are not named here may hold anything: they are shown, never computed with.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from langenode.storage.writing import RunFolderError

MOST_BYTES = 100_000_000
Number = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
NotNegative = Annotated[int, Field(ge=0)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Record(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", strict=True)


class _Source(_Record):
    path: str
    sha256: Hash


class _Choice(_Record):
    what: str
    chosen: str
    why: str


class Provenance(_Record):
    """Where a run came from."""

    seed: NotNegative | None = None
    command: list[str] | None = None
    started: str | None = None
    versions: dict[str, str] = {}
    python: str | None = None
    platform: str | None = None
    seconds: dict[str, Seconds] = {}
    source: _Source | None = None
    columns: dict[str, str | list[str] | None] = {}
    choices: list[_Choice] = []


class _Distance(_Record):
    mean: Number | None = None
    floor: Number | None = None
    ratio: Number | None = None
    data: Number | None = None


class _Check(_Record):
    name: str | None = None
    passed: bool | None = None
    says: str | None = None


class _Verdict(_Record):
    level: Annotated[str, Field(pattern="^(trust|caution|distrust)$")]
    text: str | None = None
    checks: list[_Check] = []


class _Spread(_Record):
    median: Number
    max: Number


class _Profile(_Record):
    time: list[Number]
    rhat: list[Number]


class Diagnostics(_Record):
    """How good the samples of a fit are."""

    elbo: Number | None = None
    log_evidence: Number | None = None
    log_evidence_se: Number | None = None
    relative_ess: Number | None = None
    k_hat: float | None = None  # not a number where the weights have no tail
    unchecked: str | None = None
    reference_rank: int | None = None
    is_trusted: bool | None = None
    method: str | None = None
    reason: str | None = None
    rhat_in: _Spread | None = None
    rhat_out: _Spread | None = None
    rhat_log_likelihood: Number | None = None
    rhat_squared_norm: Number | None = None
    squared_norm_drift: Number | None = None
    trusted_in: bool | None = None
    trusted_out: bool | None = None
    rhat_profile: dict[Literal["inside", "outside"], _Profile] | None = None


class _ExactPosterior(_Record):
    mean: list[Number]
    std: list[Number]
    log_evidence: Number | None = None


class _Motion(_Record):
    std_before: Number
    std_after: Number
    correlation_before: Number
    correlation_after: Number
    shift: Number
    has_moved: bool
    begins_at: Literal["prior", "local"] | None = None


class Training(_Record):
    """Counts of updates, and how far they have moved the sampler."""

    updates: NotNegative | None = None
    asked: NotNegative | None = None
    skipped: NotNegative | None = None
    motion: _Motion | None = None


class _Problem(_Record):
    num_weights: NotNegative | None = None
    num_stochastic: NotNegative | None = None
    inputs: list[str] | None = None
    outputs: list[str] | None = None
    data: dict[str, dict[str, NotNegative | None]] | None = None


class _CrossValidation(_Record):
    folds: Annotated[int, Field(ge=2)]
    sizes: list[NotNegative] = []
    kinds: list[str] = []


class Metrics(_Record):
    """The numbers of an evaluated run."""

    experiment: str | None = None
    method: str | None = None
    target: str | None = None
    stochastic: str | None = None
    rest: str | None = None
    seed: NotNegative | None = None
    data_id: str | None = None
    method_summary: str | None = None
    problem: _Problem | None = None
    energy_score: Number | None = None
    crps: Number | None = None
    coverage: dict[str, Number | None] = {}
    w1: _Distance | None = None
    w1_held_out: _Distance | None = None
    energy_distance: _Distance | None = None
    rmse: dict[str, Number | None] | None = None
    rmse_over_std: dict[str, Number | None] | None = None
    noise_factor: dict[str, Number | None] | None = None
    posterior: Diagnostics | None = None
    reference_posterior: _ExactPosterior | None = None
    training: Training | None = None
    cross_validation: _CrossValidation | None = None
    choices: list[_Choice] = []
    verdict: _Verdict | None = None
    seconds: dict[str, Seconds] = {}


class _Figure(_Record):
    name: str | None = None
    file: str | None = None
    title: str | None = None
    caption: str | None = None
    alt: str | None = None
    numbers: list[Any] | None = None


_FIGURES = pydantic.TypeAdapter(list[_Figure])


def read_json(path: Path, *, remedy: str) -> Any:
    """Read a JSON file; None if there is no file."""
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES} bytes")
        return loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise RunFolderError(f"{path.name} must be JSON; {path} is damaged ({error}); {remedy}") from None


def loads(text: str) -> Any:
    """Parse JSON whose texts can be written again: an escape can stand for half a letter."""
    found = json.loads(text)
    if "\\ud" in text.lower():
        json.dumps(found, ensure_ascii=False).encode("utf-8")
    return found


def read_record(path: Path, *, remedy: str = "delete it, or make the run again") -> dict[str, Any]:
    """Read a JSON file that holds a mapping; empty if there is no file."""
    found = read_json(path, remedy=remedy)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise RunFolderError(f"{path.name} must hold a JSON object; {path} holds another value; {remedy}")
    return found


def read_checked(path: Path, kind: type[pydantic.BaseModel], *, remedy: str) -> dict[str, Any]:
    """Read a JSON file that holds a mapping whose values are of this kind; empty if there is no file."""
    found = read_record(path, remedy=remedy)
    try:
        kind.model_validate(found)
    except (pydantic.ValidationError, RecursionError) as error:
        raise RunFolderError(f"{path} must hold what a run writes; {what_is_wrong(error)}; {remedy}") from None
    return found


def read_provenance(path: Path) -> dict[str, Any]:
    """Read where a run came from; empty if there is no file."""
    return read_checked(path, Provenance, remedy="make the run again in another folder")


def read_figures(path: Path, *, remedy: str) -> list[dict[str, Any]] | None:
    """Read the index of a run's figures; None if there is no file."""
    found = read_json(path, remedy=remedy)
    if found is None:
        return None
    try:
        _FIGURES.validate_python(found)
    except (pydantic.ValidationError, RecursionError) as error:
        raise RunFolderError(f"{path} must list figures; {what_is_wrong(error)}; {remedy}") from None
    return found


def is_provenance(path: Path) -> bool:
    """Whether a file is the provenance of a run, though its details may be damaged."""
    found = value_or_none(path)
    return isinstance(found, dict) and isinstance(found.get("versions"), dict) and "langenode" in found["versions"]


def value_or_none(path: Path) -> Any:
    """The content of a JSON file; None where there is none that can be read."""
    try:
        return read_json(path, remedy="")
    except RunFolderError:
        return None


def what_is_wrong(error: Exception) -> str:
    """The first thing that a check found, in few words."""
    if not isinstance(error, pydantic.ValidationError):
        return "it is nested too deeply"
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    shown = repr(first["input"])
    return f"{name}: {first['msg'].lower()}, found {shown if len(shown) <= 60 else f'{shown[:60]}...'}"
